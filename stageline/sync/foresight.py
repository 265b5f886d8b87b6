"""Lookahead of a live router: it predicts when a microbatch will be back, before its frame arrives.

Everything that decides a completion time leaves through the router, so the router's own copy of the stages computes the
same time. Without it an arrival would have to wait, in wall time, until whatever is in flight has really come back.

Once emulated time has reached a predicted completion, the router acts on it without its frame: a host whose frames
are a few milliseconds late does not make the tokens late. The router runs ahead of the oldest outstanding frame by at
most `ahead_ns`. The frame is still the result: a stage that computes another time breaks a law.
"""

import heapq
from collections import deque
from collections.abc import Iterable

from stageline.engine.conductor import Conductor
from stageline.engine.heap_pipeline import HeapPipeline
from stageline.engine.microbatch import Item
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet
from stageline.engine.types import NEVER, StageObserver, Workload
from stageline.errors import LawBroken

MAX_AHEAD = 64  # microbatches per replica acted on before their frames arrive: what stages may have to queue


class PredictedPipeline:
    """The router's copy of one replica's stages and links, with the completions that it has computed."""

    def __init__(self, route: Route, replica: int, seed: int, observer: StageObserver | None = None) -> None:
        self._pipeline = HeapPipeline(route, replica, seed, observer)
        self.completions: deque[int] = deque()  # of what is in flight, oldest first, as far as computed

    def feed(self, items: list[Item]) -> None:
        """Take what the router dispatched."""
        self.completions += self._pipeline.feed(items)

    def advance(self, until_ns: int) -> None:
        """Serve what arrives at shared stages before `until_ns`, up to the next completion."""
        while not self.completions and self._pipeline.next_ns < until_ns:
            self.step()

    @property
    def next_ns(self) -> int:
        """When the next microbatch arrives at a shared stage."""
        return self._pipeline.next_ns

    def step(self) -> None:
        """Serve it."""
        completion = self._pipeline.step()
        if completion is not None:
            self.completions.append(completion)

    @property
    def bound_ns(self) -> int:
        """Lower bound on the next completion of what is in flight."""
        if self.completions:
            return self.completions[0]
        return min(NEVER, self._pipeline.next_ns + 1)


class Prediction:
    """A conductor's forecast: one predicted pipeline per replica. `observer` sees services before they happen."""

    def __init__(self, fleet: ServedFleet, seed: int, observer: StageObserver | None = None) -> None:
        self.pipelines = [PredictedPipeline(route, r, seed, observer) for r, route in enumerate(fleet.routes)]

    def bound_ns(self, replica: int, until_ns: int) -> int:
        """See Forecast."""
        pipeline = self.pipelines[replica]
        pipeline.advance(until_ns)
        return pipeline.bound_ns

    def dispatched(self, replica: int, items: list[Item]) -> None:
        """See Forecast."""
        self.pipelines[replica].feed(items)

    def advance_all(self, until_ns: int) -> None:
        """Serve what arrives anywhere before `until_ns`, in the order of time, up to the first completion of any."""
        heads = (pipeline.completions[0] for pipeline in self.pipelines if pipeline.completions)
        until_ns = min(until_ns, *heads, NEVER)
        arrivals = [(pipeline.next_ns, r) for r, pipeline in enumerate(self.pipelines) if pipeline.next_ns < until_ns]
        heapq.heapify(arrivals)
        while arrivals and arrivals[0][0] < until_ns:
            r = arrivals[0][1]
            pipeline = self.pipelines[r]
            pipeline.step()
            if pipeline.completions:
                until_ns = min(until_ns, pipeline.completions[0])
            heapq.heapreplace(arrivals, (pipeline.next_ns, r))

    def completed(self, replica: int, now_ns: int) -> None:
        """See Forecast."""
        pipeline = self.pipelines[replica]
        pipeline.advance(now_ns)
        predicted = pipeline.completions.popleft() if pipeline.completions else None
        if predicted != now_ns:
            raise _another_time(replica, now_ns, predicted)


