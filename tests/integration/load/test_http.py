"""Calls over HTTP against a server that misbehaves on demand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.errors import BadInput, Busy, ProtocolError, Unavailable, UsageError
from stageline.load.body import Bodies
from stageline.load.clock import WallClock
from stageline.load.conversation import Template
from stageline.load.grpc import GrpcTarget
from stageline.load.http import HttpTarget, open_http, retry_after_ns
from stageline.load.options import checked_url
from stageline.load.probe import ServerFacts, probe
from stageline.load.reply import Call, CallReply, Emulated
from stageline.load.sse import MAX_EVENT_LINE_BYTES, EventReader, decode_chunk
from stageline.report.distributions import Histogram
from stageline.units import NS_PER_S
from stageline.wire.channels import Dialer
from stageline.wire.generate import GenerateClient
from tests.fake_openai import Fake, serving

CALL = Call(prompt=b"[1,2,3]", prompt_tokens=3, output_tokens=8, max_output_tokens=8)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def target(
    fake: Fake, *, chat: bool = False, connections: int = 8, timeout_s: float = 60
) -> AsyncIterator[HttpTarget]:
    """A target that sends to the fake server."""
    async with serving(fake), open_http() as session:
        path = "/v1/chat/completions" if chat else "/v1/completions"
        bodies = Bodies("fake", chat=chat)
        yield HttpTarget(
            session, fake.url + path, bodies, WallClock(), connections=connections, timeout_s=timeout_s, stageline=True
        )


async def reply_to(fake: Fake, call: Call = CALL, **how: bool) -> CallReply:
    """The reply to one call."""
    reply = CallReply(gaps=Histogram(), keep_text=True)
    async with target(fake, **how) as there:
        await there.send(call, reply)
    return reply


async def test_a_whole_stream() -> None:
    fake = Fake(dilation="2.5", emulated={"queue_s": 0.25, "ttft_s": 0.5, "e2e_s": 1.25})
    reply = await reply_to(fake)
    assert (reply.outcome, reply.chunks, reply.output_tokens, reply.prompt_tokens) == ("finished", 8, 8, 3)
    assert reply.emulated == Emulated(NS_PER_S // 4, NS_PER_S // 2, 5 * NS_PER_S // 4)
    assert reply.dilation == "2.5"
    assert reply.gaps.count == 7
    assert reply.sent_ns is not None and reply.first_ns is not None and reply.last_ns is not None
    assert reply.sent_ns < reply.first_ns <= reply.last_ns <= reply.end_ns
    assert "".join(reply.text) == "word" + " word" * 7


async def test_a_chat_is_read_the_same() -> None:
    reply = await reply_to(Fake(), msgspec.structs.replace(CALL, prompt=b'[{"role":"user","content":"x"}]'), chat=True)
    assert (reply.outcome, reply.chunks) == ("finished", 8)


async def test_the_body_of_a_request() -> None:
    fake = Fake()
    await reply_to(fake, msgspec.structs.replace(CALL, max_output_tokens=20, conversation='a"b', priority=3))
    (body,) = fake.calls
    assert body == {
        "model": "fake", "stream": True, "stream_options": {"include_usage": True}, "temperature": 0,
        "ignore_eos": True, "max_tokens": 20, "min_tokens": 8, "priority": 3, "user": 'a"b', "prompt": [1, 2, 3],
    }  # fmt: skip
    assert fake.headers[0]["x-stageline-output-tokens"] == "8"
    await reply_to(fake, msgspec.structs.replace(CALL, model='an"other'))
    assert fake.calls[1]["model"] == 'an"other'


@pytest.mark.parametrize(
    ("fault", "outcome", "reason", "chunks"),
    [
        ("cut", "failed", "cut", 5),
        ("error", "failed", "error event", 5),
        ("garbage", "failed", "no event stream", 5),
        ("drop", "failed", "disconnected", 0),
        ("refuse", "rejected", "HTTP 429", 0),
    ],
)
async def test_every_way_to_fail_has_its_own_reason(fault: str, outcome: str, reason: str, chunks: int) -> None:
    reply = await reply_to(Fake(misbehave=lambda number: fault))
    assert (reply.outcome, reply.reason, reply.chunks) == (outcome, reason, chunks)
    assert reply.detail
    assert reply.end_ns > 0


async def test_a_refusal_for_another_reason_has_failed() -> None:
    reply = await reply_to(Fake(misbehave=lambda number: "refuse", status=400, retry_after="3"))
    assert (reply.outcome, reply.reason, reply.detail, reply.retry_after_ns) == ("failed", "HTTP 400", "too many", 0)


async def test_a_server_that_is_not_ready_sends_retry_after() -> None:
    reply = await reply_to(Fake(misbehave=lambda number: "refuse", status=503, retry_after="3"))
    assert (reply.outcome, reply.retry_after_ns) == ("rejected", 3 * NS_PER_S)


async def test_a_call_that_does_not_end_fails_at_its_timeout() -> None:
    reply = CallReply(gaps=Histogram())
    async with target(Fake(misbehave=lambda number: "hang"), timeout_s=0.3) as there:
        await there.send(CALL, reply)
    assert (reply.outcome, reply.reason) == ("failed", "timeout")


async def test_no_more_calls_at_once_than_connections() -> None:
    fake = Fake(gate=asyncio.Event())
    assert fake.gate is not None
    async with target(fake, connections=2) as there:
        replies = [CallReply(gaps=Histogram()) for _ in range(6)]
        sends = [asyncio.create_task(there.send(CALL, reply)) for reply in replies]
        while fake.at_once < 2:
            await asyncio.sleep(0)
        fake.gate.set()
        await asyncio.gather(*sends)
    assert fake.most_at_once == 2
    assert [reply.outcome for reply in replies] == ["finished"] * 6


async def test_calls_share_a_connection_one_after_the_other() -> None:
    """Also when the body's end comes after its last event."""
    fake = Fake(end=asyncio.Event())
    assert fake.end is not None
    async with target(fake) as there:
        first = CallReply(gaps=Histogram())
        sending = asyncio.create_task(there.send(CALL, first))
        while first.outcome != "finished":
            await asyncio.sleep(0)
        fake.end.set()
        await sending
        await there.send(CALL, CallReply(gaps=Histogram()))
    assert len(fake.calls) == 2
    assert len(fake.peers) == 1


