"""The in-process engine: drives conductor, router and pipelines in one process. The rules are in those machines."""

import heapq
from collections.abc import Callable
from collections.abc import Sequence as Seq

from stageline.engine.closing import close_run, window_of
from stageline.engine.conductor import Conductor
from stageline.engine.heap_pipeline import HeapPipeline
from stageline.engine.laws import OrderLaws, check_all
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.served import ServedFleet, one_pool
from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER, MemberObserver, Observer, RunTotals, StageObserver, Workload
from stageline.engine.vector_pipeline import VectorPipeline, compile_models
from stageline.errors import LawBroken
from stageline.plan.schema import Plan

Pipelines = Seq[HeapPipeline]  # by replica


def run(
    plan: Plan,
    scheduling: Scheduling,
    workload: Workload,
    *,
    seed: int,
    observer: Observer,
    stage_observer: StageObserver | None = None,
    members: MemberObserver | None = None,
    paranoid: bool = False,
) -> RunTotals:
    """Run a whole workload through a plan in emulated time.

    Raises LawBroken when a law fails. With `paranoid`, all that apply are checked after every round of safe events.
    """
    return run_fleet(
        one_pool(Route(plan), scheduling), workload, seed=seed, observer=observer, stage_observer=stage_observer,
        members=members, paranoid=paranoid,
    )  # fmt: skip


def run_fleet(
    fleet: ServedFleet,
    workload: Workload,
    *,
    seed: int,
    observer: Observer,
    stage_observer: StageObserver | None = None,
    members: MemberObserver | None = None,
    paranoid: bool = False,
) -> RunTotals:
    """As `run`, through a fleet."""
    router = Router(fleet, seed, observer, members)
    conductor = Conductor(router, workload)
    if paranoid:
        stage_observer = OrderLaws([route.stage_of for route in fleet.routes], stage_observer)
    pipelines = make_pipelines(fleet, seed, stage_observer)
    drive(conductor, pipelines, (lambda: check_all(conductor, pipelines)) if paranoid else None)
    for pipeline, replica in zip(pipelines, router.replicas, strict=True):
        pipeline.release(replica.last_releases())
    if paranoid:
        check_all(conductor, pipelines)
    return totals(conductor, pipelines)


def make_pipelines(fleet: ServedFleet, seed: int, observer: StageObserver | None = None) -> Pipelines:
    """One per replica: vectors where the route allows it and nobody observes single services, else event heaps."""
    vectors = {pool: compile_models(pool.route) for pool in fleet.pools if observer is None and not pool.route.revisits}
    return [
        VectorPipeline(pool.route, r, seed, vectors[pool])
        if pool in vectors
        else HeapPipeline(pool.route, r, seed, observer)
        for r, pool in enumerate(fleet.pool_of)
    ]


def drive(conductor: Conductor, pipelines: Pipelines, check: Callable[[], None] | None = None) -> None:
    """Alternate router and pipelines until nothing is left to do."""
    dispatched = conductor.dispatched
    shared = SharedStages(pipelines)
    while True:
        conductor.proceed()
        known = False
        for r in conductor.fed:
            completions = pipelines[r].feed(dispatched[r])
            dispatched[r] = []
            if completions:
                conductor.returned(r, completions)
                known = True
            shared.fed(conductor, r)
        conductor.fed.clear()
        if check is not None:
            check()
        if not known and not shared.serve(conductor):
            if conductor.done:
                return
            raise LawBroken(f"stuck: {conductor.router.in_system()} requests in the system and nothing in flight")


class SharedStages:
    """Serves the stages that several visits share, of all replicas in time order."""

    def __init__(self, pipelines: Pipelines) -> None:
        self._pipelines = pipelines
        self._arrivals: list[tuple[int, int]] = []  # the earliest of a replica, and some that were it before

    def fed(self, conductor: Conductor, r: int) -> None:
        """A pipeline has got microbatches."""
        next_ns = self._pipelines[r].next_ns
        if next_ns < NEVER:
            heapq.heappush(self._arrivals, (next_ns, r))
            conductor.promise(r, next_ns + 1)

    def serve(self, conductor: Conductor) -> bool:
        """Serve until the router may have something to do; False: nothing to serve.

        The router can dispatch nothing to a replica before that one's next formation, the next arrival and the earliest
        arrival here, whose completion may bring a request.
        """
        arrivals, pipelines, form_ns = self._arrivals, self._pipelines, conductor.next_form_ns
        until_ns = conductor.known_event_ns
        served: set[int] = set()
        completion: int | None = None
        while arrivals and completion is None:
            now, r = arrivals[0]
            if now >= NEVER or now != pipelines[r].next_ns:
                heapq.heappop(arrivals)
                continue
            if now >= until_ns or now >= form_ns[r]:
                break
            completion = pipelines[r].step()
            served.add(r)
            heapq.heapreplace(arrivals, (pipelines[r].next_ns, r))
            if completion is not None:
                conductor.returned(r, [completion])
        for r in served:  # what is still there completes after its arrival
            if pipelines[r].next_ns < NEVER:
                conductor.promise(r, pipelines[r].next_ns + 1)
        return completion is not None or bool(arrivals)


def totals(conductor: Conductor, pipelines: Pipelines) -> RunTotals:
    """The totals of the run over its window, which is first arrival to last completion."""
    start, end = window_of(conductor)
    return close_run(conductor, [s.record(start, end) for p in pipelines for s in p.stages])