class ForesightedConductor(Conductor):
    """A conductor that acts on predicted completions before their frames arrive.

    `reached_ns` is how far emulated time has come, set by its driver. Predicted completions up to then are processed
    without their frames, but none later than `ahead_ns` after the first one whose frame is outstanding (`acted_ns`, if
    that is later), and at most MAX_AHEAD per replica.
    """

    def __init__(
        self, router: Router, workload: Workload, seed: int, observer: StageObserver | None = None, ahead_ns: int = 0
    ) -> None:
        self._prediction = prediction = Prediction(router.fleet, seed, observer)
        self._pipelines = prediction.pipelines
        super().__init__(router, workload, prediction)
        self.reached_ns = -1
        self.acted_ns = -1  # a session that is done again acted on completions up to then before
        self._ahead_ns = ahead_ns
        self.unconfirmed: list[deque[int]] = [deque() for _ in router.replicas]  # processed, their frames outstanding

    def bound_ns(self, replica: int) -> int:
        """See Conductor."""
        if not self.reactive:
            return super().bound_ns(replica)
        if self.returns[replica]:
            return self.returns[replica][0]
        flight = self.in_flight[replica]
        if not flight:
            return NEVER
        trip_ns = self.router.fleet.route(replica).trip_ns
        return max(self.promised_ns[replica], flight[0] + trip_ns, self._pipelines[replica].bound_ns)

    def advance(self) -> None:
        """See Conductor."""
        self._run_ahead()
        super().advance()
        while self._run_ahead():
            super().advance()

    def returned(self, replica: int, arrivals_ns: Iterable[int]) -> None:
        """See Conductor. Raises LawBroken for a frame whose time differs from the one that was processed."""
        unconfirmed = self.unconfirmed[replica]
        for arrival_ns in arrivals_ns:
            if not unconfirmed:
                super().returned(replica, [arrival_ns])
            elif arrival_ns != unconfirmed[0]:
                raise _another_time(replica, arrival_ns, unconfirmed[0])
            else:
                unconfirmed.popleft()

    @property
    def limit_ns(self) -> int:
        """Completions later than this wait for frames."""
        limit_ns = NEVER
        for unconfirmed in self.unconfirmed:
            if unconfirmed:
                limit_ns = min(limit_ns, max(unconfirmed[0] + self._ahead_ns, self.acted_ns))
        return limit_ns

    @property
    def foreseen_ns(self) -> int:
        """The next completion to act on once emulated time reaches it; NEVER when none is predicted."""
        next_ns = NEVER
        for r in range(len(self.returns)):
            if self._may_run_ahead(r):
                next_ns = min(next_ns, self._foreseen_at_ns(r))
        return next_ns if next_ns < NEVER and next_ns <= self.limit_ns else NEVER

    @property
    def overdue_ns(self) -> int:
        """The earliest known completion that is not processed or whose frame is outstanding; NEVER when none is known.

        A bound would not do: it is as old as the last look at the workload, and no completion may be due by then.
        """
        overdue_ns = NEVER
        for r, pipeline in enumerate(self._pipelines):
            for times_ns in (self.returns[r], pipeline.completions, self.unconfirmed[r]):
                if times_ns:
                    overdue_ns = min(overdue_ns, times_ns[0])
        return overdue_ns

    def unknown_ns(self) -> int:
        """Lower bound on the completions that are not even computed yet; NEVER when all in flight are known."""
        unknown_ns = NEVER
        self._foresee_all()
        for r, pipeline in enumerate(self._pipelines):
            if self.in_flight[r] and not self.returns[r] and not pipeline.completions:
                bound_ns = self.bound_ns(r)
                if not pipeline.completions:
                    unknown_ns = min(unknown_ns, bound_ns)
        return unknown_ns

    @property
    def blocked_ns(self) -> int:
        """The earliest event that waits only for the workload to know more; NEVER when there is none."""
        if self.arrival_known:
            return NEVER
        completions_ns = [self._foreseen_at_ns(r) for r in range(len(self.returns))]
        first_ns = min(completions_ns)
        blocked_ns = self.router.next_due_ns if self.router.next_due_ns < first_ns else NEVER
        for r, returns in enumerate(self.returns):
            event_ns = min(self.next_form_ns[r], returns[0] if returns else NEVER)
            if event_ns < (first_ns if self.reactive else completions_ns[r]):  # else it waits for that completion
                blocked_ns = min(blocked_ns, event_ns)
        return blocked_ns

    def _foreseen_at_ns(self, r: int) -> int:
        """The next completion of a replica, if it is predicted and has not been taken as returned; else NEVER."""
        completions = self._pipelines[r].completions
        return completions[0] if completions and not self.returns[r] else NEVER

    def _may_run_ahead(self, r: int) -> bool:
        return len(self.unconfirmed[r]) < MAX_AHEAD

    def proceed(self) -> None:
        """See Conductor. Where replicas wait for each other, an event at one of them lets all see further."""
        super().proceed()
        while self.reactive and self._sees_further():
            super().proceed()

    def _sees_further(self) -> bool:
        """Bring all bounds up to date; whether the earliest of them has grown."""
        before_ns = self._agenda.unknown_ns()
        self._foresee_all()
        for r in range(len(self.returns)):
            self._changed(r)
        return self._agenda.unknown_ns() > before_ns

    def _foresee_all(self) -> None:
        """Where what happens at one replica may change what another one can do: compute up to the next such event."""
        if self.reactive:
            self._prediction.advance_all(self.own_event_ns)

    def _run_ahead(self) -> bool:
        """Take predicted completions that are due as returned; False when none is."""
        until_ns, found = min(self.reached_ns, self.limit_ns), False
        self._foresee_all()
        for r, pipeline in enumerate(self._pipelines):
            if self.returns[r] or not self.in_flight[r] or not self._may_run_ahead(r):
                continue
            if not self.reactive:
                pipeline.advance(min(self.next_arrival_ns, self.next_form_ns[r]))
            if pipeline.completions and pipeline.completions[0] <= until_ns:
                super().returned(r, [pipeline.completions[0]])
                self.unconfirmed[r].append(pipeline.completions[0])
                found = True
        return found


def _another_time(replica: int, found_ns: int, predicted_ns: int | None) -> LawBroken:
    return LawBroken(f"L8: replica {replica}: a microbatch came back at {found_ns} ns, predicted was {predicted_ns} ns")
