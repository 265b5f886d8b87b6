"""Sends calls over gRPC, to Stageline's own router."""

import asyncio
from fractions import Fraction

import msgspec

from stageline.errors import Busy, StagelineError, Unavailable
from stageline.load.clock import Clock
from stageline.load.probe import ServerFacts
from stageline.load.reply import RETRY_NS, Call, CallReply, Emulated
from stageline.wire.connection import ConnectionLost
from stageline.wire.generate import Finished, Generate, GenerateClient

_IDS = msgspec.json.Decoder(list[int])


class GrpcTarget:
    """A Target. All calls share one connection; at most `connections` run at once, as over HTTP."""

    def __init__(self, client: GenerateClient, clock: Clock, *, model: str, connections: int, timeout_s: float) -> None:
        """`model`: the one that is served."""
        self._client, self._clock, self._model = client, clock, model
        self._slots = asyncio.Semaphore(connections)
        self._timeout_s = timeout_s

    async def send(self, call: Call, reply: CallReply) -> None:
        """See Target."""
        if call.model and call.model != self._model:
            reply.end("failed", "another model", f"calls over gRPC go to {self._model}: use --url for {call.model}")
            reply.end_ns = self._clock.now_ns()
            return
        async with self._slots:
            reply.sent(self._clock.now_ns())
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._exchange(call, reply)
            except TimeoutError:
                reply.end("failed", "timeout", f"no complete reply after {self._timeout_s:g} s")
            except ConnectionLost as error:
                reply.end("failed", "cut" if reply.chunks else "unreachable", str(error))
                reply.retry_after_ns = RETRY_NS
            except StagelineError as error:
                rejected = isinstance(error, Busy | Unavailable) and not reply.chunks
                reply.end("rejected" if rejected else "failed", error.grpc_code, str(error))
                reply.retry_after_ns = RETRY_NS if rejected else 0
        reply.end_ns = self._clock.now_ns()

    async def _exchange(self, call: Call, reply: CallReply) -> None:
        request = Generate(
            prompt_ids=_IDS.decode(call.prompt),
            output_tokens=call.output_tokens,
            max_tokens=call.max_output_tokens,
            priority=call.priority,
            session=call.conversation,
            token_gaps=True,
        )
        async for part in self._client.generate(request):
            if isinstance(part, Finished):
                reply.prompt_tokens, reply.output_tokens = part.prompt_tokens, part.output_tokens
                reply.emulated = Emulated(part.queue_ns, part.ttft_ns, part.e2e_ns, part.arrival_ns, part.token_gap_ns)
                reply.dilation = f"{part.dilation:.12f}"
                reply.end("finished")
            elif part.tokens:
                reply.chunk(self._clock.now_ns(), part.text, part.tokens)
        if reply.outcome != "finished":
            reply.end("failed", "cut", "the stream ended without its final message")


async def probe_grpc(client: GenerateClient) -> ServerFacts:
    """Asks the router what it serves. Raises Unavailable."""
    try:
        live = await client.live()
    except ConnectionLost as error:
        raise Unavailable(f"{error} Start one with stageline up, or correct --url") from None
    return ServerFacts(model=live.model, dilation=Fraction(live.dilation).limit_denominator(10**9))
