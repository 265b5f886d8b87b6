"""Rule 5, microbatches of serving engines: who forms when, and who may join."""

from collections.abc import Iterator

from tests.reference.replica import Replica
from tests.reference.sequence import Sequence

NATURAL = ("natural", "token-balanced")
STEPPED = ("natural-async", "global-cap", "decode-cap")
SLOTTED = ("slots",)
VIRTUAL = ("virtual-engines",)
ENGINES = (*NATURAL, *STEPPED, *SLOTTED, *VIRTUAL)


def is_engine(replica: Replica) -> bool:
    """Whether microbatches are formed as serving engines form them."""
    return replica.scheduling.batching in ENGINES


def may_form(replica: Replica) -> bool:
    """Whether the engine looks at its work at this instant."""
    if replica.scheduling.batching in VIRTUAL:
        return replica.just_returned or replica.just_arrived
    return not replica.in_flight or replica.just_returned


def slots(replica: Replica) -> int:
    """S."""
    return replica.credits_total


def groups_in_flight(replica: Replica) -> list[int]:
    """The step, slot or engine of each microbatch in flight, oldest first."""
    return [microbatch.group for microbatch in replica.in_flight]


def attempts(replica: Replica) -> Iterator[int]:
    """The groups that may form now. Whoever asks forms each, if anybody can join, before the next."""
    policy = replica.scheduling.batching
    if policy in NATURAL:
        return natural_attempts(replica)
    if policy in STEPPED:
        return step_attempts(replica)
    if policy in SLOTTED:
        return slot_attempts(replica)
    return engine_attempts(replica)


def natural_attempts(replica: Replica) -> Iterator[int]:
    """Until S are in flight or one stays empty."""
    while len(replica.in_flight) < slots(replica):
        formed = replica.microbatches
        yield 0
        if replica.microbatches == formed:
            return


def step_attempts(replica: Replica) -> Iterator[int]:
    """Every step that may leave; the one after it is chosen at once."""
    passed = 0
    while True:
        step = replica.last_step + 1 + passed
        if any(other <= step - slots(replica) for other in groups_in_flight(replica)):
            return
        if not replica.in_flight and passed > slots(replica):
            return
        yield step
        choose(replica)
        if replica.in_flight:
            replica.last_step, passed = step, 0
        else:
            passed += 1


def choose(replica: Replica) -> None:
    """The next step: who waits now may join it, and places that are free now may be taken."""
    replica.chosen_waiting = [sequence.index for sequence in replica.waiting]
    limit = replica.scheduling.max_running
    replica.chosen_places = None if limit is None else limit - len(replica.running)


def may_admit(replica: Replica, sequence: Sequence, admitted: int) -> bool:
    """Whether this waiting sequence, after so many others, may join the microbatch of a step."""
    if replica.scheduling.batching not in STEPPED:
        return True
    if replica.chosen_places is not None and admitted >= replica.chosen_places:
        return False
    return sequence.index in replica.chosen_waiting


def slot_attempts(replica: Replica) -> Iterator[int]:
    """From the slot whose turn it is, until one is in flight or all are passed over."""
    turn, passed = replica.turn, 0
    while passed < slots(replica):
        if turn in groups_in_flight(replica):
            replica.turn = turn
            return
        formed = replica.microbatches
        yield turn
        passed = passed + 1 if replica.microbatches == formed else 0
        turn = (turn + 1) % slots(replica)


def engine_attempts(replica: Replica) -> Iterator[int]:
    """Every engine that has nothing in flight."""
    for engine in range(slots(replica)):
        if engine not in groups_in_flight(replica):
            yield engine


def may_decode(replica: Replica, sequence: Sequence, group: int) -> bool:
    """Whether a ready sequence may join the microbatch of this group."""
    policy = replica.scheduling.batching
    if policy in STEPPED:
        return sequence.sampling_step is None or sequence.sampling_step <= group - slots(replica)
    return belongs(replica, sequence, group)


def belongs(replica: Replica, sequence: Sequence, group: int) -> bool:
    """Whether the sequence, running or waiting at an engine, is of this group; where there are none, always."""
    return replica.scheduling.batching not in SLOTTED + VIRTUAL or sequence.slot == group


def has_room(replica: Replica, group: int) -> bool:
    """The limit on admitted sequences, here those of an engine's or a slot's own."""
    limit = replica.scheduling.max_running
    policy = replica.scheduling.batching
    own = sum(sequence.slot == group for sequence in replica.running)
    if policy in VIRTUAL:
        return limit is None or own < limit
    if policy in SLOTTED and own >= replica.microbatch_limit:
        return False
    return limit is None or len(replica.running) < limit


def arrived(replica: Replica, sequence: Sequence) -> None:
    """A virtual engine takes the request: the one with the fewest."""
    if replica.scheduling.batching in VIRTUAL:
        everyone = replica.running + replica.waiting
        requests = [sum(other.slot == engine for other in everyone) for engine in range(slots(replica))]
        sequence.slot = requests.index(min(requests))
