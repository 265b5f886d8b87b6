"""A client of the router's live mode: Router.Generate."""

from collections.abc import AsyncIterator, Sequence

import msgspec
from grpc import aio

from stageline.errors import Unavailable
from stageline.v1 import router_pb2
from stageline.wire import grpc_options
from stageline.wire.connection import RouterConnection


class Generate(msgspec.Struct, frozen=True, kw_only=True):
    """A request; see GenerateRequest in router.proto."""

    prompt_ids: list[int]
    output_tokens: int
    max_tokens: int
    priority: int = 0
    session: str = ""
    token_gaps: bool = False


class GeneratedText(msgspec.Struct, frozen=True):
    """A piece of the output."""

    text: str
    tokens: int


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended; see Finished in router.proto."""

    prompt_tokens: int
    output_tokens: int
    dilation: float
    queue_ns: int
    ttft_ns: int
    e2e_ns: int
    arrival_ns: int
    token_gap_ns: Sequence[int]


class LiveFacts(msgspec.Struct, frozen=True):
    """What a router serves live."""

    model: str
    dilation: float


class _Plan(msgspec.Struct):
    model: str


class GenerateClient(RouterConnection):
    """Every method raises StagelineError, never a gRPC error."""

    async def live(self) -> LiveFacts:
        """What the router serves live. Raises Unavailable when it serves nothing."""
        reply = await self._status(grpc_options.CALL_S)
        if not reply.live.dilation:
            raise Unavailable(f"{self.place} serves no live requests; start it with stageline up")
        return LiveFacts(msgspec.json.decode(reply.plan, type=_Plan).model, reply.live.dilation)

    async def generate(self, request: Generate) -> AsyncIterator[GeneratedText | Finished]:
        """Yields the output as it arrives, then how it ended. Leaving the iteration cancels the request."""
        call = self._stub.Generate(
            router_pb2.GenerateRequest(**msgspec.structs.asdict(request)), metadata=self._metadata
        )
        try:
            while isinstance(reply := await call.read(), router_pb2.GenerateReply):
                if reply.HasField("finished"):
                    names = Finished.__struct_fields__
                    yield Finished(**{name: getattr(reply.finished, name) for name in names})
                else:
                    yield GeneratedText(reply.text, reply.tokens)
        except aio.AioRpcError as error:
            raise self._error(error) from None
        finally:
            call.cancel()
