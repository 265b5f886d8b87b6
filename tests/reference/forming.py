"""Rules 5, 6, 8 and 9: which sequences a microbatch takes, and who has to go to make room."""

from dataclasses import dataclass, field

from tests.reference import batching, groups, kv, queueing, sharing, speculation
from tests.reference.replica import Replica
from tests.reference.sequence import Member, Microbatch, Sequence


@dataclass(slots=True)
class Forming:
    """The microbatch being formed."""

    replica: Replica
    now_ns: int
    sequence_limit: int
    decode_limit: int
    token_limit: int
    group: int = 0  # its step, slot or virtual engine
    admitted: int = 0  # members that waited
    members: list[Member] = field(default_factory=list)

    def room_tokens(self) -> int:
        """What is left of the token budget."""
        return self.token_limit - sum(m.tokens for m in self.members)

    def chunk_tokens(self) -> int:
        """The most that the next chunk may hold: what is left, or what the budget of one rank is."""
        return min(self.room_tokens(), -(-self.replica.token_limit // self.replica.ranks))

    def full(self) -> bool:
        """Whether the sequence limit or the token budget is reached."""
        return len(self.members) >= self.sequence_limit or self.room_tokens() <= 0

    def may_decode(self, sequence: Sequence) -> bool:
        """Whether one more decode step, of this sequence, may join."""
        decodes = sum(m.decode for m in self.members)
        return decodes < self.decode_limit and groups.may_decode(self.replica, sequence, self.group)

    def holds(self, sequence: Sequence) -> bool:
        """Whether the sequence is in it already."""
        return any(m.sequence is sequence for m in self.members)


def form(replica: Replica, now_ns: int, group: int = 0) -> Microbatch | None:
    """One microbatch, or None when nothing that could go has room."""
    limits = batching.sequence_limit(replica), batching.decode_limit(replica), batching.token_limit(replica)
    forming = Forming(replica, now_ns, *limits, group)
    by_number = sorted(replica.running, key=number_of)
    for sequence in by_number:
        if forming.full() or sequence not in replica.running or not sequence.ready:
            continue
        if forming.may_decode(sequence):
            add_decode(forming, sequence)
    for sequence in by_number:
        if forming.full() or sequence not in replica.running or not groups.belongs(replica, sequence, group):
            continue
        if sequence.has_chunk and not forming.holds(sequence):
            add_chunk(forming, sequence)
    for sequence in queueing.order(replica):  # taken once: who is admitted changes nobody's turn
        if replica.scheduling.batching in groups.VIRTUAL and sequence.slot != group:
            continue  # it waits at another engine
        if sequence.awaited or not groups.may_admit(replica, sequence, forming.admitted):
            break
        if forming.full() or not groups.has_room(replica, group) or not admit(forming, sequence):
            break
        forming.admitted += 1
    if not forming.members:
        return None
    return seal(forming)


def number_of(sequence: Sequence) -> int:
    """Admission number of a sequence that has been admitted."""
    assert sequence.number is not None
    return sequence.number


def add_decode(forming: Forming, sequence: Sequence) -> None:
    """One decode step, if room can be made for its tokens."""
    tokens = speculation.step_tokens(forming.replica.scheduling, sequence, forming.room_tokens())
    if make_room(forming, sequence, tokens):
        add(forming, sequence, tokens, decode=True)


def add_chunk(forming: Forming, sequence: Sequence) -> None:
    """The next chunk of a prompt that has begun, if room can be made for it."""
    tokens = min(sequence.todo_tokens, forming.chunk_tokens())
    if make_room(forming, sequence, tokens):
        add(forming, sequence, tokens, decode=False)


def admit(forming: Forming, sequence: Sequence) -> bool:
    """A waiting sequence and its first chunk, if there is room; nobody is preempted for it."""
    replica = forming.replica
    loads = replica.load_below(sequence)
    if loads is not None:
        if loads:
            leave_queue(forming, sequence, sequence.written_tokens)
            replica.note("load", sequence)
        return loads
    cached_tokens = sharing.reuse(replica, sequence)
    tokens = min(sequence.todo_tokens - cached_tokens, forming.chunk_tokens())
    held_tokens = kv.admission_tokens(replica.scheduling, sequence.request, cached_tokens + tokens)
    if sequence.whole:
        held_tokens = kv.max_tokens(replica.scheduling, sequence.request)
    if not sharing.find_room(replica, sequence, held_tokens):
        sharing.forget(replica, sequence)
        return False
    replica.hold(sequence, held_tokens)
    sequence.written_tokens = cached_tokens
    sequence.todo_tokens -= cached_tokens
    leave_queue(forming, sequence, cached_tokens)
    replica.note("admit", sequence)
    add(forming, sequence, tokens, decode=False)
    return True


def leave_queue(forming: Forming, sequence: Sequence, cached_tokens: int) -> None:
    """It runs from now on."""
    replica = forming.replica
    home = replica.preempted if sequence in replica.preempted else replica.queue
    home.remove(sequence)
    replica.running.append(sequence)
    sequence.slot = forming.group
    if sequence.number is None:
        sequence.number = replica.admissions
        replica.admissions += 1
        sequence.admitted_ns = forming.now_ns
        sequence.cached_tokens = None if replica.cache is None else cached_tokens


def make_room(forming: Forming, grower: Sequence, tokens: int) -> bool:
    """Hold `tokens` more for a running sequence, preempting while there is a victim; False: the grower waits."""
    replica = forming.replica
    if replica.scheduling.kv not in kv.GROWING:
        return True
    held_tokens = replica.held_tokens(grower)  # more than are written, if drafts were rejected
    wanted_tokens = max(held_tokens, grower.written_tokens + tokens)
    replica.without_room = [index for index in replica.without_room if index != grower.index]
    while not sharing.find_room(replica, grower, wanted_tokens):
        idle = [s for s in replica.running if not s.in_flight and not s.fixed]
        victims = [s for s in idle if s is not grower and not forming.holds(s)]
        if replica.scheduling.batching in groups.STEPPED + groups.SLOTTED + groups.VIRTUAL:
            victims = [s for s in victims if number_of(s) > number_of(grower)]
        if not victims:
            replica.without_room.append(grower.index)
            return False
        preempt(replica, max(victims, key=number_of))
    replica.hold(grower, wanted_tokens)
    return True


def preempt(replica: Replica, victim: Sequence) -> None:
    """All its KV goes; it returns to the very head of the queue with prompt and generated tokens to prefill."""
    replica.drop(victim)
    replica.running.remove(victim)
    replica.preempted.insert(0, victim)
    replica.without_room = [index for index in replica.without_room if index != victim.index]
    victim.preemptions += 1
    victim.ready = False
    victim.written_tokens = 0
    victim.todo_tokens = victim.request.prompt_tokens + victim.generated
    replica.note("preempt", victim)


def add(forming: Forming, sequence: Sequence, tokens: int, decode: bool) -> None:
    """Put a sequence, whose room is taken, into the microbatch."""
    if decode:
        sequence.ready = False
    else:
        sequence.todo_tokens -= tokens
    written_before = sequence.written_tokens
    sequence.written_tokens += tokens
    shared_before = sequence.shared
    sharing.share(forming.replica, sequence)
    forming.members.append(
        Member(
            sequence=sequence,
            decode=decode,
            tokens=tokens,
            written_before=written_before,
            held_tokens=forming.replica.held_tokens(sequence),
            cached_blocks=sequence.shared * forming.replica.blocks_per_identity,
            samples=decode or sequence.todo_tokens == 0,
            completed=range(shared_before + 1, sequence.shared + 1),
        )
    )


def seal(forming: Forming) -> Microbatch:
    """Stamp the microbatch and take its credit."""
    replica = forming.replica
    microbatch = Microbatch(
        replica=replica.index,
        number=replica.microbatches,
        members=tuple(forming.members),
        releases=tuple(replica.releases),
        cached=replica.ledgers[0].cached,
        dispatch_ns=forming.now_ns,
        work_since_ns=replica.work_since_ns,
        empty_since_ns=replica.empty_since_ns,
        credit_since_ns=replica.credit_since_ns,
        group=forming.group,
        grants=replica.take_grants(),
        transfer_since_ns=replica.transfer_since_ns,
    )
    replica.microbatches += 1
    replica.releases.clear()
    if replica.cache is not None:
        replica.cache.fresh.clear()
    replica.in_flight.append(microbatch)
    for member in microbatch.members:
        member.sequence.in_flight += 1
        if member.samples:
            member.sequence.sampling_step = forming.group
    return microbatch
