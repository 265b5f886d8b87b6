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
    route = Route(plan)
    router = Router(route, scheduling, seed, observer, members)
    conductor = Conductor(router, workload)
    if paranoid:
        stage_observer = OrderLaws(route.stage_of, stage_observer)
    pipelines = make_pipelines(route, seed, stage_observer)
    drive(conductor, pipelines, (lambda: check_all(conductor, pipelines)) if paranoid else None)
    for pipeline, replica in zip(pipelines, router.replicas, strict=True):
        pipeline.release(replica.last_releases())
    if paranoid:
        check_all(conductor, pipelines)
    return totals(conductor, pipelines)


def make_pipelines(route: Route, seed: int, observer: StageObserver | None = None) -> Pipelines:
    """One per replica: vectors where the route allows it and nobody observes single services, else event heaps."""
    replicas = range(route.plan.replicas)
    if observer is None and not route.revisits:
        models = compile_models(route)
        return [VectorPipeline(route, r, seed, models) for r in replicas]
    return [HeapPipeline(route, r, seed, observer) for r in replicas]


def drive(conductor: Conductor, pipelines: Pipelines, check: Callable[[], None] | None = None) -> None:
    """Alternate router and pipelines until nothing is left to do."""
    router, returns, dispatched = conductor.router, conductor.returns, conductor.dispatched
    while True:
        conductor.advance()
        fed = False
        for r, pipeline in enumerate(pipelines):
            if dispatched[r]:
                returns[r] += pipeline.feed(dispatched[r])
                dispatched[r] = []
                fed = True
        if check is not None:
            check()
        if fed and any(returns):
            continue
        if not _serve(conductor, pipelines):
            if conductor.done:
                return
            raise LawBroken(f"stuck: {len(router.sequences)} requests in the system and nothing in flight")


def _serve(conductor: Conductor, pipelines: Pipelines) -> bool:
    """Serve shared stages in time order until the router may have something to do; False: nothing to serve.

    The router can dispatch nothing before its own next event or the earliest arrival of all, so that one is safe.
    """
    arrivals = [(p.next_ns, r) for r, p in enumerate(pipelines) if p.next_ns < NEVER]
    if not arrivals:
        return False
    heapq.heapify(arrivals)
    own = conductor.own_event_ns
    while arrivals[0][0] < own:
        r = arrivals[0][1]
        completion = pipelines[r].step()
        if completion is not None:
            conductor.returns[r].append(completion)
            break
        heapq.heapreplace(arrivals, (pipelines[r].next_ns, r))
    for r, promised_ns in enumerate(conductor.promised_ns):  # what is still queued completes after its arrival
        next_ns = pipelines[r].next_ns
        if promised_ns <= next_ns < NEVER:
            conductor.promised_ns[r] = next_ns + 1
    return True


def totals(conductor: Conductor, pipelines: Pipelines) -> RunTotals:
    """The totals of the run over its window, which is first arrival to last completion."""
    start, end = window_of(conductor)
    return close_run(conductor, [s.record(start, end) for p in pipelines for s in p.stages])
