"""Sends a schedule, open loop or closed."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from stageline.engine.types import Cancellation
from stageline.load.clock import Clock
from stageline.load.conversation import Conversation, Prompts
from stageline.load.reply import Call, CallReply, Target
from stageline.load.retry import Retry
from stageline.load.sample import Sample
from stageline.load.schedule import Due, Schedule
from stageline.load.time_map import TimeMap
from stageline.report.distributions import Histogram

_MAX_BURST = 64  # calls started before the event loop runs other tasks


class Turns(msgspec.Struct, frozen=True):
    """Every request begins a conversation of `count` turns, `think_ns` of workload time apart."""

    count: int = 1
    think_ns: int = 0


class LoadProgress(msgspec.Struct):
    """The figures of the progress bar. `measured`: how much of the workload, or of its time, is done."""

    measured: Callable[[], float]
    sent: int = 0
    done: int = 0
    output_tokens: int = 0

    @property
    def fraction(self) -> float:
        """0 to 1."""
        return min(1.0, self.measured())

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return self.sent - self.done


class CallRecorder(Protocol):
    """Receives finished calls."""

    def gaps(self, due: Due) -> Histogram:
        """The histogram for the times between the chunks of a call."""
        ...

    def credit(self, time_ns: int, tokens: int) -> None:
        """Tokens that have come at this time of the run."""
        ...

    def record(self, sample: Sample, reply: CallReply) -> None:
        """Records a call that has ended."""
        ...


class Driver:
    """One run. Every started call is recorded, as incomplete if the run is cancelled before the call ends."""

    def __init__(
        self, schedule: Schedule, target: Target, clock: Clock, time_map: TimeMap, prompts: Prompts,
        recorder: CallRecorder, *, turns: Turns | None = None, retry: Retry | None = None,
    ) -> None:  # fmt: skip
        self._schedule, self._target, self._clock, self._time_map = schedule, target, clock, time_map
        self._prompts, self._recorder = prompts, recorder
        self._turns, self._retry = turns or Turns(), retry or Retry()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cancelled = set[int]()  # requests that the workload itself cancels
        self._burst = 0
        self._bug: BaseException | None = None
        self._ended = asyncio.Event()
        self.progress = LoadProgress(lambda: schedule.fraction(time_map.workload_ns(clock.now_ns())))

    async def run(self) -> None:
        """Returns when the workload is over and every call has ended. Raises whatever a call raises: a bug."""
        try:
            while not self._bug and ((due_ns := self._schedule.next_due_ns()) is not None or self._tasks):
                self._ended.clear()
                if due_ns is None:
                    await self._ended.wait()
                    continue
                if await self._reached(self._time_map.wall_ns(due_ns)):
                    self._begin(self._schedule.take())
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._bug:
            raise self._bug

    async def _reached(self, at_ns: int) -> bool:
        """Waits until `at_ns`. False: a call of a closed loop has ended, so the schedule may have changed.

        Up to _MAX_BURST calls that are due already start without a pause.
        """
        self._burst += 1
        if at_ns <= self._clock.now_ns() and self._burst < _MAX_BURST:
            return True
        self._burst = 0
        woken = self._ended if self._schedule.reactive else None
        await self._clock.until(at_ns, woken)
        return woken is None or not woken.is_set()

    def _begin(self, due: Due | Cancellation) -> None:
        if isinstance(due, Cancellation):
            if task := self._tasks.get(due.index):
                self._cancelled.add(due.index)
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
        elif index in self._cancelled:
            self._cancelled.remove(index)
            self._schedule.finished(index, self._time_map.workload_ns(self._clock.now_ns()))

    async def _converse(self, due: Due) -> None:
        """Sends all turns of one conversation; the first that fails ends it."""
        request, time_map = due.request, self._time_map
        conversation = self._prompts.conversation(request)
        intended_ns, wait_ns = time_map.wall_ns(due.due_ns), 0
        for turn in range(self._turns.count):
            more = turn + 1 < self._turns.count
            reply = CallReply(gaps=self._recorder.gaps(due), keep_text=more, credit=self._credit)
            await self._call(due, turn, conversation, reply, intended_ns)
            wait_ns = reply.retry_after_ns
            if reply.outcome != "finished" or not more:
                break
            conversation.add_reply("".join(reply.text), reply.produced_tokens)
            intended_ns = reply.end_ns + time_map.stretched_ns(self._turns.think_ns)
            await self._clock.until(intended_ns)
        self._schedule.finished(request.index, time_map.workload_ns(self._clock.now_ns() + wait_ns))

    async def _call(self, due: Due, turn: int, conversation: Conversation, reply: CallReply, intended_ns: int) -> None:
        request, progress = due.request, self.progress
        prompt = conversation.next_prompt()
        call = Call(
            prompt=prompt,
            prompt_tokens=conversation.prompt_tokens,
            output_tokens=request.output_tokens,
            max_output_tokens=request.max_output_tokens,
            priority=request.priority,
            model=request.model,
            conversation=request.conversation or (f"session-{request.index}" if self._turns.count > 1 else ""),
        )
        progress.sent += 1
        try:
            await self._target.send(call, reply)
            while (wait_ns := self._retry.wait_ns(reply, request.index, turn)) is not None:
                reply.again()
                await self._clock.until(reply.end_ns + wait_ns)
                await self._target.send(call, reply)
        except asyncio.CancelledError:
            reply.end("cancelled" if request.index in self._cancelled else "incomplete", "cancelled by the client")
            reply.end_ns = self._clock.now_ns()
            raise
        finally:
            progress.done += 1
            reply.settle()
            self._recorder.record(self._sample(due, turn, call, reply, intended_ns), reply)

    def _credit(self, now_ns: int, tokens: int) -> None:
        self.progress.output_tokens += tokens
        self._recorder.credit(now_ns - self._time_map.start_ns, tokens)

    def _sample(self, due: Due, turn: int, call: Call, reply: CallReply, intended_ns: int) -> Sample:
        start_ns, emulated = self._time_map.start_ns, reply.emulated
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
            retries=reply.retries,
            retry_wait_ns=reply.retry_wait_ns,
            server_queue_ns=emulated.queue_ns if emulated else None,
            server_ttft_ns=emulated.ttft_ns if emulated else None,
            server_e2e_ns=emulated.e2e_ns if emulated else None,
            server_arrival_ns=emulated.arrival_ns if emulated else None,
        )


def _since(time_ns: int | None, start_ns: int) -> int | None:
    return None if time_ns is None else time_ns - start_ns
