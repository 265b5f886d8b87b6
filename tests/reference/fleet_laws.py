"""What always holds in a fleet: checked after every event, and at the end."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.reference import laws
from tests.reference.attribution import by_stamps
from tests.reference.engine import LANDING, Engine
from tests.reference.fleet import FleetEngine
from tests.reference.fleet_replica import Journey, Transfer
from tests.reference.fleet_types import FleetResults
from tests.reference.results import replica_splits
from tests.reference.sequence import Sequence
from tests.reference.states import ENDS, State
from tests.reference.tiers import Load

# Where both parts of a request are, by its state: w waits, r runs, p is pinned, - is nowhere.
PLACES: dict[State, set[str]] = {
    State.WAITING: {"w-", "-w"},
    State.LOADING: {"r-", "-r"},
    State.RUNNING: {"r-", "-r"},
    State.PREFILLED: {"p-"},
    State.PINNED: {"pw"},
    State.WANTED: {"-w"},
    State.RESERVED: {"wr"},
    State.PREFILLING: {"rr"},
    State.MOVING: {"pr", "-r"},
    State.LEAVING: {"r-", "-r", "rr", "pr"},
    State.FINISHED: {"--", "-r", "pr"},  # its only token came with the prefill, and its KV is under way
    State.CANCELLED: {"--"},
    State.REFUSED: {"--"},
}


def place(engine: FleetEngine, part: Sequence | None) -> str:
    """Where a part of a request is; nowhere else, and not twice."""
    if part is None:
        return "-"
    found = []
    for replica in engine.fleet_replicas:
        for letter, home in (("w", replica.waiting), ("r", replica.running), ("p", replica.pinned)):
            found += [(letter, replica.index) for other in home if other is part]
    assert len(found) <= 1, f"request {part.index} is in several places: {found}"
    assert all(replica == part.replica for _, replica in found), f"request {part.index} is elsewhere: {found}"
    return found[0][0] if found else "-"


def one_state(engine: FleetEngine) -> None:
    """Every request is in one state, and its parts are where the state says (L1)."""
    journeys = engine.book.journeys.values()
    assert engine.arrivals == len(journeys), "L1"
    for journey in journeys:
        places = place(engine, journey.first) + place(engine, journey.second)
        state = journey.story.state
        assert places in PLACES[state], f"{state} {places}\n{journey.story}"
        assert (journey.ended_ns is not None or state == State.REFUSED) == (state in ENDS), journey.story
        awaits(engine, journey)


def awaits(engine: FleetEngine, journey: Journey) -> None:
    """KV that is under way is due somewhere; who awaits KV is no member and no victim."""
    under_way = [t for t in journey.transfers if t.landed_ns > engine.now_ns]
    assert len(under_way) <= journey.landings_due, journey.story
    if journey.ends_due:
        assert place(engine, journey.first) in ("r", "p"), f"KV goes that nobody has\n{journey.story}"
    if journey.landings_due:
        assert place(engine, journey.second) == "r", f"KV comes for which nobody has room\n{journey.story}"
    if journey.story.state == State.RESERVED:
        assert not journey.transfers, f"preempted with bytes under way\n{journey.story}"
    if journey.story.state == State.MOVING:
        assert journey.second is not None and journey.second.awaited and journey.landings_due, journey.story
    for part in parts_of(journey):
        assert not (part.awaited and (part.ready or part.in_flight or part.has_chunk)), journey.story


def parts_of(journey: Journey) -> Iterator[Sequence]:
    """One or two."""
    yield from (part for part in (journey.first, journey.second) if part is not None)


def ledgers_are_their_holders(engine: FleetEngine) -> None:
    """L2: what is held is what running, reserved, coming and pinned sequences hold; nobody's KV is free."""
    for replica in engine.fleet_replicas:
        holders = sorted(s.index for s in replica.running + replica.pinned)
        for ledger in replica.ledgers:
            assert sorted(ledger.held) == holders, f"L2: replica {replica.index} holds {ledger.held}, not {holders}"
        assert set(replica.grants) <= set(holders) and replica.known <= set(holders), "L2"


def used_blocks_are_resident(engine: FleetEngine) -> None:
    """A block of the prefix cache has as many users as sequences hold it, pinned ones included."""
    for replica in engine.fleet_replicas:
        if replica.cache is None:
            continue
        users: Counter[tuple[int, ...]] = Counter()
        for sequence in replica.running + replica.pinned:
            ids = replica.cache.identities(sequence.request)
            users.update(ids[:n] for n in range(1, sequence.shared + 1))
        assert all(past in replica.cache.held for past in users), "a block in use is gone"
        assert all(block.users == users[past] for past, block in replica.cache.held.items()), "users"


def tiers_hold_what_they_can(engine: FleetEngine) -> None:
    """L2 for every tier: within its capacity, and pinned by the loads that are under way and by nobody else."""
    hosts = [replica.host for replica in engine.fleet_replicas]
    loads = [load for load in engine.coming.values() if isinstance(load, Load)]
    for tier in [tier for tier in (*hosts, engine.store) if tier is not None]:
        assert tier.used_bytes() <= tier.tier.capacity_bytes, "L2"
        pins = Counter(key for load in loads for other, keys in load.items if other is tier for key in keys)
        assert {key: item.pins for key, item in tier.items.items() if item.pins} == dict(pins), "pins"


def ports_are_fifos(engine: FleetEngine) -> None:
    """One transfer after the other through each port, in the order of booking."""
    for replica in engine.fleet_replicas:
        out = [t for t in engine.transfers if t.source == replica.index]
        into = [t for t in engine.transfers if t.destination == replica.index]
        for before, after in [*pairwise(out), *pairwise(into)]:
            assert before.end_ns <= after.start_ns and before.start_ns < before.end_ns, "L3"


def bytes_are_conserved(engine: FleetEngine) -> None:
    """Bytes sent = bytes landed + bytes under way."""
    sent = sum(t.size_bytes for t in engine.transfers)
    landing = [t for event, t in engine.coming.items() if event[1] == LANDING and isinstance(t, Transfer)]
    assert sent == engine.landed_bytes + sum(t.size_bytes for t in landing), "bytes"


def check_event(engine: Engine) -> None:
    """After every event."""
    assert isinstance(engine, FleetEngine)
    one_state(engine)
    ledgers_are_their_holders(engine)
    used_blocks_are_resident(engine)
    bytes_are_conserved(engine)
    tiers_hold_what_they_can(engine)
    laws.l2_ledgers(engine)
    laws.l3_time(engine)
    laws.l5_decode(engine)
    laws.l7_credits(engine)


def check_end(engine: FleetEngine, results: FleetResults) -> None:
    """Of a finished run."""
    assert all(journey.story.state in ENDS for journey in engine.book.journeys.values()), "L10: a request is lost"
    assert not any(replica.here or replica.grants or replica.known for replica in engine.fleet_replicas), "L2"
    assert engine.landed_bytes == sum(t.size_bytes for t in engine.transfers), "bytes sent = bytes landed"
    ports_are_fifos(engine)
    laws.l2_ledgers_at_end(engine)
    laws.l4_route(engine)
    for record in results.stages:
        assert record.window_ns == results.window_end_ns - results.window_start_ns, "L6"
        assert record.busy_ns + sum(record.idle_ns.values()) == record.window_ns, "L6"
        assert min(record.idle_ns.values()) >= 0, "L6"
    for r, stages in enumerate(engine.stages):
        for stage, splits in zip(stages, replica_splits(engine, r), strict=True):
            assert [by_stamps(gap) for gap in stage.gaps] == splits, f"both ways to split a gap, replica {r}"
