"""Clients that leave: what becomes of a request in each of its states."""

from typing import TYPE_CHECKING

from tests.reference import handover
from tests.reference.fleet_replica import FleetReplica, Journey
from tests.reference.sequence import Sequence
from tests.reference.states import ENDS, State

if TYPE_CHECKING:
    from tests.reference.fleet import FleetEngine


def leave(engine: "FleetEngine", index: int) -> None:
    """The client of a request has left; whoever has ended, or is about to, is left alone."""
    journey = engine.book.journeys.get(index)
    if journey is None or journey.story.state in ENDS or journey.story.state == State.LEAVING:
        return
    for part in (journey.first, journey.second):
        if part is not None:
            engine.wake(engine.fleet_replicas[part.replica])
    if waits_for_something(journey):
        engine.book.move(index, "leave")
        for part in (journey.first, journey.second):
            if part is not None:
                part.leaving, part.ready = True, False
        end_prefill(engine, journey)
    else:
        cancel(engine, journey)


def waits_for_something(journey: Journey) -> bool:
    """Whether a microbatch carries it, bytes of it are under way, or blocks are being loaded."""
    in_flight = any(part.in_flight for part in (journey.first, journey.second) if part is not None)
    return in_flight or journey.landings_due > 0 or journey.story.state == State.LOADING or is_loading(journey)


def is_loading(journey: Journey) -> bool:
    """Whether its prefill part waits for blocks from a tier."""
    return journey.first is not None and journey.first.awaited


def returned(engine: "FleetEngine", sequence: Sequence) -> None:
    """What carried a request whose client has left is back; it does not count."""
    journey = engine.book.journeys[sequence.index]
    end_prefill(engine, journey)
    if not waits_for_something(journey):
        cancel(engine, journey)


def end_prefill(engine: "FleetEngine", journey: Journey) -> None:
    """With bytes under way and no chunk in flight its prefill part is over, before the request is."""
    part = journey.first
    if part is None or part.in_flight or not journey.landings_due:
        return
    if part in engine.fleet_replicas[part.replica].running:
        handover.let_source_go(engine, journey)


def cancel(engine: "FleetEngine", journey: Journey) -> None:
    """It ends now, and gives back all that it holds, wherever."""
    engine.book.move(journey.request.index, "cancel")
    journey.ended_ns = engine.now_ns
    for part in (journey.first, journey.second):
        if part is not None:
            let_go(engine, engine.fleet_replicas[part.replica], part)
    engine.ended(journey)


def let_go(engine: "FleetEngine", replica: FleetReplica, part: Sequence) -> None:
    """One of its parts: waiting, running, pinned, or at this replica no more."""
    was_own = part in replica.own
    if part in replica.pinned:
        replica.pinned.remove(part)
        replica.drop(part)
    elif part in replica.running or part in replica.waiting:
        replica.remove(part)
    if was_own:
        engine.left(replica)
    engine.wake(replica)
