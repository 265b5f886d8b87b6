"""The router's side of one pipeline: who runs, when a microbatch may leave, and who is in it (rules 5, 6 and 9)."""

import heapq
from collections import deque

from stageline.engine.forming import Forming
from stageline.engine.kv import KvPolicyBase, make_kv_policy
from stageline.engine.microbatch import Item
from stageline.engine.mirror import KvMirror
from stageline.engine.prompt_cache import PromptCache, make_cache
from stageline.engine.queueing import WaitingQueue, load_policy
from stageline.engine.rng import STREAM_EXPERTS, draw_at, stream_key
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.engine.sizing import make_sizing
from stageline.engine.speculation import make_speculation
from stageline.engine.types import NEVER
from stageline.errors import LawBroken

Members = list[tuple[Sequence, int]]  # with the rows sampled for each
Formed = tuple[Item, Members]  # a microbatch on link 0, and who is in it


class Replica:
    """Credits, gate, mirror ledger, running and waiting sequences of one pipeline."""

    def __init__(self, route: Route, index: int, scheduling: Scheduling, seed: int) -> None:
        defaults = route.plan.defaults
        self.route, self.index = route, index
        self.credits = self.all_credits = scheduling.credits or defaults.credits
        self.batched_tokens = scheduling.batched_tokens or defaults.batched_tokens
        self.max_running = scheduling.max_running or NEVER
        self.overhead_ns = scheduling.overhead_ns
        largest = scheduling.microbatch or defaults.microbatch
        self.sizing = make_sizing(scheduling, route, self.credits, largest)
        self.waiting = WaitingQueue(load_policy(scheduling.policy or scheduling.queueing))
        self.running: dict[int, Sequence] = {}  # by request index
        self.mirror = KvMirror(route.plan)
        self.cache = make_cache(self.mirror, route, scheduling)
        self.kv: KvPolicyBase = make_kv_policy(scheduling.kv, self.mirror, self.cache)
        self.speculation = make_speculation(scheduling, seed)
        self.link = route.link(0, index, seed)
        self.in_flight: deque[Formed] = deque()
        self.releases: list[int] = []
        self.outstanding_tokens = 0
        self.waiting_blocks = 0  # what the waiting ones will hold at most
        self.waiting_kept = [0] * len(self.mirror.caps)  # of that, what windows will keep
        self.formed = 0
        self.admissions = 0
        self._written_tokens = 0  # of all running sequences
        self._ready: list[tuple[int, int, Sequence]] = []  # heap by admission number; may hold stale entries
        self._ready_count = 0
        self._pushes = 0
        self._partial: list[Sequence] = []  # running, prompt not yet fully scheduled; by admission number
        self._gate_free_ns = 0
        self._depart_ns = 0
        self._draw_key = stream_key(seed, STREAM_EXPERTS, index, 0)
        self._had_work = False
        self._work_since_ns = 0
        self._empty_since_ns: int | None = None  # when the last request left; None once one has come
        self._empty_stamp_ns = 0
        self._credit_since_ns = 0

    # -- what happens to requests

    @property
    def gate_ns(self) -> int:
        """No microbatch leaves before this: visit 0 would only queue it (the mirror, never the stage's own clock)."""
        return self._gate_free_ns - self.link.latency_ns

    @property
    def has_work(self) -> bool:
        """Whether some sequence could join a microbatch if credits, gate and KV allowed."""
        return bool(self._ready_count or self._partial or len(self.waiting))

    def enqueue(self, sequence: Sequence) -> None:
        """A request arrived and was bound to this replica."""
        self.outstanding_tokens += sequence.outstanding_tokens
        self._await_room(sequence, 1)
        self.waiting.push(sequence)

    def complete(self, now_ns: int) -> Members:
        """The oldest microbatch in flight has come back; returns its members. Sequences that end are the caller's."""
        _, members = self.in_flight.popleft()
        if not self.credits:
            self._credit_since_ns = now_ns
        self.credits += 1
        for sequence, _ in members:
            sequence.in_flight -= 1
        return members

    def verify(self, sequence: Sequence, rows: int) -> int:
        """A decode step of `rows` tokens is back; returns how many of its drafts become output.

        What was rejected is not kept: the next step overwrites it, in the blocks that the sequence holds anyway. Raises
        LawBroken without speculation.
        """
        if self.speculation is None:
            raise LawBroken(f"request {sequence.request.index}: a step of {rows} tokens came back, none had a draft")
        right, kept = self.speculation.verify(sequence, rows - 1)
        rejected = rows - 1 - right
        sequence.written_tokens -= rejected
        self._written_tokens -= rejected
        return kept

    def make_ready(self, sequence: Sequence) -> None:
        """Its token is back and it wants another one."""
        sequence.ready = True
        self._ready_count += 1
        self._push_ready(sequence)

    def leave(self, sequence: Sequence, now_ns: int) -> None:
        """A running sequence is done: its KV goes back with the next microbatch."""
        self._stop_running(sequence)
        self.outstanding_tokens -= sequence.outstanding_tokens
        if not self.running and not len(self.waiting):
            self._empty_since_ns = now_ns

    def stop_scheduling(self, sequence: Sequence) -> None:
        """A running sequence gets no further work; it leaves when what is in flight has come back."""
        self.outstanding_tokens -= sequence.todo_tokens
        sequence.todo_tokens = 0
        self._unschedule(sequence)

    def drop_waiting(self, sequence: Sequence, now_ns: int) -> None:
        """A waiting sequence is given up before it was admitted (again)."""
        self.waiting.remove(sequence)
        self._await_room(sequence, -1)
        self.outstanding_tokens -= sequence.outstanding_tokens
        if not self.running and not len(self.waiting):
            self._empty_since_ns = now_ns

    def take_releases(self) -> tuple[int, ...]:
        """KV given back since the last microbatch."""
        releases, self.releases = tuple(self.releases), []
        if self.cache is not None:
            releases += self.cache.take_evicted()
        return releases

    def last_releases(self) -> tuple[int, ...]:
        """The run is over: everything that is still held, cached blocks too."""
        if self.cache is not None:
            self.cache.clear()
        return self.take_releases()

    # -- forming microbatches

    def form(self, now_ns: int) -> list[Formed]:
        """Every microbatch that may leave now."""
        out: list[Formed] = []
        work = self.has_work
        if work and not self._had_work:
            self._work_since_ns = now_ns
            empty = self._empty_since_ns
            self._empty_stamp_ns = now_ns if empty is None else empty
        if work:
            self._empty_since_ns = None
        while work and self.credits and now_ns >= self.gate_ns:
            forming = self._draft()
            if not forming.members:
                break
            out.append(self._dispatch(forming, now_ns))
            work = self.has_work
            self._work_since_ns = self._empty_stamp_ns = now_ns
        self._had_work = work
        return out

    def next_timer_ns(self, now_ns: int) -> int:
        """When the gate alone would let work start; NEVER if something else is missing."""
        if self._had_work and self.credits and self.gate_ns > now_ns:
            return self.gate_ns
        return NEVER

    def _draft(self) -> Forming:
        running = len(self.running)
        context = self._written_tokens // running if running else 0
        forming = Forming(self.sizing.limit(running, len(self.waiting), context), self.batched_tokens)
        self._add_decodes(forming)
        if self._partial and forming.room:
            self._add_partials(forming)
        if len(self.waiting) and forming.room:
            self._admit(forming)
        return forming

    def _add_decodes(self, forming: Forming) -> None:
        kept = []
        ready, grow, decode, speculation = self._ready, self.kv.grow, forming.decode, self.speculation
        tokens = 1
        room = min(forming.limit, forming.tokens_left)  # a decode step is one member and at least one token
        while ready and room:
            sequence = heapq.heappop(ready)[2]
            if not sequence.ready:
                continue  # stale: it was preempted or left since
            if speculation is not None:
                tokens = speculation.step_tokens(sequence, forming.tokens_left)
            if grow(self, sequence, tokens, forming):
                sequence.ready = False
                room -= 1
                if tokens == 1:
                    decode(sequence)
                else:
                    forming.verify(sequence, tokens)
                    room = min(room, forming.tokens_left)
            else:
                kept.append(sequence)
        self._ready_count -= len(forming.members)
        self._written_tokens += len(forming.members) + forming.draft_tokens
        for sequence in kept:
            if sequence.ready:
                self._push_ready(sequence)

    def _add_partials(self, forming: Forming) -> None:
        for sequence in tuple(self._partial):
            if not forming.room:
                break
            if not sequence.running:
                continue  # preempted a moment ago
            chunk = min(sequence.todo_tokens, forming.tokens_left)
            if self.kv.grow(self, sequence, chunk, forming):
                self._prefill(forming, sequence, chunk)
                if not sequence.todo_tokens:
                    self._partial.remove(sequence)

    def _admit(self, forming: Forming) -> None:
        while forming.room and len(self.running) < self.max_running:
            sequence = self.waiting.head()
            if sequence is None:
                break
            if self.cache is not None:
                self._reuse(self.cache, sequence)
            chunk = min(sequence.todo_tokens, forming.tokens_left)
            if not self.kv.admit(sequence, chunk, forming):
                self._forget(sequence)
                break
            self.waiting.pop()
            self._await_room(sequence, -1)
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
        forming.prefill(sequence, chunk)
        self._written_tokens += chunk
        self.outstanding_tokens -= chunk
        if self.cache is not None:
            self.cache.cache_full_blocks(sequence, forming.grants)

    def _dispatch(self, forming: Forming, now_ns: int) -> Formed:
        self.credits -= 1
        stamps = (self._work_since_ns, self._empty_stamp_ns, self._credit_since_ns)
        microbatch = forming.seal(self.formed, now_ns, stamps, self.take_releases())
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
        formed = Item(arrival, now_ns, microbatch), forming.members
        self.in_flight.append(formed)
        if microbatch.grants or microbatch.releases:
            self.mirror.sample_peaks()
        return formed

    # -- the prefix cache

    def _reuse(self, cache: PromptCache, sequence: Sequence) -> None:
        """Take what is resident of its prompt: those tokens are not prefilled."""
        cached = cache.acquire(sequence)
        sequence.todo_tokens -= cached
        sequence.written_tokens = cached
        self.outstanding_tokens -= cached
        self._written_tokens += cached

    def _forget(self, sequence: Sequence) -> None:
        """It could not be admitted after all."""
        cached = sequence.written_tokens
        if self.cache is not None:
            self.cache.release(sequence)
        sequence.todo_tokens += cached
        sequence.written_tokens = 0
        self.outstanding_tokens += cached
        self._written_tokens -= cached

    # -- preemption

    def victim(self, grower: Sequence) -> Sequence | None:
        """The youngest running sequence with nothing in flight; members of the draft count as in flight."""
        idle = (s for s in self.running.values() if not s.in_flight and s is not grower)
        return max(idle, key=_number, default=None)

    def preempt(self, sequence: Sequence) -> None:
        """Take its KV; it returns to the head of the queue with prompt and generated tokens to prefill."""
        self.outstanding_tokens -= sequence.todo_tokens
        self._stop_running(sequence)
        sequence.preemptions += 1
        sequence.todo_tokens = sequence.request.prompt_tokens + sequence.generated
        self.outstanding_tokens += sequence.todo_tokens
        self._await_room(sequence, 1)
        self.waiting.push_front(sequence)

    def _stop_running(self, sequence: Sequence) -> None:
        del self.running[sequence.request.index]
        sequence.running = False
        self._unschedule(sequence)
        self.mirror.allocate(-sequence.blocks, -1, sequence.blocks)
        self.releases.append(sequence.request.index)
        self._written_tokens -= sequence.written_tokens
        sequence.blocks = sequence.written_tokens = 0
        if self.cache is not None:
            self.cache.release(sequence)

    def _unschedule(self, sequence: Sequence) -> None:
        if sequence.ready:
            sequence.ready = False
            self._ready_count -= 1
        if sequence in self._partial:
            self._partial.remove(sequence)

    def _push_ready(self, sequence: Sequence) -> None:
        self._pushes += 1
        heapq.heappush(self._ready, (_number(sequence), self._pushes, sequence))

    def _await_room(self, sequence: Sequence, sign: int) -> None:
        """It begins (1) or ceases (-1) to wait for what it will hold at most."""
        r = sequence.request
        blocks = self.mirror.blocks_for(r.prompt_tokens + r.max_output_tokens)
        self.waiting_blocks += sign * blocks
        if self.waiting_kept:
            kept = self.mirror.kept_of(blocks)
            self.waiting_kept = [a + sign * b for a, b in zip(self.waiting_kept, kept, strict=True)]


def _number(sequence: Sequence) -> int:
    return sequence.number or 0
