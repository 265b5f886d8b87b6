"""A client of the router's live side: Router.Generate, one request at a time over one connection."""

from collections.abc import AsyncIterator

import msgspec
from grpc import aio

from stageline.errors import StagelineError, Unavailable
from stageline.v1 import router_pb2
from stageline.wire import grpc_options
from stageline.wire.connection import RouterConnection
from stageline.wire.errors import error_from, is_transport


class Generate(msgspec.Struct, frozen=True, kw_only=True):
    """One request; see GenerateRequest in router.proto."""

    prompt_ids: list[int]
    output_tokens: int
    max_tokens: int
    priority: int = 0
    session: str = ""


class Piece(msgspec.Struct, frozen=True):
    """Some of the output."""

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


class LiveFacts(msgspec.Struct, frozen=True):
    """What the router serves live."""

    model: str
    dilation: float


class _Plan(msgspec.Struct):
    model: str


class Lost(Unavailable):
    """The connection was lost, or never came about: nobody refused anything."""


class GenerateClient(RouterConnection):
    """Every method raises StagelineError, never a gRPC error."""

    async def live(self) -> LiveFacts:
        """What is served. Raises Unavailable when nothing is."""
        try:
            reply = await self._stub.Status(
                router_pb2.StatusRequest(), timeout=grpc_options.CALL_S, metadata=self._metadata
            )
        except aio.AioRpcError as error:
            raise self._error(error) from None
        if not reply.live.dilation:
            raise Unavailable(f"{self.place} serves no live requests; start it with stageline up")
        return LiveFacts(msgspec.json.decode(reply.plan, type=_Plan).model, reply.live.dilation)

    async def generate(self, request: Generate) -> AsyncIterator[Piece | Finished]:
        """The output as it comes, then how it ended. Leaving the iteration cancels the request."""
        call = self._stub.Generate(
            router_pb2.GenerateRequest(**msgspec.structs.asdict(request)), metadata=self._metadata
        )
        try:
            while isinstance(reply := await call.read(), router_pb2.GenerateReply):
                if reply.HasField("finished"):
                    names = Finished.__struct_fields__
                    yield Finished(**{name: getattr(reply.finished, name) for name in names})
                else:
                    yield Piece(reply.text, reply.tokens)
        except aio.AioRpcError as error:
            raise self._error(error) from None
        finally:
            call.cancel()

    def _error(self, error: aio.AioRpcError) -> StagelineError:
        found = error_from(error, self.place)
        return Lost(str(found)) if is_transport(error) and isinstance(found, Unavailable) else found
