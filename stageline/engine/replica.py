"""The scheduler of one pipeline: which requests run, when a microbatch may leave, who is in it (rules 5, 6 and 9)."""

import heapq
from collections import deque
from typing import Protocol

from stageline.engine.forming import Forming
from stageline.engine.idle_stamps import IdleStamps
from stageline.engine.microbatch import Item, Trail
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.queueing import QueueState
from stageline.engine.replica_kv import ReplicaKv
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


Members = list[tuple[Sequence, int]]  # with the rows sampled for each
Formed = tuple[Item, Members]  # a microbatch on link 0, and who is in it


class Replica(ReplicaKv):
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
        self.formed = 0
        self.admissions = 0
        self._ready: list[tuple[int, int, Sequence]] = []  # heap by admission number; may hold stale entries
        self._ready_count = 0
        self._pushes = 0
        self._partial: list[Sequence] = []  # running, prompt not yet fully scheduled; by admission number
        self._gate_free_ns = 0
        self._depart_ns = 0
        self._draw_key = stream_key(seed, STREAM_EXPERTS, index, 0)
        self.stamps = IdleStamps()
        self._own = 0  # requests here but those whose KV comes from elsewhere and has not landed

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

    def enqueue(self, sequence: Sequence) -> None:
        """A request arrived and was bound to this replica."""
        self.outstanding_tokens += sequence.outstanding_tokens
        self.count_waiting(sequence, 1)
        self.waiting.add(sequence)
        self.stamps.came(to_none=not self._own)
        self._own += not sequence.incoming

    def complete(self, now_ns: int) -> Members:
        """The oldest microbatch in flight is back; returns its members. The caller finishes the sequences that end."""
        _, members = self.in_flight.popleft()
        if not self.credits:
            self.stamps.credit_since_ns = now_ns
        self.credits += 1
        for sequence, _ in members:
            sequence.in_flight -= 1
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

    def set_ready(self, sequence: Sequence) -> None:
        """Its token is back, and its next decode step may be scheduled."""
        sequence.ready = True
        self._ready_count += 1
        self._push_ready(sequence)

    def finish(self, sequence: Sequence, now_ns: int) -> None:
        """A running sequence has ended: its KV is freed, at the stages with the next microbatch."""
        self.free(sequence)
        self.leave(sequence, now_ns)

    def abort_waiting(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence ends while it waits to be admitted (again)."""
        self.waiting.remove(sequence)
        self.count_waiting(sequence, -1)
        self.leave(sequence, now_ns)

    def abort_running(self, sequence: Sequence) -> None:
        """Schedule nothing more of a running sequence. The caller finishes it when what is in flight is back."""
        self.outstanding_tokens -= sequence.todo_tokens
        sequence.todo_tokens = 0
        self._unschedule(sequence)

    # -- forming microbatches

    def form(self, now_ns: int) -> list[Formed]:
        """Every microbatch that may leave now."""
        out: list[Formed] = []
        self._admit_incoming(now_ns)
        self.stamps.looked(now_ns, work=self.has_work)
        self.form_all(now_ns, out)
        self.stamps.had_work = self.has_work
        self._note_waiting(now_ns)
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
            self._schedule_waiting(forming, now_ns)
        return forming

    def _schedule_decodes(self, forming: Forming) -> None:
        """A decode step of every running sequence that is ready, by admission number, as far as there is room."""
        kept = []
        ready, allocate_slots, add_decode, speculation, cache = (
            self._ready, self.kv.allocate_slots, forming.add_decode, self.speculation, self.cache,
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
                room -= 1
                if tokens == 1:
                    add_decode(sequence)
                else:
                    forming.add_verification(sequence, tokens)
                    room = min(room, forming.tokens_left)
                if cache is not None:
                    cache.cache_full_blocks(sequence, forming.grants)
            else:
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

    def _schedule_chunk(self, forming: Forming, sequence: Sequence) -> None:
        if not sequence.running or not forming.has_room:
            return  # it may have been preempted a moment ago
        chunk = min(sequence.todo_tokens, forming.tokens_left, self._chunk_tokens)
        if self.kv.allocate_slots(self, sequence, chunk, forming):
            self._prefill(forming, sequence, chunk)
            if not sequence.todo_tokens:
                self._partial.remove(sequence)

    def _schedule_waiting(self, forming: Forming, now_ns: int) -> None:
        if self.waiting.state_aware and self.may_admit():
            self.waiting.reorder(QueueState(now_ns, len(self.running), len(self.waiting), self.cache))
        while forming.has_room and self.may_admit():
            sequence = self.waiting.peek()
            if sequence is None or sequence.incoming or not self.was_there(sequence):
                break
            self.acquire_prefix(sequence)
            chunk = min(sequence.todo_tokens, forming.tokens_left, self._chunk_tokens)
            if not self.kv.admit(sequence, chunk, forming):
                self.release_prefix(sequence)
                break  # head-of-line blocking
            self.admit(self.waiting.take(), chunk, forming)

    def may_admit(self) -> bool:
        """Whether one more sequence may run."""
        return len(self.running) < self.max_running

    def was_there(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence may join the microbatch being formed."""
        return True

    def admit(self, sequence: Sequence, chunk: int, forming: Forming) -> None:
        """It runs from now on; its first `chunk` tokens join the microbatch."""
        self.count_waiting(sequence, -1)
        if sequence.number is None:
            sequence.number = self.admissions
            self.admissions += 1
        sequence.running = True
        self.running[sequence.request.index] = sequence
        if self.cache is not None:
            self.cache.count(sequence)
        self._prefill(forming, sequence, chunk)
        if sequence.todo_tokens:
            self._partial.append(sequence)
            self._partial.sort(key=_number)

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
        if microbatch.grants or microbatch.releases:
            self.mirror.sample_peaks()
        return formed

    # -- preemption, finishing

    def victim(self, grower: Sequence) -> Sequence | None:
        """The youngest running sequence with nothing in flight; members of the one being formed count as in flight."""
        idle = (s for s in self.running.values() if not s.in_flight and not s.fixed and s is not grower)
        return max(idle, key=_number, default=None)

    def preempt(self, sequence: Sequence) -> None:
        """Free its KV; it returns to the head of the queue with prompt and generated tokens to prefill."""
        self.outstanding_tokens -= sequence.todo_tokens
        self.free(sequence)
        sequence.preemptions += 1
        sequence.todo_tokens = sequence.request.prompt_tokens + sequence.generated
        self.outstanding_tokens += sequence.todo_tokens
        self.count_waiting(sequence, 1)
        self.waiting.prepend(sequence)

    def free(self, sequence: Sequence) -> None:
        """It no longer runs and holds no KV; the prefix cache keeps its full blocks."""
        self._stop(sequence)
        self.free_kv(sequence)

    def leave(self, sequence: Sequence, now_ns: int) -> None:
        """It has finished, was cancelled, or goes on elsewhere."""
        self.outstanding_tokens -= sequence.outstanding_tokens
        if not sequence.incoming:
            self._own -= 1
            if not self._own:
                self.stamps.ran_out(now_ns)

    def _stop(self, sequence: Sequence) -> None:
        """It no longer runs."""
        del self.running[sequence.request.index]
        sequence.running = False
        self._unschedule(sequence)
        self.written_tokens -= sequence.written_tokens

    # -- hand-overs (rule 11)

    def pin(self, sequence: Sequence, now_ns: int) -> None:
        """Its prompt is done and it decodes elsewhere: it is no longer here, but its KV is, until `unpin`."""
        self._stop(sequence)
        self.pinned[sequence.request.index] = sequence
        self.leave(sequence, now_ns)

    def land(self, sequence: Sequence) -> None:
        """Its KV is here: it decodes, and others can hit its full blocks."""
        sequence.incoming = False
        sequence.in_flight -= 1
        self.stamps.came(to_none=not self._own)
        self._own += 1
        if self.cache is not None:
            self.cache.cache_full_blocks(sequence, self.between.grants, computed=False)
        self.set_ready(sequence)

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
        self.count_waiting(sequence, -1)
        sequence.number = self.admissions
        self.admissions += 1
        sequence.running = True
        sequence.in_flight += 1
        self.running[sequence.request.index] = sequence
        self.written_tokens += sequence.written_tokens
        return True

    def _note_waiting(self, now_ns: int) -> None:
        if self.incoming is not None:
            waits = bool(self.running) and not self._own and not len(self.waiting)
            self.stamps.note_waiting(now_ns, all_wait=waits)

    def _unschedule(self, sequence: Sequence) -> None:
        if sequence.ready:
            sequence.ready = False
            self._ready_count -= 1
        if sequence in self._partial:
            self._partial.remove(sequence)

    def _push_ready(self, sequence: Sequence) -> None:
        self._pushes += 1
        heapq.heappush(self._ready, (_number(sequence), self._pushes, sequence))


def _number(sequence: Sequence) -> int:
    return sequence.number or 0
