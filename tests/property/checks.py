"""What must hold for every scenario. A check, a kind of scenario and a number name one case, which can be replayed.

`python -m tests.property.replay CHECK KIND NUMBER` runs one case, `scripts/soak` any number of them.
"""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar
from unittest import mock

import msgspec
from hypothesis import strategies as st

from stageline.engine import prefix, vector_pipeline
from stageline.engine.route import Route
from stageline.engine.served import ServedFleet, one_pool
from stageline.engine.speculation import PPM
from stageline.engine.types import Request, RequestRecord, SpeculationStats, Workload
from stageline.testing import Recorder, Run, run_fleet, run_plan
from tests.property.delivery import Session
from tests.property.differences import same
from tests.property.fleet_scenarios import FLEET_KINDS, FleetScenario, fleet_numbered
from tests.property.fleets import agrees_on_a_fleet
from tests.reference import fleet_laws, fleet_results, fleet_strategies, laws
from tests.reference.attribution import by_stamps
from tests.reference.engine import Engine
from tests.reference.fleet import FleetEngine
from tests.reference.fleet_types import Fleet, FleetResults, Pool
from tests.reference.results import Results, replica_splits, results_of
from tests.reference.stage import Service
from tests.reference.strategies import KINDS, Scenario, build_leaving, build_leaving_front_end, numbered

Arriving = TypeVar("Arriving", Request, RequestRecord)
numbers = st.integers(0, 2**40)  # of scenarios; a seed rather than its draws, so that a failure has a name


@dataclass(frozen=True)
class Agreed:
    """Both engines after a run on which they agree."""

    engine: Engine
    wanted: Results
    run: Run


def run_reference(scenario: Scenario) -> tuple[Engine, Results]:
    """The scenario on the plain engine."""
    engine = Engine(scenario.plan, scenario.scheduling, scenario.workload(), scenario.seed)
    engine.run()
    return engine, results_of(engine)


def run_product(scenario: Scenario, *, paranoid: bool = True) -> Run:
    """The scenario on the in-process engine."""
    return run_plan(
        scenario.plan, scenario.workload(), scenario.scheduling, seed=scenario.seed, paranoid=paranoid
    )  # fmt: skip


def agrees_with_the_reference(scenario: Scenario) -> Agreed:
    """Once as users run it, once watched and with the laws checked: neither may change anything."""
    engine, wanted = run_reference(scenario)
    for paranoid in (False, True):
        run = run_product(scenario, paranoid=paranoid)
        _same_results(wanted, run)
    _same_stages(engine, run.seen)
    _same_speculation(engine, run)
    if scenario.scheduling.prefix_cache:
        same("caches", len(run.totals.prefix), scenario.plan.replicas)
        hit_tokens = sum(p.hit_tokens for p in run.totals.prefix)
        same("hit tokens", hit_tokens, sum(r.cached_tokens or 0 for r in run.requests))
    return Agreed(engine, wanted, run)


def _same_results(wanted: Results, run: Run) -> None:
    """All records, and the times of all tokens."""
    same("requests", run.requests, wanted.requests)
    same("stages", list(run.totals.stages), wanted.stages)
    same("window start", run.totals.window_start_ns, wanted.window_start_ns)
    same("window end", run.totals.window_end_ns, wanted.window_end_ns)
    same("tokens", run.tokens_ns, wanted.tokens_ns)
    previous: dict[int, int] = {}
    for index, now_ns, since_ns in run.seen.tokens:
        same(f"previous token of {index}", since_ns, previous.get(index))
        previous[index] = now_ns