async def test_a_connection_that_breaks_after_done_does_not_fail_the_call() -> None:
    reply = await reply_to(Fake(misbehave=lambda number: "abort after"))
    assert (reply.outcome, reply.reason, reply.chunks) == ("finished", "", 8)


async def test_a_port_where_nobody_listens() -> None:
    async with serving(Fake()) as fake:
        pass
    async with open_http() as session:
        reply = CallReply(gaps=Histogram())
        there = HttpTarget(session, fake.url, Bodies("m", chat=False), WallClock(), connections=1, timeout_s=9)
        await there.send(CALL, reply)
        assert (reply.outcome, reply.reason) == ("failed", "unreachable")
        assert reply.retry_after_ns == NS_PER_S  # a closed loop waits before it tries again
        with pytest.raises(Unavailable, match=r"no server answers at http://127.* start one with stageline up"):
            await probe(session, fake.url, "")


async def test_a_router_that_is_gone_is_waited_for_over_grpc() -> None:
    async with GenerateClient("127.0.0.1:1", Dialer()) as client:
        reply = CallReply(gaps=Histogram())
        await GrpcTarget(client, WallClock(), model="m", connections=1, timeout_s=9).send(CALL, reply)
    assert (reply.outcome, reply.reason, reply.retry_after_ns) == ("failed", "unreachable", NS_PER_S)


async def test_a_call_for_another_model_is_not_sent_over_grpc() -> None:
    async with GenerateClient("127.0.0.1:1", Dialer()) as client:
        reply = CallReply(gaps=Histogram())
        call = msgspec.structs.replace(CALL, model="other")
        await GrpcTarget(client, WallClock(), model="m", connections=1, timeout_s=9).send(call, reply)
    assert (reply.outcome, reply.reason, reply.sent_ns) == ("failed", "another model", None)
    assert "calls over gRPC go to m: use --url for other" in reply.detail


