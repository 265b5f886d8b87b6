"""The in-process engine: conductor, router and stages in one process. A dumb driver: every rule is in the machines."""

from collections.abc import Callable

from stageline.engine.chain import ChainStages
from stageline.engine.closing import close_run, window_of
from stageline.engine.conductor import Conductor
from stageline.engine.heap import HeapStages
from stageline.engine.laws import OrderLaws, check_all
from stageline.engine.route import Route
from stageline.engine.router import Router
from stageline.engine.settings import Scheduling
from stageline.engine.types import NEVER, MemberObserver, Observer, RunTotals, StageObserver, Workload
from stageline.errors import LawBroken
from stageline.plan.schema import Plan


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

    Raises LawBroken when a law fails (with `paranoid` all that apply are checked after every round of safe events).
    """
    route = Route(plan)
    router = Router(route, scheduling, seed, observer, members)
    conductor = Conductor(router, workload)
    if paranoid:
        stage_observer = OrderLaws(route.stage_of, stage_observer)
    stages = make_stages(route, plan.replicas, seed, stage_observer)
    drive(conductor, stages, (lambda: check_all(conductor, stages)) if paranoid else None)
    for r, replica in enumerate(router.replicas):
        stages.release(r, replica.last_releases())
    if paranoid:
        check_all(conductor, stages)
    return totals(conductor, stages)


def make_stages(route: Route, replicas: int, seed: int, observer: StageObserver | None = None) -> HeapStages:
    """Vectors where the route allows it and nobody watches single services; the event heap otherwise."""
    if observer is None and not route.revisits:
        return ChainStages(route, replicas, seed)
    return HeapStages(route, replicas, seed, observer)


def drive(conductor: Conductor, stages: HeapStages, check: Callable[[], None] | None = None) -> None:
    """Alternate router and stages until nothing is left to do."""
    router, returns, dispatched = conductor.router, conductor.returns, conductor.dispatched
    replicas = range(len(returns))
    while True:
        conductor.advance()
        fed = False
        for r in replicas:
            if dispatched[r]:
                returns[r] += stages.feed(r, dispatched[r])
                dispatched[r] = []
                fed = True
        if check is not None:
            check()
        if fed and any(returns):
            continue
        if not _serve(conductor, stages):
            if conductor.done:
                return
            raise LawBroken(f"stuck: {len(router.sequences)} requests in the system and nothing under way")


def _serve(conductor: Conductor, stages: HeapStages) -> bool:
    """Serve shared stages in time order until the router may have something to do; False: nothing to serve.

    The router can dispatch nothing before its own next event or the earliest arrival in the heap, so that one is safe.
    """
    if stages.next_ns >= NEVER:
        return False
    own = conductor.own_event_ns
    while stages.next_ns < own:
        replica, completion = stages.step()
        if completion is not None:
            conductor.returns[replica].append(completion)
            break
    now = stages.next_ns
    if now < NEVER:  # whatever is still in the heap completes after its arrival there
        conductor.promised_ns = [max(promised, now + 1) for promised in conductor.promised_ns]
    return True


def totals(conductor: Conductor, stages: HeapStages) -> RunTotals:
    """Close the books: the run's window is first arrival to last completion."""
    start, end = window_of(conductor)
    return close_run(conductor, [s.record(start, end) for replica in stages.stages for s in replica])
