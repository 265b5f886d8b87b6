"""When calls are sent and what their latencies count from, on a manual clock."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from fractions import Fraction

import msgspec
import pytest

from stageline.engine.types import Cancellation, Request
from stageline.load.conversation import ConversationKind, Prompts
from stageline.load.driver import Driver, Turns
from stageline.load.ramp import Ramp, Step, parse_ramp
from stageline.load.recorder import LoadRecorder
from stageline.load.reply import CallReply
from stageline.load.retry import Retry
from stageline.load.sample import Sample
from stageline.load.schedule import Schedule, Warmup, parse_warmup
from stageline.load.time_map import TimeMap
from stageline.report.distributions import Histogram
from stageline.workload import RowCounts, open_workload
from stageline.workload.workloads import IteratedWorkload
from tests.unit.load.manual import Manual, ManualClock, settle

MS = 1_000_000
ONE = (Step(Fraction(1), None),)


class Bench:
    """A driver whose clock and target the test controls."""

    def __init__(
        self, spec: str, *, dilation: str = "1", ramp: str = "", turns: int = 1, think_ns: int = 0,
        kind: ConversationKind = "ids", warmup: str = "0", duration_ns: int | None = None,
        workload: IteratedWorkload | None = None, retries: int = 0,
    ) -> None:  # fmt: skip
        self.clock = ManualClock()
        self.clock.time_ns = 7_000  # no clock begins at zero
        self.target = Manual(self.clock)
        steps = parse_ramp(ramp) if ramp else ONE
        self.samples: list[Sample] = []
        self.recorder = LoadRecorder(len(steps), slo=None, dilation=None, slo_on_wall=True, directory=None)
        keep = self.recorder.record

        def record(sample: Sample, reply: CallReply) -> None:
            self.samples.append(sample)
            keep(sample, reply)

        self.recorder.record = record  # type: ignore[method-assign]
        workload = workload or open_workload(spec)
        self.driver = Driver(
            Schedule(workload, Ramp(steps), warmup=parse_warmup(warmup), duration_ns=duration_ns),
            self.target,
            self.clock,
            TimeMap(Fraction(dilation), 7_000),
            Prompts(kind, 0),
            self.recorder,
            turns=Turns(turns, think_ns),
            retry=Retry(retries, seed=1),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Bench"]:
        """The driver runs inside the context and must have ended at its end."""
        task = asyncio.create_task(self.driver.run())
        await settle()
        yield self
        await settle()
        assert task.done(), "the driver still waits"
        task.result()

    async def to(self, ms: float) -> None:
        """Time of the run."""
        await self.clock.advance(7_000 + round(ms * MS))

    def sent_ms(self) -> list[float]:
        """The times at which calls were sent."""
        return [(t - 7_000) / MS for t in self.target.sent_ns]


async def test_an_open_loop_sends_on_time_whatever_comes_back() -> None:
    async with Bench("constant:rate=100,requests=4,input=3,output=2").running() as b:
        await b.to(25)
        assert b.sent_ms() == [0, 10, 20]
        await b.to(100)
        assert b.sent_ms() == [0, 10, 20, 30]  # though none has been answered
        for _ in range(4):
            await b.target.answer(2)
    assert [s.outcome for s in b.samples] == ["finished"] * 4
    assert [s.wall_times().e2e_ns / MS for s in b.samples] == [100, 90, 80, 70]  # type: ignore[union-attr]


async def test_dilation_stretches_the_schedule() -> None:
    async with Bench("constant:rate=100,requests=3", dilation="5/2").running() as b:
        await b.to(49)
        assert b.sent_ms() == [0, 25]
        await b.to(50)
        assert b.sent_ms() == [0, 25, 50]
        for _ in range(3):
            await b.target.answer()


async def test_latency_counts_from_the_intended_start_when_the_client_is_late() -> None:
    """Calls that fell due while the event loop was busy are sent at once, and the delay counts as their latency."""
    async with Bench("constant:rate=100,requests=3").running() as b:
        b.clock.time_ns += 35 * MS  # the host did something else
        await b.to(35)
        for _ in range(3):
            await b.target.answer()
    assert [s.lag_ns / MS for s in b.samples] == [0, 25, 15]
    assert [s.wall_times().ttft_ns / MS for s in b.samples] == [35, 25, 15]  # type: ignore[union-attr]


async def test_a_closed_loop_waits_for_replies_and_thinks() -> None:
    async with Bench("closed:users=2,think=5ms,requests=4").running() as b:
        assert b.sent_ms() == [0, 0]
        await b.to(10)
        await b.target.answer()
        await b.to(14.9)
        assert len(b.sent_ms()) == 2
        await b.to(15)
        assert b.sent_ms() == [0, 0, 15]
        await b.target.answer()
        await b.to(20)
        await b.target.answer()
        await b.target.answer()
    assert b.sent_ms() == [0, 0, 15, 20]
    assert [s.lag_ns for s in b.samples] == [0] * 4


async def test_a_reply_in_a_closed_loop_wakes_the_driver_that_waits_for_a_later_one() -> None:
    async with Bench("closed:users=2,think=5ms,requests=4").running() as b:
        await b.to(1)
        await b.target.answer(outcome="rejected", retry_after_ns=100 * MS)  # its user waits 100 + 5 ms
        await b.to(2)
        await b.target.answer()
        await b.to(7)
        assert b.sent_ms() == [0, 0, 7]
        await b.to(106)
        assert b.sent_ms() == [0, 0, 7, 106]
        await b.target.answer()
        await b.target.answer()
    assert [s.outcome for s in b.samples] == ["rejected", *["finished"] * 3]


async def test_rate_steps_mark_their_calls() -> None:
    async with Bench("constant:rate=100,requests=6", ramp="0.5:40ms,2").running() as b:
        await b.to(100)
        for _ in range(6):
            await b.target.answer()
    assert b.sent_ms() == [0, 20, 40, 45, 50, 55]
    assert [s.step for s in b.samples] == [0, 0, 1, 1, 1, 1]
    assert [part.tally.calls for part in b.recorder.steps] == [2, 4]


async def test_warm_up_is_sent_and_left_out() -> None:
    async with Bench("constant:rate=100,requests=5", warmup="15ms").running() as b:
        await b.to(100)
        for _ in range(5):
            await b.target.answer(3)
    assert [s.warmup for s in b.samples] == [True, True, False, False, False]
    assert b.recorder.warmup_calls == 2
    assert b.recorder.total.tally.calls == 3
    assert b.recorder.steps[0].gaps.count == 6


async def test_nothing_due_after_the_duration_is_sent() -> None:
    async with Bench("constant:rate=100,requests=50", duration_ns=30 * MS).running() as b:
        await b.to(1000)
        assert b.sent_ms() == [0, 10, 20]
        for _ in range(3):
            await b.target.answer()


async def test_each_turn_sends_the_whole_conversation() -> None:
    async with Bench("constant:rate=1,requests=1,input=4,output=2", turns=3, think_ns=2 * MS).running() as b:
        await b.to(10)
        await b.target.answer(2)
        await b.to(12)
        await b.target.answer(2)
        await b.to(20)
        await b.target.answer(2)
    assert b.sent_ms() == [0, 12, 14]
    first, second, third = (msgspec.json.decode(call.prompt) for call in b.target.calls)
    assert [len(first), len(second), len(third)] == [4, 4 + 2 + 4, 10 + 2 + 4]
    assert second[:4] == first
    assert third[:10] == second
    assert [call.prompt_tokens for call in b.target.calls] == [4, 10, 16]
    assert {call.conversation for call in b.target.calls} == {"session-0"}
    assert [(s.turn, s.intended_ns / MS) for s in b.samples] == [(0, 0), (1, 12), (2, 14)]


async def test_a_failed_turn_ends_its_conversation() -> None:
    async with Bench("constant:rate=1,requests=1", turns=3).running() as b:
        await b.target.answer(outcome="failed")
    assert [s.outcome for s in b.samples] == ["failed"]


def rows(*entries: Request | Cancellation) -> IteratedWorkload:
    """A workload of exactly these events."""

    def each() -> Iterator[Request]:
        yield from entries  # type: ignore[misc]

    workload = IteratedWorkload(each(), description="rows", counts=RowCounts(), fraction=lambda: 0.5)
    times = {id(e): e.at_ns if isinstance(e, Cancellation) else e.arrival_ns for e in entries}
    workload.next_arrival_ns = lambda: None if workload._head is None else times[id(workload._head)]  # type: ignore[method-assign]
    return workload


async def test_a_recorded_cancellation_ends_its_call() -> None:
    request = Request(index=0, arrival_ns=0, prompt_tokens=3, output_tokens=5, max_output_tokens=5)
    leaves = Cancellation(index=0, at_ns=10 * MS)
    late = Cancellation(index=0, at_ns=20 * MS)
    async with Bench("", workload=rows(request, leaves, late)).running() as b:
        await b.to(30)
    assert [s.outcome for s in b.samples] == ["cancelled"]
    assert b.samples[0].end_ns == 10 * MS


async def test_an_interrupted_run_records_the_calls_in_flight() -> None:
    b = Bench("constant:rate=100,requests=9")
    task = asyncio.create_task(b.driver.run())
    await b.to(15)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [s.outcome for s in b.samples] == ["incomplete"] * 2
    assert b.driver.progress.in_flight == 0


async def test_a_bug_ends_the_run() -> None:
    b = Bench("closed:users=1,requests=2")

    async def broken(call: object, reply: object) -> None:
        raise ZeroDivisionError

    b.target.send = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await b.driver.run()


def test_warm_up_by_number() -> None:
    assert [Warmup(requests=2).covers(i, i * MS) for i in range(3)] == [True, True, False]


async def test_a_refused_call_is_sent_again_when_the_server_asks_for_it_and_a_little_later() -> None:
    sent: list[list[float]] = []
    for _ in range(2):
        bench = Bench("constant:rate=1,requests=1,input=3,output=1", retries=2)
        async with bench.running() as b:
            await b.to(0)
            await b.target.answer(outcome="rejected", retry_after_ns=2_000 * MS)
            await b.to(1_999)
            assert len(b.target.calls) == 1
            await b.to(3_000)
            await b.target.answer(outcome="failed", retry_after_ns=1_000 * MS)  # no server: 1 s, not half a second
            await b.to(9_000)
            await b.target.answer(1)
        sent.append(b.sent_ms())
        (found,) = bench.samples
        assert (found.outcome, found.reason, found.retries) == ("finished", "", 2)
        assert (found.intended_ns, found.sent_ns) == (0, 0)
        assert found.retry_wait_ns == (b.sent_ms()[2]) * MS
        assert bench.recorder.total.tally.retries == 2
        assert bench.recorder.total.tally.retried_calls == 1
    first, second, third = sent[0]
    assert first == 0
    assert 2_000 <= second <= 3_000
    assert 1_000 <= third - 3_000 <= 1_500
    assert sent[0] == sent[1]


async def test_a_call_is_sent_again_so_often_and_never_after_its_first_token() -> None:
    bench = Bench("constant:rate=1,requests=1,input=3,output=1", retries=1)
    async with bench.running() as b:
        await b.to(0)
        for _ in range(2):
            await b.target.answer(outcome="rejected", retry_after_ns=1)
            await b.to(5_000)
    assert [(s.outcome, s.retries) for s in bench.samples] == [("rejected", 1)]
    reply = CallReply(gaps=Histogram())
    reply.chunk(1, "word")
    reply.end("failed", "cut")
    reply.retry_after_ns = 1
    assert Retry(5).wait_ns(reply, 0, 0) is None


async def test_tokens_count_when_they_come() -> None:
    bench = Bench("constant:rate=1,requests=1,input=3,output=5")
    async with bench.running() as b:
        await b.to(0)
        reply, answered = b.target._open.pop()
        for ms in (100, 600):
            await b.to(ms)
            reply.chunk(b.clock.now_ns(), "word")
        assert bench.driver.progress.output_tokens == 2
        await b.to(900)
        reply.output_tokens = 5  # as the server counts: the last chunk had four tokens
        reply.end("finished")
        answered.set()
    assert bench.driver.progress.output_tokens == 5
    assert [slice_.output_tokens for slice_ in bench.recorder.timeline.slices] == [1, 0, 4, 0]


async def test_time_drives_the_bar_where_time_ends_the_run() -> None:
    for how in ({"duration_ns": 1_000 * MS}, {"ramp": "1:500ms,2:500ms"}):
        bench = Bench("constant:rate=10,requests=1000,input=3,output=1", dilation="2", **how)
        async with bench.running() as b:
            await b.to(1_000)  # of wall time: half of the emulated second
            assert b.driver.progress.fraction == pytest.approx(0.5)
            await b.to(2_500)
            assert b.driver.progress.fraction == 1.0
            while b.target._open:
                await b.target.answer()
