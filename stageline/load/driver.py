"""Sends a schedule: open loop or closed, whatever the target does."""

import asyncio
from typing import Protocol

import msgspec

from stageline.engine.types import Cancellation
from stageline.load.clock import Clock
from stageline.load.conversation import Conversation, Prompts
from stageline.load.pace import Pace
from stageline.load.reply import Call, Reply, Target
from stageline.load.sample import Sample
from stageline.load.schedule import Due, Schedule
from stageline.report.series import Histogram

_BURST = 64  # calls begun before those under way get their turn


class Turns(msgspec.Struct, frozen=True):
    """Every request of the workload begins a session of so many turns; `think_ns` (of the workload's clock) between."""

    count: int = 1
    think_ns: int = 0


class Progress(msgspec.Struct):
    """What a bar shows."""

    sent: int = 0
    done: int = 0
    output_tokens: int = 0
    fraction: float = 0.0

    @property
    def in_flight(self) -> int:
        """Calls without an end."""
        return self.sent - self.done


class Recorder(Protocol):
    """Who keeps what came back."""

    def gaps(self, due: Due) -> Histogram:
        """Where the times between two chunks of a call belong."""
        ...

    def record(self, sample: Sample, reply: Reply) -> None:
        """A call has ended."""
        ...


class Driver:
    """One run. Every call that was begun is recorded, also when the run is cancelled: then as incomplete."""

    def __init__(
        self, schedule: Schedule, target: Target, clock: Clock, pace: Pace, prompts: Prompts, recorder: Recorder, *,
        turns: Turns | None = None,
    ) -> None:  # fmt: skip
        self._schedule, self._target, self._clock, self._pace = schedule, target, clock, pace
        self._prompts, self._recorder = prompts, recorder
        self._turns = turns or Turns()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._left = set[int]()  # requests that the workload itself cancels
        self._burst = 0
        self._bug: BaseException | None = None
        self._ended = asyncio.Event()
        self.progress = Progress()

    async def run(self) -> None:
        """Until the workload is over and every call has ended."""
        try:
            while not self._bug and ((due_ns := self._schedule.next_due_ns()) is not None or self._tasks):
                self._ended.clear()
                if due_ns is None:
                    await self._ended.wait()
                    continue
                if await self._reached(self._pace.wall_ns(due_ns)):
                    self._begin(self._schedule.take())
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._bug:
            raise self._bug

    async def _reached(self, at_ns: int) -> bool:
        """Waits until something is due; False: a closed loop has to look again, since a call has ended.

        What is due already is begun without a pause, since others may be due with it, but not for ever.
        """
        self._burst += 1
        if at_ns <= self._clock.now_ns() and self._burst < _BURST:
            return True
        self._burst = 0
        woken = self._ended if self._schedule.reactive else None
        await self._clock.until(at_ns, woken)
        return woken is None or not woken.is_set()

    def _begin(self, due: Due | Cancellation) -> None:
        if isinstance(due, Cancellation):
            if task := self._tasks.get(due.index):
                self._left.add(due.index)
                task.cancel()
            return
        index = due.request.index
        task = asyncio.create_task(self._converse(due))
        self._tasks[index] = task
        task.add_done_callback(lambda t: self._done(index, t))

    def _done(self, index: int, task: "asyncio.Task[None]") -> None:
        del self._tasks[index]
        self._ended.set()
        if not task.cancelled():
            self._bug = self._bug or task.exception()
        elif index in self._left:
            self._left.remove(index)
            self._schedule.finished(index, self._pace.workload_ns(self._clock.now_ns()))

    async def _converse(self, due: Due) -> None:
        """All turns of one session; one that fails is its last."""
        request, pace = due.request, self._pace
        talk = self._prompts.conversation(request)
        intended_ns, wait_ns = pace.wall_ns(due.due_ns), 0
        for turn in range(self._turns.count):
            more = turn + 1 < self._turns.count
            reply = Reply(gaps=self._recorder.gaps(due), keep_text=more)
            await self._call(due, turn, talk, reply, intended_ns)
            wait_ns = reply.retry_after_ns
            if reply.outcome != "finished" or not more:
                break
            talk.hear("".join(reply.text), reply.produced_tokens)
            intended_ns = reply.end_ns + pace.stretched_ns(self._turns.think_ns)
            await self._clock.until(intended_ns)
        self._schedule.finished(request.index, pace.workload_ns(self._clock.now_ns() + wait_ns))

    async def _call(self, due: Due, turn: int, talk: Conversation, reply: Reply, intended_ns: int) -> None:
        request, progress = due.request, self.progress
        prompt = talk.say()
        call = Call(
            prompt=prompt,
            prompt_tokens=talk.prompt_tokens,
            output_tokens=request.output_tokens,
            max_output_tokens=request.max_output_tokens,
            priority=request.priority,
            session=request.session or (f"session-{request.index}" if self._turns.count > 1 else ""),
        )
        progress.sent += 1
        progress.fraction = self._schedule.fraction()
        try:
            await self._target.send(call, reply)
        except asyncio.CancelledError:
            reply.end("cancelled" if request.index in self._left else "incomplete", "cancelled by the client")
            reply.end_ns = self._clock.now_ns()
            raise
        finally:
            progress.done += 1
            progress.output_tokens += reply.produced_tokens
            self._recorder.record(self._sample(due, turn, call, reply, intended_ns), reply)

    def _sample(self, due: Due, turn: int, call: Call, reply: Reply, intended_ns: int) -> Sample:
        start_ns, emulated = self._pace.start_ns, reply.emulated
        return Sample(
            index=due.request.index,
            turn=turn,
            step=due.step,
            warmup=due.warmup,
            intended_ns=intended_ns - start_ns,
            sent_ns=_since(reply.sent_ns, start_ns),
            first_ns=_since(reply.first_ns, start_ns),
            last_ns=_since(reply.last_ns, start_ns),
            end_ns=reply.end_ns - start_ns,
            asked_prompt_tokens=call.prompt_tokens,
            prompt_tokens=reply.prompt_tokens,
            asked_output_tokens=call.output_tokens,
            output_tokens=reply.produced_tokens,
            chunks=reply.chunks,
            outcome=reply.outcome,
            reason=reply.reason,
            server_queue_ns=emulated.queue_ns if emulated else None,
            server_ttft_ns=emulated.ttft_ns if emulated else None,
            server_e2e_ns=emulated.e2e_ns if emulated else None,
        )


def _since(time_ns: int | None, start_ns: int) -> int | None:
    return None if time_ns is None else time_ns - start_ns
