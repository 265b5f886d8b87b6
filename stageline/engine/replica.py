"""The scheduler of one pipeline: which requests run, when a microbatch may leave, who is in it (rules 5, 6 and 9)."""

import heapq
from collections import deque
from typing import Protocol

from stageline.engine.below import Hit
from stageline.engine.forming import Forming
from stageline.engine.microbatch import Item, Trail
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.queueing import QueueState
from stageline.engine.prefix import HashBlock
from stageline.engine.replica_sequences import ReplicaSequences
from stageline.engine.rng import STREAM_EXPERTS, draw_at, stream_key
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling, data_parallel_ranks
from stageline.engine.speculation import make_speculation
from stageline.engine.types import NEVER
from stageline.errors import LawBroken


class Incoming(Protocol):
    """Who hands KV over to a decode replica."""

    acquires_cached: bool  # whether blocks that are cached there are not sent

    def admitted(self, sequence: Sequence, now_ns: int) -> None:
        """The replica holds KV for it."""
        ...


class Loader(Protocol):
    """Who brings KV up from tiers."""

    def admitted(self, sequence: Sequence, hit: Hit, now_ns: int) -> None:
        """The replica holds KV for what the sequence has hit there."""
        ...


Members = list[tuple[Sequence, int]]  # with the rows sampled for each
Formed = tuple[Item, Members]  # a microbatch on link 0, and who is in it


