"""A clock and a target that tests control."""

import asyncio
import heapq
from itertools import count

from stageline.load.reply import Call, CallReply


class ManualClock:
    """A Clock that stands still until `advance`; waiters wake in the order of their times."""

    def __init__(self) -> None:
        self.time_ns = 0
        self._waiting: list[tuple[int, int, asyncio.Event]] = []
        self._number = count()

    def now_ns(self) -> int:
        """See Clock."""
        return self.time_ns

    async def until(self, at_ns: int, woken: asyncio.Event | None = None) -> None:
        """See Clock."""
        due = asyncio.Event()
        heapq.heappush(self._waiting, (at_ns, next(self._number), due))
        waits = [asyncio.ensure_future(event.wait()) for event in (due, woken) if event is not None]
        if at_ns <= self.time_ns:
            due.set()
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def advance(self, to_ns: int) -> None:
        """Advances to a time, with a stop at each waiter's time until all its consequences have happened."""
        await settle()
        while self._waiting and self._waiting[0][0] <= to_ns:
            at_ns, _, due = heapq.heappop(self._waiting)
            self.time_ns = max(self.time_ns, at_ns)
            due.set()
            await settle()
        self.time_ns = max(self.time_ns, to_ns)
        await settle()


async def settle() -> None:
    """Runs every task that can run without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


class Manual:
    """A Target whose calls stay open until the test answers them, in the order of sending."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.calls: list[Call] = []
        self.sent_ns: list[int] = []
        self._open: list[tuple[CallReply, asyncio.Event]] = []

    async def send(self, call: Call, reply: CallReply) -> None:
        """See Target."""
        reply.sent(self._clock.now_ns())
        self.calls.append(call)
        self.sent_ns.append(self._clock.now_ns())
        answered = asyncio.Event()
        self._open.append((reply, answered))
        await answered.wait()
        reply.end_ns = self._clock.now_ns()

    async def answer(self, tokens: int = 1, *, outcome: str = "finished", retry_after_ns: int = 0) -> None:
        """Ends the oldest open call."""
        reply, answered = self._open.pop(0)
        for _ in range(tokens if outcome == "finished" else 0):
            reply.chunk(self._clock.now_ns(), "word")
        reply.end(outcome, "" if outcome == "finished" else outcome)  # type: ignore[arg-type]
        reply.retry_after_ns = retry_after_ns
        answered.set()
        await settle()
