"""What the router tells Prometheus of its own: figures of whatever activity on, read when they are scraped."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import stageline
from router.counts import requests_running, requests_waiting
from router.metrics.hand_overs import kv_families, port_counts, port_families
from router.metrics.places import place_of
from router.runs.session import RunSession
from stageline.engine.conductor import Conductor
from stageline.engine.router import Router
from stageline.engine.served import ServedPool
from stageline.runtime import metric_names as names
from stageline.runtime.deployment import Deployment
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
        deployment: Deployment,
        health: Callable[[], dict[tuple[int, int], bool]],
        live: Callable[[], Activity | None] = lambda: None,
    ) -> None:
        self._deployment = deployment
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
        places = [place_of(self._deployment, r, s) for r, s in self._deployment.stages]
        yield names.KV_REFUSALS.family((place, values[names.KV_REFUSALS.name, *place]) for place in places)
        yield from port_families(self._deployment.fleet, values)
        yield from kv_families(self._deployment.fleet, activity.router if activity else None)
        yield from self._gauges(activity)

    def _gauges(self, activity: Activity | None) -> Iterator[Metric]:
        deployment, replicas = self._deployment, activity.router.replicas if activity else []
        yield names.RUNNING.single(requests_running(activity.router) if activity else 0)
        yield names.WAITING.single(requests_waiting(activity.router) if activity else 0)
        yield names.EMULATED.single(activity.conductor.last_completion_ns / NS_PER_S if activity else 0)
        yield names.RUN_OPEN.single(int(self._run is not None))
        labels = [(str(r.index), deployment.pool(r.index)) for r in replicas]
        yield names.CREDITS.family(zip(labels, (r.all_credits for r in replicas), strict=True))
        yield names.IN_FLIGHT.family(zip(labels, (len(r.in_flight) for r in replicas), strict=True))
        health = self._health().items()
        yield names.STAGE_UP.family((place_of(deployment, r, s), float(up)) for (r, s), up in health)
        yield names.PLAN_INFO.family((_facts(pool), 1) for pool in deployment.fleet.pools)
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
    for replica, pool in zip(router.replicas, router.fleet.pool_of, strict=True):
        for stage, refusals in enumerate(replica.mirror.refusals):
            counts[names.KV_REFUSALS.name, str(stage), str(replica.index), pool.name] = refusals
    counts.update(port_counts(router, activity.conductor.last_completion_ns))
    return counts


def _facts(pool: ServedPool) -> tuple[str, ...]:
    """The labels of PLAN_INFO."""
    plan = pool.route.plan
    numbers = (len(plan.stages), len(plan.visits), plan.replicas)
    return plan.digest(), plan.model, plan.device, *map(str, numbers), pool.name