def _same_stages(engine: Engine, seen: Recorder) -> None:
    """Every service and every gap of every stage but its fill, which its record tells."""
    services, gaps = defaultdict(list), defaultdict(list)
    for s in seen.services:
        services[s.replica, s.stage].append(Service(s.visit, s.number, s.arrival_ns, s.start_ns, s.end_ns))
    for gap in seen.gaps:
        causes = {cause: ns for cause, ns in gap.idle_ns.items() if cause != "fill"}
        if causes:
            gaps[gap.replica, gap.stage].append((gap.start_ns, causes))
    for replica, stages in zip(engine.replicas, engine.stages, strict=True):
        for stage, splits in zip(stages, replica_splits(engine, replica.index), strict=True):
            place = (replica.index, stage.stage)
            same(f"services of {place}", services[place], stage.log)
            split = [(gap.start_ns, causes) for gap, causes in zip(stage.gaps, splits, strict=True)]
            same(f"gaps of {place}", gaps[place], split)


def _same_speculation(engine: Engine, run: Run) -> None:
    """What came of the drafts, by replica; nothing where none were asked for."""
    wanted = [SpeculationStats() for _ in engine.replicas] if engine.scheduling.speculate else []
    for s in engine.sequences if wanted else ():
        wanted[s.replica] += SpeculationStats(
            steps=s.steps, drafted_tokens=s.drafted_tokens, accepted_tokens=s.accepted_tokens
        )
    same("speculation", list(run.totals.speculation), wanted)


def keeps_the_laws(scenario: Scenario) -> tuple[Engine, Results]:
    """The reference itself: every law after every event, and both ways to split a gap."""
    engine = Engine(scenario.plan, scenario.scheduling, scenario.workload(), scenario.seed)
    engine.run(laws.check_event)
    results = results_of(engine)
    laws.check_end(engine, results)
    for r, stages in enumerate(engine.stages):
        for stage, splits in zip(stages, replica_splits(engine, r), strict=True):
            same("gaps", [by_stamps(gap) for gap in stage.gaps], splits)
    return engine, results


def run_fleet_scenario(
    kind: str, number: int, after_event: Callable[[Engine], None] | None = None
) -> tuple[FleetEngine, FleetResults]:
    """A random fleet on the plain engine."""
    scenario = fleet_strategies.numbered(kind, number)
    engine = FleetEngine(scenario.fleet, scenario.workload(), scenario.like.seed, scenario.models)
    engine.run(after_event)
    return engine, fleet_results.results_of(engine)


def a_fleet_keeps_the_laws(kind: str, number: int) -> tuple[FleetEngine, FleetResults]:
    """The reference on a fleet: every law after every event, both ways to split a gap."""
    engine, results = run_fleet_scenario(kind, number, fleet_laws.check_event)
    fleet_laws.check_end(engine, results)
    return engine, results


def both_engines_agree_on_a_fleet(kind: str, number: int) -> Run:
    """A random fleet on both in-process engines."""
    return agrees_on_a_fleet(fleet_strategies.numbered(kind, number))


def one_pool_changes_nothing(scenario: Scenario) -> None:
    """A fleet of one `both` pool without tiers, and its plan alone; with clients that leave, on the product."""
    fleet = Fleet((Pool(scenario.plan, scenario.scheduling),), balance=scenario.scheduling.balance)
    got = fleet_results.run_fleet(fleet, scenario.workload(), scenario.seed)
    wanted = run_product(scenario, paranoid=False)
    same("requests", [record.request for record in got.requests], wanted.requests)
    same("stages", got.stages, list(wanted.totals.stages))
    same("tokens", {index: times for index, times in got.tokens_ns.items() if times}, wanted.tokens_ns)
    if not scenario.leaving:
        plain = run_reference(scenario)[1]
        same("stages", got.stages, plain.stages)
        same("requests", [record.request for record in got.requests], plain.requests)


def vectors_equal_heap(scenario: Scenario, small_batch: int) -> bool:
    """The vectorised pipeline against the event heap; False where the route has revisits, which take the heap."""
    if len({visit.stage for visit in scenario.plan.visits}) < len(scenario.plan.visits):
        return False
    heap = run_product(scenario)
    with mock.patch.multiple(vector_pipeline, SMALL_BATCH=small_batch, CELLS=8):  # gaps split in several blocks
        run = run_product(scenario, paranoid=False)
    same("stages", run.totals.stages, heap.totals.stages)
    same("requests", run.seen.requests, heap.seen.requests)
    same("tokens", run.tokens_ns, heap.tokens_ns)
    return True


