"""What the router tells Prometheus of its own: figures of whatever activity on, read when they are scraped."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import stageline
from router.runs.session import RunSession
from stageline.engine.conductor import Conductor
from stageline.engine.router import Router
from stageline.plan.schema import Plan
from stageline.runtime import metric_names as names
from stageline.units import NS_PER_S


class Activity(Protocol):
    """A run or a live session."""

    @property
    def router(self) -> Router: ...
    @property
    def frames(self) -> tuple[int, int]: ...
    @property
    def conductor(self) -> Conductor: ...
    @property
    def lost_requests(self) -> int: ...
    @property
    def unseen_requests(self) -> int: ...


class RouterCollector(Collector):
    """Counters add up over runs and live sessions. `health`: which stages serve, by replica and stage."""

    def __init__(
        self,
        plan: Plan,
        health: Callable[[], dict[tuple[int, int], bool]],
        live: Callable[[], Activity | None] = lambda: None,
    ) -> None:
        self._plan, self._digest = plan, plan.digest()
        self._health, self._live = health, live
        self._run: RunSession | None = None
        self._seen: Activity | None = None
        self._past: Counter[tuple[str, ...]] = Counter()

    def on_session(self) -> None:
        """A live session has opened or ended: it counts, however rarely somebody scrapes."""
        self._current()

    def on_run(self, run: RunSession | None) -> None:
        """A run begins, or (None) the one before has ended."""
        self._run = run
        self._current()

    def collect(self) -> Iterable[Metric]:
        """The families; see docs/metrics.md."""
        activity = self._current()
        values = self._past + counts_of(activity) if activity else self._past
        for spec in _COUNTERS:
            yield spec.single(values[(spec.name,)])
        places = [(str(s), str(r)) for r in range(self._plan.replicas) for s in range(len(self._plan.stages))]
        yield names.KV_REFUSALS.family((place, values[names.KV_REFUSALS.name, *place]) for place in places)
        yield from self._gauges(activity)

    def _gauges(self, activity: Activity | None) -> Iterator[Metric]:
        plan, replicas = self._plan, activity.router.replicas if activity else []
        running = sum(len(r.running) for r in replicas)
        yield names.RUNNING.single(running)
        yield names.WAITING.single(len(activity.router.sequences) - running if activity else 0)
        yield names.EMULATED.single(activity.conductor.last_completion_ns / NS_PER_S if activity else 0)
        yield names.RUN_OPEN.single(int(self._run is not None))
        yield names.CREDITS.family(((str(r.index),), r.all_credits) for r in replicas)
        yield names.IN_FLIGHT.family(((str(r.index),), len(r.in_flight)) for r in replicas)
        yield names.STAGE_UP.family(((str(s), str(r)), float(up)) for (r, s), up in self._health().items())
        facts = (self._digest, plan.model, plan.device, *map(str, (len(plan.stages), len(plan.visits), plan.replicas)))
        yield names.PLAN_INFO.family([(facts, 1)])
        yield names.BUILD_INFO.family([((stageline.__version__,), 1)])

    def _current(self) -> Activity | None:
        """What is under way; the counts of what was before are kept once it is over."""
        activity = self._run or self._live()
        if activity is not self._seen:
            if self._seen:
                self._past += counts_of(self._seen)
            self._seen = activity
        return activity


_COUNTERS = (names.REQUESTS, names.FINISHED, names.FAILED, names.MICROBATCHES, names.FRAMES, names.FRAME_MICROBATCHES)


def counts_of(activity: Activity) -> Counter[tuple[str, ...]]:
    """The counters of one run or session, by metric and label values."""
    router = activity.router
    counts: Counter[tuple[str, ...]] = Counter()
    unseen = activity.unseen_requests
    counts[names.REQUESTS.name,] = router.arrived + unseen
    counts[names.FINISHED.name,] = router.finished
    counts[names.FAILED.name,] = router.failed + activity.lost_requests + unseen
    counts[names.MICROBATCHES.name,] = sum(r.formed for r in router.replicas)
    counts[names.FRAMES.name,], counts[names.FRAME_MICROBATCHES.name,] = activity.frames
    for replica in router.replicas:
        for stage, refusals in enumerate(replica.mirror.refusals):
            counts[names.KV_REFUSALS.name, str(stage), str(replica.index)] = refusals
    return counts