async def asked(fake: Fake, model: str = "") -> ServerFacts:
    """What the probe finds at the fake server."""
    async with serving(fake), open_http() as session:
        return await probe(session, fake.url, model)


async def test_the_probe_learns_model_and_dilation() -> None:
    assert await asked(Fake(models=("a", "b"), dilation="0.5")) == ServerFacts(model="a", dilation=Fraction(1, 2))
    assert await asked(Fake(), "mine") == ServerFacts(model="mine", dilation=None)


async def test_the_probe_learns_the_chat_template() -> None:
    for template, found in [((5, 9), Template(5, 9)), (None, Template())]:
        async with serving(Fake(template=template)) as fake, open_http() as session:
            assert (await probe(session, fake.url, "", chat=True)).template == found


async def test_the_probe_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match="--model"):
        await asked(Fake(models=()))
    with pytest.raises(UsageError, match="--api-key"):
        await asked(Fake(api_key="k"))
    with pytest.raises(Busy, match=r"is not ready: stage 3 is down; try again later"):
        await asked(Fake(not_ready="stage 3 is down"))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2), ("0.5", 0.5), ("", 1), ("soon", 1), ("-3", 1), ("999999", 3600),
        ("Tue, 01 Jan 2030 00:00:07 GMT", 7), ("Tue, 01 Jan 2019 00:00:00 GMT", 0),
    ],
)  # fmt: skip
def test_retry_after(text: str, seconds: float) -> None:
    assert retry_after_ns(text, NOW) == seconds * NS_PER_S


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9).filter(lambda b: b == b.strip() and b"\n" not in b)), st.data())
def test_events_are_the_same_however_the_network_cuts_them(payloads: list[bytes], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([b"\n\n", b"\r\n\r\n"]))
    stream = b": hello" + end + b"".join(b"event: x\ndata: " + p + end for p in payloads)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=9)))
    reader, found = EventReader(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:stop])
    assert found == payloads


def test_odd_chunks_are_read() -> None:
    usage = decode_chunk(b'{"choices":null,"usage":{"prompt_tokens":1,"completion_tokens":2}}')
    assert (usage.choices, usage.usage and usage.usage.completion_tokens) == (None, 2)
    tool = decode_chunk(b'{"choices":[{"delta":{"content":null,"tool_calls":[{"index":0}]}}]}')
    assert tool.choices and tool.choices[0].added()


def test_a_line_without_an_end_is_bounded() -> None:
    with pytest.raises(ProtocolError, match="event stream"):
        EventReader().feed(b"x" * (MAX_EVENT_LINE_BYTES + 1))


def test_extra_members() -> None:
    body = msgspec.json.decode(Bodies("m", chat=True, extra='{"top_p": 0.5, "temperature": 1}').of(CALL))
    assert (body["top_p"], body["temperature"], body["messages"]) == (0.5, 1, [1, 2, 3])
    for bad in ("[]", "{", '{"max_tokens": 3}'):
        with pytest.raises(BadInput, match="--extra-body"):
            Bodies("m", chat=True, extra=bad)


def test_without_ignore_eos_only_openais_members_are_sent() -> None:
    body = msgspec.json.decode(Bodies("m", chat=False, ignore_eos=False).of(CALL))
    assert body.keys().isdisjoint({"ignore_eos", "min_tokens"})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://h:8000", "http://h:8000"),
        ("https://h/api/v1/", "https://h/api"),
        ("http://h/v1", "http://h"),
        ("grpc://h:50051", "grpc://h:50051"),
    ],
)
def test_urls(text: str, url: str) -> None:
    assert checked_url(text) == url


@pytest.mark.parametrize(
    "text", ["localhost:8000", "h", "ftp://h", "http://", "http://h:99999", "http://h?x", "grpc://h"]
)
def test_texts_that_are_not_urls(text: str) -> None:
    with pytest.raises(BadInput, match="--url"):
        checked_url(text)
