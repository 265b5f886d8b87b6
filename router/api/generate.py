"""Router.Generate: live mode over gRPC."""

import asyncio
from typing import Any

import msgspec
from grpc import aio

from router.api.generation import GenerationParams, checked_stops
from router.api.prompts import PromptReader
from router.live.service import Choice, LiveService
from router.live.stream import MAX_TOKENS_AT_ONCE, STALL_S
from router.live.supervisor import LiveSupervisor
from stageline.errors import Busy, Unavailable
from stageline.report.spans.context import TRACEPARENT, TRACESTATE, parse_traceparent
from stageline.runtime.names import session_name
from stageline.v1 import router_pb2

LARGE_PROMPT = 64 << 10  # characters or ids
GenerateContext = aio.ServicerContext[Any, Any]


async def generate(service: LiveService | None, request: router_pb2.GenerateRequest, context: GenerateContext) -> None:
    """See router.proto. Waits for a slow client; tokens that it has not read are only a count here.

    Raises the StagelineError that the call ends with.
    """
    if service is None:
        raise Unavailable("this router serves no live requests; start it with --live")
    model = service.models.find(request.model)
    metadata = dict(context.invocation_metadata() or ())
    parent = parse_traceparent(_text(metadata.get(TRACEPARENT)), _text(metadata.get(TRACESTATE)))
    params_list = [await _params(model.reader, request)]
    reply = await service.submit(
        model, params_list, 1, priority=request.priority, conversation=request.session, parent=parent,
        gaps=request.token_gaps,
    )  # fmt: skip
    try:
        choice, sent = reply.choices[0], 0
        while not (choice.stream.ended and sent == choice.stream.tokens):
            if sent == choice.stream.tokens:
                await reply.wait()
            due = min(choice.stream.tokens, sent + MAX_TOKENS_AT_ONCE)
            if due > sent:
                text = choice.output.text(sent, due)
                await _write(context, router_pb2.GenerateReply(text=text, tokens=due - sent))
                sent = due
        if choice.stream.error:
            raise choice.stream.error
        await _write(context, router_pb2.GenerateReply(finished=_finished(choice, service.dilation)))
    finally:
        reply.close()


async def _write(context: GenerateContext, reply: router_pb2.GenerateReply) -> None:
    """Raises Busy for a client that reads nothing for STALL_S."""
    try:
        async with asyncio.timeout(STALL_S):
            await context.write(reply)
    except TimeoutError:
        raise Busy(f"the client read nothing for {STALL_S:g} s") from None


async def _params(reader: PromptReader, request: router_pb2.GenerateRequest) -> GenerationParams:
    """The params; a long prompt is counted beside the event loop."""
    if len(request.prompt) + len(request.prompt_ids) > LARGE_PROMPT:
        return await asyncio.to_thread(params_of, request, reader)
    return params_of(request, reader)


def params_of(request: router_pb2.GenerateRequest, reader: PromptReader) -> GenerationParams:
    """The params of a request."""
    reader.check(len(request.prompt_ids))
    ids, text = list(request.prompt_ids), request.prompt
    count = request.prompt_tokens or len(ids) or reader.count(text)
    return GenerationParams(
        prompt=msgspec.json.encode(ids) if ids else text.encode(),
        prompt_tokens=count,
        ids=tuple(ids),
        prompt_text=text or None,
        max_tokens=request.max_tokens,
        min_tokens=request.min_tokens,
        exact_tokens=request.output_tokens,
        ignore_eos=request.ignore_eos,
        stop=checked_stops(request.stop),
        seed=request.seed,
    )


def live_state(supervisor: LiveSupervisor) -> router_pb2.LiveState:
    """The state of the live session, for Status."""
    session = supervisor.session
    return router_pb2.LiveState(
        session=session_name(session.id) if session else "",
        dilation=supervisor.options.dilation,
        requests=session.requests if session else 0,
        slip_ns=session.clock.slip_ns if session else 0,
        last_digest=supervisor.last_digest,
        reason=supervisor.degraded if supervisor.ready else supervisor.why_not,
    )


def _text(value: str | bytes | None) -> str:
    return value if isinstance(value, str) else ""


def _finished(choice: Choice, dilation: float) -> router_pb2.Finished:
    record = choice.stream.record
    assert record is not None
    return router_pb2.Finished(
        reason=choice.output.reason,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        dilation=dilation,
        queue_ns=(record.admitted_ns or record.arrival_ns) - record.arrival_ns,
        ttft_ns=(record.first_token_ns or record.arrival_ns) - record.arrival_ns,
        e2e_ns=(record.last_token_ns or record.arrival_ns) - record.arrival_ns,
        arrival_ns=record.arrival_ns,
        token_gap_ns=choice.stream.gaps_ns,
    )