class Replica(ReplicaSequences):
    """The credits (in-flight limit), gate, mirror, waiting and running sequences of one pipeline."""

    def __init__(self, route: Route, index: int, scheduling: Scheduling, seed: int) -> None:
        super().__init__(route, scheduling)
        defaults = route.plan.defaults
        self.index = index
        self.credits = self.all_credits = scheduling.credits or defaults.credits
        self.batched_tokens = scheduling.batched_tokens or defaults.batched_tokens
        self._chunk_tokens = -(-self.batched_tokens // data_parallel_ranks(route.plan))  # most of one prompt
        self.max_running = scheduling.max_running or NEVER
        self.overhead_ns = scheduling.overhead_ns
        largest = scheduling.microbatch or defaults.microbatch
        self.batching = BATCHING.find(scheduling)(route, self.credits, largest, scheduling)
        self.speculation = make_speculation(scheduling, seed)
        self.link = route.link(0, index, seed)
        self.in_flight: deque[Formed] = deque()
        self.prefills = False  # whether requests leave it once their prompt is done
        self.incoming: Incoming | None = None  # told of hand-overs that are admitted here; None: there are none
        self.loader: Loader | None = None  # told of loads that are admitted here; None: there are no tiers
        self.formed = 0
        self._gate_free_ns = 0
        self._depart_ns = 0
        self._draw_key = stream_key(seed, STREAM_EXPERTS, index, 0)
        self._completed: deque[list[tuple[Sequence, list[HashBlock]]]] = deque()  # see `_write_through`

    # -- what policies and the router read

    @property
    def gate_ns(self) -> int:
        """No microbatch leaves before this: visit 0 would only queue it. Known from the router's own dispatches."""
        return self._gate_free_ns - self.link.latency_ns

    @property
    def has_work(self) -> bool:
        """Whether some sequence could join a microbatch if credits, gate and KV allowed."""
        return bool(self._ready_count or self._partial or len(self.waiting))

    # -- what happens to requests

    def complete(self, now_ns: int) -> Members:
        """The oldest microbatch in flight is back; returns its members. The caller finishes the sequences that end."""
        _, members = self.in_flight.popleft()
        if not self.credits:
            self.stamps.credit_since_ns = now_ns
        self.credits += 1
        for sequence, _ in members:
            sequence.in_flight -= 1
        if self._completed:
            self._write_through()
        return members

    def verify(self, sequence: Sequence, rows: int) -> int:
        """A decode step of `rows` tokens is back; returns how many of its drafts become output.

        The next step overwrites rejected drafts, in the blocks that the sequence holds anyway. Raises LawBroken without
        speculation.
        """
        if self.speculation is None:
            raise LawBroken(f"request {sequence.request.index}: a step of {rows} tokens came back, none had a draft")
        right, kept = self.speculation.verify(sequence, rows - 1)
        rejected = rows - 1 - right
        sequence.written_tokens -= rejected
        self.written_tokens -= rejected
        return kept

    # -- forming microbatches

    def form(self, now_ns: int) -> list[Formed]:
        """Every microbatch that may leave now."""
        out: list[Formed] = []
        self._admit_incoming(now_ns)
        self.stamps.looked(now_ns, work=self.has_work)
        self.form_all(now_ns, out)
        self.stamps.had_work = self.has_work
        if self.incoming is not None or self.loader is not None:
            waits = bool(self.running) and not self._own and not len(self.waiting)
            self.stamps.note(now_ns, all_wait=waits, own=self._own > 0)
        return out

    def form_all(self, now_ns: int, out: list[Formed]) -> None:
        """Add to `out` every microbatch that may leave now."""
        while self.credits and self.has_work and now_ns >= self.gate_ns:
            forming = self.schedule(now_ns)
            if not forming.members:
                return
            out.append(self._dispatch(forming, now_ns))
            self.dispatched(now_ns)

    def dispatched(self, now_ns: int) -> None:
        """A microbatch has left: what it could not take may come in now, and is work left over."""
        self.stamps.dispatched(now_ns)
        self._admit_incoming(now_ns)

    def next_timer_ns(self, now_ns: int) -> int:
        """When the gate alone would let work start; NEVER if something else is missing."""
        if self.stamps.had_work and self.credits and self.gate_ns > now_ns:
            return self.gate_ns
        return NEVER

    def schedule(self, now_ns: int) -> Forming:
        """The members of one microbatch; none when nothing that could join has room."""
        running = len(self.running)
        context = self.written_tokens // running if running else 0
        forming = Forming(self.batching.limit(running, len(self.waiting), context), self.batched_tokens)
        self._schedule_decodes(forming)
        if self._partial and forming.has_room:
            self._schedule_chunks(forming)
        if len(self.waiting) and forming.has_room:
            self.schedule_waiting(forming, now_ns)
        return forming

    def _schedule_decodes(self, forming: Forming) -> None:
        """A decode step of every running sequence that is ready, by admission number, as far as there is room."""
        kept = []
        ready, allocate_slots, add_decode, speculation, cache, without_room = (
            self._ready, self.kv.allocate_slots, forming.add_decode, self.speculation, self.cache, self.without_room,
        )  # fmt: skip
        tokens = 1
        room = min(forming.limit, forming.tokens_left)  # a decode step is one member and at least one token
        while ready and room:
            sequence = heapq.heappop(ready)[2]
            if not sequence.ready:
                continue  # stale: it was preempted or finished since
            if speculation is not None:
                tokens = speculation.step_tokens(sequence, forming.tokens_left)
            if allocate_slots(self, sequence, tokens, forming):
                sequence.ready = False
                if without_room:
                    without_room.discard(sequence.request.index)
                room -= 1
                if tokens == 1:
                    add_decode(sequence)
                else:
                    forming.add_verification(sequence, tokens)
                    room = min(room, forming.tokens_left)
                if cache is not None:
                    cache.cache_full_blocks(sequence, forming.grants)
            else:
                without_room.add(sequence.request.index)
                kept.append(sequence)
        self._ready_count -= len(forming.members)
        self.written_tokens += len(forming.members) + forming.draft_tokens
        for sequence in kept:
            if sequence.ready:
                self._push_ready(sequence)

    def _schedule_chunks(self, forming: Forming) -> None:
        """Chunked prefill: the next chunk of every running sequence whose prompt is not fully scheduled yet."""
        for sequence in tuple(self._partial):
            if not forming.has_room:
                break
            self._schedule_chunk(forming, sequence)

    def allocate_slots(self, sequence: Sequence, tokens: int, forming: Forming) -> bool:
        """KV for so many more tokens of a running sequence, for which others may be preempted; False: no room."""
        found = self.kv.allocate_slots(self, sequence, tokens, forming)
        if not found:
            self.without_room.add(sequence.request.index)
        elif self.without_room:
            self.without_room.discard(sequence.request.index)
        return found

    def _schedule_chunk(self, forming: Forming, sequence: Sequence) -> None:
        if not sequence.running or not forming.has_room:
            return  # it may have been preempted a moment ago
        chunk = min(sequence.todo_tokens, forming.tokens_left, self._chunk_tokens)
        if self.allocate_slots(sequence, chunk, forming):
            self._prefill(forming, sequence, chunk)
            if not sequence.todo_tokens:
                self._partial.remove(sequence)

    def schedule_waiting(self, forming: Forming, now_ns: int) -> None:
        """Admit waiting sequences: as members, or as loads from the tiers."""
        if self.waiting.state_aware and self.may_admit():
            self.waiting.reorder(QueueState(now_ns, len(self.running), len(self.waiting), self.cache))
        while forming.has_room and self.may_admit():
            sequence = self.waiting.peek()
            if sequence is None or sequence.incoming or not self.was_there(sequence):
                break
            if self.below is not None and (hit := self.below.longer_hit(sequence)) is not None:
                if self.without_room or not self.take_hit(sequence, hit, forming):
                    break
                self.admit_load(self.waiting.take(), hit, now_ns)
                continue
            self.acquire_prefix(sequence)
            chunk = min(sequence.todo_tokens, forming.tokens_left, self._chunk_tokens)
            if not self.kv.admit(sequence, chunk, forming):
                self.release_prefix(sequence)
                break  # head-of-line blocking
            self.admit(self.waiting.take(), chunk, forming)
        if not forming.members:
            self.between.grants += forming.take_grants()  # of loads: they leave with the next microbatch

    def may_admit(self) -> bool:
        """Whether one more sequence may run."""
        return len(self.running) < self.max_running

    def was_there(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence may join the microbatch being formed."""
        return True

    def admit(self, sequence: Sequence, chunk: int, forming: Forming) -> None:
        """It runs from now on; its first `chunk` tokens join the microbatch."""
        self.run(sequence)
        if self.cache is not None:
            self.cache.count(sequence, sequence.written_tokens)
        self._prefill(forming, sequence, chunk)
        if sequence.todo_tokens:
            self.goes_on(sequence)

    def admit_load(self, sequence: Sequence, hit: Hit, now_ns: int) -> None:
        """It runs from now on, and waits for what it has hit below the device."""
        self.run(sequence)
        if self.cache is not None:
            self.cache.count(sequence, hit.tokens)
        if sequence.admitted_ns is None:
            sequence.admitted_ns = now_ns
        sequence.in_flight += 1
        sequence.incoming = True
        self._loading.append(sequence)
        self._own -= 1
        if not self._own and self.stamps.had_own_before(now_ns):
            self.stamps.ran_out(now_ns)
        if self.loader is not None:
            self.loader.admitted(sequence, hit, now_ns)

    def _prefill(self, forming: Forming, sequence: Sequence, chunk: int) -> None:
        forming.add_prefill(sequence, chunk)
        if sequence.passage is not None and self.prefills:
            sequence.passage.chunk_ends.append(sequence.written_tokens)
        self.written_tokens += chunk
        self.outstanding_tokens -= chunk
        if self.cache is not None:
            self.cache.cache_full_blocks(sequence, forming.grants)

    def _dispatch(self, forming: Forming, now_ns: int) -> Formed:
        self.credits -= 1
        releases = self.take_releases()
        if self.between.grants:
            forming.grants[:0] = self.between.take_grants()
        microbatch = forming.seal(self.formed, now_ns, self.stamps.of_next(), releases)
        for sequence, _ in forming.members:
            if sequence.admitted_ns is None:
                sequence.admitted_ns = now_ns
        self.formed += 1
        self._depart_ns = max(self._depart_ns, now_ns) + self.overhead_ns
        if self.speculation is not None:
            self._depart_ns += self.speculation.draft_ns * forming.max_drafts
        arrival = self.link.send(self._depart_ns, microbatch.totals.tokens, microbatch.number)
        model = self.route.models[0]
        draw = draw_at(self._draw_key, microbatch.number) if model.uses_draw else 0
        self._gate_free_ns = max(self._gate_free_ns, arrival) + model.service_ns(microbatch.totals, draw)
        formed = Item(arrival, Trail(now_ns), microbatch), forming.members
        self.in_flight.append(formed)
        if self.cache is not None and self.cache.completed is not None:
            self._completed.append(self.cache.take_completed())
        if microbatch.grants or microbatch.releases:
            self.mirror.sample_peaks()
        return formed

    def _write_through(self) -> None:
        """What the oldest microbatch has computed goes down, unless its client has left."""
        for sequence, blocks in self._completed.popleft():
            if self.below is not None and not sequence.cancelled:
                self.below.computed(blocks)

    # -- hand-overs (rule 11)

    def _admit_incoming(self, now_ns: int) -> None:
        """Hold hand-overs at the head of the queue while there is room: they need nothing else."""
        if self.incoming is None or not len(self.waiting):
            return
        while self.admit_head(self.incoming, now_ns):
            pass

    def admit_head(self, incoming: Incoming, now_ns: int) -> bool:
        """Hold the hand-over at the head of the queue; False: there is none, or no room."""
        if self.waiting.state_aware:
            self.waiting.reorder(QueueState(now_ns, len(self.running), len(self.waiting), self.cache))
        sequence = self.waiting.peek()
        if sequence is None or not sequence.incoming or not self._hold(sequence, incoming):
            return False
        incoming.admitted(self.waiting.take(), now_ns)
        return True

    def _hold(self, sequence: Sequence, incoming: Incoming) -> bool:
        """Hold the KV of a hand-over, as far as it is not cached here; False: no room."""
        if not self.take_kv(sequence, acquire=incoming.acquires_cached):
            return False
        self.run(sequence)
        sequence.in_flight += 1
        self.written_tokens += sequence.written_tokens
        return True
