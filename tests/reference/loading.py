"""Rule 12: the end of a load."""

from typing import TYPE_CHECKING

from tests.reference import leaving
from tests.reference.handover import cache_landed
from tests.reference.tiers import Load

if TYPE_CHECKING:
    from tests.reference.fleet import FleetEngine


def land(engine: "FleetEngine", load: Load) -> None:
    """All of it is on the device: the sequence may prefill the rest, and others may hit its blocks."""
    sequence, replica = load.sequence, engine.fleet_replicas[load.replica]
    load.pin(-1)
    engine.wake(replica)
    if not sequence.leaving and not replica.own:
        replica.arrived_at_empty = True
    sequence.awaited = sequence.fixed = False
    if sequence.leaving:
        ran_out_ns = replica.ran_out_ns
        leaving.returned(engine, sequence)
        engine.last_end_at_landing_ns = engine.now_ns
        replica.ran_out_ns = ran_out_ns  # it was not the replica's own when it ended
        return
    engine.book.move(sequence.index, "loaded", replica.index)
    cache_landed(replica, sequence)