def any_delivery_agrees(scenario: Scenario, window_frames: int) -> tuple[Session, list[RequestRecord]]:
    """A synchronised session, delivered in two random orders, against the in-process engine; returns the last ones."""
    fleet = one_pool(Route(scenario.plan), scenario.scheduling)
    return _delivered(fleet, scenario.workload, scenario.seed, window_frames)


def any_delivery_of_a_fleet_agrees(scenario: FleetScenario, window_frames: int) -> tuple[Session, list[RequestRecord]]:
    """As `any_delivery_agrees`."""
    return _delivered(scenario.served(), scenario.workload, scenario.seed, window_frames)


def _delivered(
    fleet: ServedFleet, workload: Callable[[], Workload], seed: int, window_frames: int
) -> tuple[Session, list[RequestRecord]]:
    wanted = run_fleet(fleet, workload(), seed=seed)
    for delivery in range(2):
        seen = Recorder()
        session = Session(fleet, workload(), seen, seed=seed, window_frames=window_frames, delivery=delivery)
        same("stages", tuple(session.run()), wanted.totals.stages)
        same("requests", seen.by_index(), wanted.requests)
        same("tokens", seen.tokens_ns, wanted.tokens_ns)
        nodes = [node for row in session.stages for node in row]
        same("stages that have finished", [node.done for node in nodes], [True] * len(nodes))
        same("bytes that are left (L2)", [node.stage.ledger.used_bytes for node in nodes], [0] * len(nodes))
    return session, wanted.requests


def idle_drafts_change_nothing(scenario: Scenario) -> None:
    """Settings of drafts without drafts."""
    off = msgspec.structs.replace(scenario.scheduling, speculate=0)
    idle = msgspec.structs.replace(off, acceptance_ppm=PPM, draft_ns=999)
    plain, other = (run_product(dataclasses.replace(scenario, scheduling=s), paranoid=False) for s in (off, idle))
    same("totals", other.totals, plain.totals)
    same("speculation", other.totals.speculation, ())
    same("requests", other.seen.requests, plain.seen.requests)
    same("tokens", other.tokens_ns, plain.tokens_ns)


def a_front_end_is_a_later_arrival(scenario: Scenario) -> None:
    """All requests and cancellations, or all users and their thoughts, later by what the front end takes."""
    delay_ns = 1 + scenario.seed % 700
    passed_on = dataclasses.replace(
        scenario,
        users=tuple(tuple(later(r, delay_ns) for r in user) for user in scenario.users),
        leaving=tuple(msgspec.structs.replace(c, at_ns=c.at_ns + delay_ns) for c in scenario.leaving),
        starts_ns=tuple(start_ns + delay_ns for start_ns in scenario.starts_ns),
        think_ns=scenario.think_ns + delay_ns,
        scheduling=msgspec.structs.replace(scenario.scheduling, front_end_ns=0),
    )
    fronted = msgspec.structs.replace(scenario.scheduling, front_end_ns=delay_ns)
    run, wanted = run_product(dataclasses.replace(scenario, scheduling=fronted)), run_product(passed_on)
    same("requests", [later(record, delay_ns) for record in run.requests], wanted.requests)
    same("totals", run.totals, wanted.totals)
    same("tokens", run.tokens_ns, wanted.tokens_ns)


def later(arriving: Arriving, delay_ns: int) -> Arriving:
    """The same with a later arrival."""
    return msgspec.structs.replace(arriving, arrival_ns=arriving.arrival_ns + delay_ns)


def a_cluster_agrees(scenario: Scenario) -> None:
    """Real servers on loopback against the in-process engine. Only open workloads travel; others pass unseen."""
    from tests.cluster.agreement import compare

    if not scenario.starts_ns:
        compare(scenario.plan, scenario.scheduling, scenario.events(), scenario.seed)


