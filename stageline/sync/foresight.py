"""The router of a live session knows when a microbatch will be back before its frame is (design: mirroring).

Everything that decides a completion time leaves through the router, so its own copy of the stages computes the same
time. Without it an arrival would have to wait, in wall time, until whatever is in flight has really come back. The
frame is still the result: a stage that computes another time has broken a law.
"""

from collections import deque

from stageline.engine.conductor import Conductor
from stageline.engine.heap import HeapStages
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.stage import Stage
from stageline.engine.types import NEVER, Source, StageObserver
from stageline.errors import LawBroken


class MirroredPipe(HeapStages):
    """The stages and links of one replica."""

    def __init__(self, route: Route, replica: int, seed: int, observer: StageObserver | None = None) -> None:
        super().__init__(route, 0, seed)
        self.stages = [[Stage(route, s, replica, seed, observer) for s in range(len(route.plan.stages))]]
        self.links = [[route.link(v, replica, seed) for v in range(1, route.visits + 1)]]
        self.completions: deque[int] = deque()  # of what is in flight, oldest first, as far as they are known

    def advance(self, until_ns: int) -> None:
        """Serve what arrives at shared stages before `until_ns`, and before the next completion."""
        while self.next_ns < until_ns and not self.completions:
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
    """A conductor whose bounds are the mirror's. `observer` is told what the stages will do, before they do it."""

    def __init__(self, router: Router, source: Source, seed: int, observer: StageObserver | None = None) -> None:
        self.pipes = [MirroredPipe(router.route, r, seed, observer) for r in range(len(router.replicas))]
        super().__init__(router, source)

    def bound_ns(self, replica: int) -> int:
        """See Conductor."""
        bound = super().bound_ns(replica)
        if self.returns[replica] or not self._in_flight[replica]:
            return bound
        pipe = self.pipes[replica]
        pipe.advance(min(self.next_arrival_ns, self.next_form_ns[replica]))
        return max(bound, pipe.bound_ns)

    @property
    def overdue_ns(self) -> int:
        """The earliest known completion that has not been acted on; NEVER when none is known.

        A bound would not do: it is as old as the last look at the source, and no completion may be due by then.
        """
        back = (q[0] for q in self.returns if q)
        foreseen = (p.completions[0] for p in self.pipes if p.completions)
        return min(*back, *foreseen, NEVER, NEVER)

    @property
    def blocked_ns(self) -> int:
        """The earliest thing to do that waits only for the source to know more; NEVER when there is none."""
        if self._known:
            return NEVER
        heads = (q[0] for q in self.returns if q)
        return min(*self.next_form_ns, *heads, NEVER)

    def _complete(self, r: int, now_ns: int) -> None:
        pipe = self.pipes[r]
        pipe.advance(now_ns)
        foreseen = pipe.completions.popleft() if pipe.completions else None
        if foreseen != now_ns:
            raise LawBroken(f"L8: replica {r}: a microbatch came back at {now_ns} ns, the mirror says {foreseen} ns")
        super()._complete(r, now_ns)

    def _form(self, r: int, now_ns: int) -> None:
        before = len(self.dispatched[r])
        super()._form(r, now_ns)
        if len(self.dispatched[r]) > before:
            pipe = self.pipes[r]
            pipe.completions += pipe.feed(0, self.dispatched[r][before:])
