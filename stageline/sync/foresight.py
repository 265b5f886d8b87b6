"""The router of a live session knows when a microbatch will be back before its frame is.

Everything that decides a completion time leaves through the router, so its own copy of the stages computes the same
time. Without it an arrival would have to wait, in wall time, until whatever is in flight has really come back.

Once emulated time has come to a completion, the router acts on it and need not wait for its frame: a host that is a few
milliseconds late with the frames is not late with the tokens. It runs ahead of the oldest frame that is out by at most
`ahead_ns`. The frame is still the result: a stage that computes another time has broken a law.
"""

from collections import deque
from collections.abc import Iterable

from stageline.engine.conductor import Conductor
from stageline.engine.heap import HeapStages
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.stage import Stage
from stageline.engine.types import NEVER, StageObserver, Workload
from stageline.errors import LawBroken

MAX_AHEAD = 64  # microbatches of a replica that were acted on and whose frames are out: what stages may have to queue


class PredictedPipeline(HeapStages):
    """The stages and links of one replica."""

    def __init__(self, route: Route, replica: int, seed: int, observer: StageObserver | None = None) -> None:
        super().__init__(route, 0, seed)
        self.stages = [[Stage(route, s, replica, seed, observer) for s in range(len(route.plan.stages))]]
        self.links = [[route.link(v, replica, seed) for v in range(1, route.visits + 1)]]
        self.completions: deque[int] = deque()  # of what is in flight, oldest first, as far as they are known

    def advance(self, until_ns: int) -> None:
        """Serve what arrives at shared stages before `until_ns`, and before the next completion."""
        while not self.completions and self.next_ns < until_ns:
            _, completion = self.step()
            if completion is not None:
                self.completions.append(completion)

    @property
    def bound_ns(self) -> int:
        """Nothing in flight completes before this."""
        if self.completions:
            return self.completions[0]
        return min(NEVER, self.next_ns + 1)


class ForesightedConductor(Conductor):
    """A conductor whose bounds are the mirror's. `observer` is told what the stages will do, before they do it.

    `reached_ns` is how far emulated time has come, as its driver says; completions until then are acted on without
    their frames, but none later than `ahead_ns` after the first one whose frame has not come, and at most MAX_AHEAD.
    """

    def __init__(
        self, router: Router, workload: Workload, seed: int, observer: StageObserver | None = None, ahead_ns: int = 0
    ) -> None:
        self.pipes = [PredictedPipeline(router.route, r, seed, observer) for r in range(len(router.replicas))]
        self.reached_ns = -1
        self._ahead_ns = ahead_ns
        self._unconfirmed: list[deque[int]] = [deque() for _ in router.replicas]  # acted on, and their frames are out
        super().__init__(router, workload)

    def advance(self) -> None:
        """See Conductor."""
        self._run_ahead()
        super().advance()
        while self._run_ahead():
            super().advance()

    def returned(self, replica: int, arrivals_ns: Iterable[int]) -> None:
        """See Conductor. Raises LawBroken for a frame that says another time than was acted on."""
        unconfirmed = self._unconfirmed[replica]
        for arrival_ns in arrivals_ns:
            if not unconfirmed:
                self.returns[replica].append(arrival_ns)
            elif arrival_ns != unconfirmed[0]:
                raise _another_time(replica, arrival_ns, unconfirmed[0])
            else:
                unconfirmed.popleft()

    def bound_ns(self, replica: int) -> int:
        """See Conductor."""
        bound = super().bound_ns(replica)
        if self.returns[replica] or not self._in_flight[replica]:
            return bound
        pipe = self.pipes[replica]
        pipe.advance(min(self.next_arrival_ns, self.next_form_ns[replica]))
        return max(bound, pipe.bound_ns)

    @property
    def limit_ns(self) -> int:
        """Completions later than this wait for frames."""
        limit_ns = NEVER
        for unconfirmed in self._unconfirmed:
            if unconfirmed:
                limit_ns = min(limit_ns, unconfirmed[0] + self._ahead_ns)
        return limit_ns

    @property
    def foreseen_ns(self) -> int:
        """The next completion that can be acted on as soon as emulated time has come to it; NEVER: none is known."""
        next_ns = NEVER
        for r, pipe in enumerate(self.pipes):
            if pipe.completions and not self.returns[r] and self._may_run_ahead(r):
                next_ns = min(next_ns, pipe.completions[0])
        return next_ns if next_ns < NEVER and next_ns <= self.limit_ns else NEVER

    @property
    def overdue_ns(self) -> int:
        """The earliest known completion that has not been acted on, or whose frame is out; NEVER when none is known.

        A bound would not do: it is as old as the last look at the workload, and no completion may be due by then.
        """
        overdue_ns = NEVER
        for r, pipe in enumerate(self.pipes):
            for times_ns in (self.returns[r], pipe.completions, self._unconfirmed[r]):
                if times_ns:
                    overdue_ns = min(overdue_ns, times_ns[0])
        return overdue_ns

    @property
    def blocked_ns(self) -> int:
        """The earliest thing to do that waits only for the workload to know more; NEVER when there is none."""
        if self._known:
            return NEVER
        blocked_ns = min(self.next_form_ns)
        for returns in self.returns:
            if returns:
                blocked_ns = min(blocked_ns, returns[0])
        return blocked_ns

    def _may_run_ahead(self, r: int) -> bool:
        return len(self._unconfirmed[r]) < MAX_AHEAD

    def _run_ahead(self) -> bool:
        """Take completions that are due for returned; False: there are none."""
        until_ns, found = min(self.reached_ns, self.limit_ns), False
        for r, pipe in enumerate(self.pipes):
            if self.returns[r] or not self._in_flight[r] or not self._may_run_ahead(r):
                continue
            pipe.advance(min(self.next_arrival_ns, self.next_form_ns[r]))
            if pipe.completions and pipe.completions[0] <= until_ns:
                self.returns[r].append(pipe.completions[0])
                self._unconfirmed[r].append(pipe.completions[0])
                found = True
        return found

    def _complete(self, r: int, now_ns: int) -> None:
        pipe = self.pipes[r]
        pipe.advance(now_ns)
        foreseen = pipe.completions.popleft() if pipe.completions else None
        if foreseen != now_ns:
            raise _another_time(r, now_ns, foreseen)
        super()._complete(r, now_ns)

    def _form(self, r: int, now_ns: int) -> None:
        before = len(self.dispatched[r])
        super()._form(r, now_ns)
        if len(self.dispatched[r]) > before:
            pipe = self.pipes[r]
            pipe.completions += pipe.feed(0, self.dispatched[r][before:])


def _another_time(replica: int, found_ns: int, foreseen_ns: int | None) -> LawBroken:
    return LawBroken(
        f"L8: replica {replica}: a microbatch came back at {found_ns} ns, the mirror says {foreseen_ns} ns"
    )