def a_cluster_of_a_fleet_agrees(scenario: FleetScenario) -> None:
    """As `a_cluster_agrees`."""
    from tests.cluster.agreement import compare

    if scenario.is_open:
        compare(scenario.fleet, None, scenario.events(), scenario.seed)


def the_index_agrees(kind: str, number: int) -> Any:
    """The prefix cache's index against a plain one, with rare or with eager sweeps of its heap."""
    from tests.property.test_prefix import play_to_the_end

    with mock.patch.object(prefix, "SWEEP_ENTRIES", SWEEPS[kind]):
        return play_to_the_end(random.Random(number), windows=kind.startswith("windows"))


def an_answer_holds(kind: str, number: int) -> Any:
    """What `search` and `tune` say, against brute force."""
    from tests.property.answers import search_finds_the_grids_best
    from tests.property.fleet_answers import search_finds_the_best_fleet
    from tests.property.tuned_runs import tuning_keeps_its_word

    checks: dict[str, Callable[[int], Any]] = {
        "search": search_finds_the_grids_best,
        "search-fleets": search_finds_the_best_fleet,
        "tune": tuning_keeps_its_word,
    }
    return checks[kind](number)


class Check(NamedTuple):
    """What is run on a kind and a number, and the kinds for which it holds."""

    run: Callable[[str, int], Any]
    kinds: tuple[str, ...]


def _on(check: Callable[[Scenario], Any], kinds: tuple[str, ...]) -> Check:
    return Check(lambda kind, number: check(numbered(kind, number)), kinds)


def _on_fleets(check: Callable[[FleetScenario], Any]) -> Check:
    return Check(lambda kind, number: check(fleet_numbered(kind, number)), FLEET_KINDS)


SWEEPS = {"rare-sweeps": 4096, "eager-sweeps": 4, "windows": 4096, "windows-eager-sweeps": 4}
EVERY_KIND = tuple(KINDS)
STAYING = tuple(kind for kind in KINDS if KINDS[kind] not in (build_leaving, build_leaving_front_end))
CHECKS = {
    "reference": _on(agrees_with_the_reference, STAYING),
    "laws": _on(keeps_the_laws, STAYING),
    "fleets": Check(both_engines_agree_on_a_fleet, tuple(fleet_strategies.KINDS)),
    "fleet-laws": Check(a_fleet_keeps_the_laws, tuple(fleet_strategies.KINDS)),
    "one-pool": _on(one_pool_changes_nothing, EVERY_KIND),
    "idle-drafts": _on(idle_drafts_change_nothing, EVERY_KIND),
    "front-end": _on(a_front_end_is_a_later_arrival, EVERY_KIND),
    "cluster": _on(a_cluster_agrees, STAYING),
    "answers": Check(an_answer_holds, ("search", "search-fleets", "tune")),
    "index": Check(the_index_agrees, tuple(SWEEPS)),
    "fleet-cluster": _on_fleets(a_cluster_of_a_fleet_agrees),
    **{f"fleet-delivery-{n}": _on_fleets(partial(any_delivery_of_a_fleet_agrees, window_frames=n)) for n in (0, 2)},
    **{f"vectors-{n}": _on(partial(vectors_equal_heap, small_batch=n), EVERY_KIND) for n in (1, 3, 1000)},
    **{f"delivery-{n}": _on(partial(any_delivery_agrees, window_frames=n), EVERY_KIND) for n in (0, 1, 2, 3, 5)},
}


def run_case(check: str, kind: str, number: int) -> Any:
    """One case; a failure says how to replay it."""
    try:
        return CHECKS[check].run(kind, number)
    except Exception as error:
        error.add_note(f"replay: {command(check, kind, number)}")
        raise


def command(check: str, kind: str, number: int) -> str:
    """What replays one case."""
    return f".venv/bin/python -m tests.property.replay {check} {kind} {number}"
