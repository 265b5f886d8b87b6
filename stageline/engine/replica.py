"""The scheduler of one pipeline: which requests run, when a microbatch may leave, who is in it (rules 5, 6 and 9)."""

import heapq
from collections import deque

from stageline.engine.forming import Forming
from stageline.engine.microbatch import Item, Trail
from stageline.engine.mirror import KvMirror
from stageline.engine.policies.batching import BATCHING
from stageline.engine.policies.kv import KV
from stageline.engine.policies.queueing import QUEUEING, QueueState
from stageline.engine.prompt_cache import PromptCache, make_cache
from stageline.engine.request_queue import RequestQueue, RequestQueues
from stageline.engine.rng import STREAM_EXPERTS, draw_at, stream_key
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling, data_parallel_ranks
from stageline.engine.speculation import make_speculation
from stageline.engine.types import NEVER, Request
from stageline.errors import LawBroken

Members = list[tuple[Sequence, int]]  # with the rows sampled for each
Formed = tuple[Item, Members]  # a microbatch on link 0, and who is in it


class Replica:
    """The credits (in-flight limit), gate, mirror, waiting and running sequences of one pipeline."""

    def __init__(self, route: Route, index: int, scheduling: Scheduling, seed: int) -> None:
        defaults = route.plan.defaults
        self.route, self.index = route, index
        self.credits = self.all_credits = scheduling.credits or defaults.credits
        self.batched_tokens = scheduling.batched_tokens or defaults.batched_tokens
        self._chunk_tokens = -(-self.batched_tokens // data_parallel_ranks(route.plan))  # most of one prompt
        self.max_running = scheduling.max_running or NEVER
        self.overhead_ns = scheduling.overhead_ns
        largest = scheduling.microbatch or defaults.microbatch
        self.batching = BATCHING.find(scheduling)(route, self.credits, largest, scheduling)
        self.waiting: RequestQueue | RequestQueues = RequestQueue(QUEUEING.make(scheduling))
        self.running: dict[int, Sequence] = {}  # by request index
        self.mirror = KvMirror(route.plan)
        self.cache = make_cache(self.mirror, route, scheduling)
        self.kv = KV.find(scheduling)(self.mirror, self.cache)
        self.speculation = make_speculation(scheduling, seed)
        self.link = route.link(0, index, seed)
        self.in_flight: deque[Formed] = deque()
        self.releases: list[int] = []
        self.outstanding_tokens = 0
        self._waiting_blocks = 0  # the most that the waiting sequences will hold
        self._waiting_kept = [0] * len(self.mirror.caps)  # of that, what windows will keep
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

    # -- what policies and the router read

    def fits_empty(self, request: Request) -> bool:
        """Whether its KV fits the ledgers while nobody else uses them."""
        return self.mirror.fits_empty(self.mirror.blocks_for(self.kv.max_tokens(request)))

    def kv_fill(self) -> int:
        """See `ReplicaState` of the routing policies."""
        return self.mirror.fill(self._waiting_blocks, len(self.waiting), self._waiting_kept)

    def kv_in_use(self) -> int:
        """KV of the fullest stage that no eviction would free, in units of 2**-40 of its budget."""
        if self.cache is None:
            return self.mirror.fill(0, 0)
        blocks, states, kept = self.cache.evictable()
        return self.mirror.fill(-blocks, -states, [-n for n in kept])

    def cached_blocks(self, request: Request) -> int:
        """See `ReplicaState` of the routing policies."""
        return len(self.cache.match(request.hash_ids, request.prompt_tokens)) if self.cache is not None else 0

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

    def complete(self, now_ns: int) -> Members:
        """The oldest microbatch in flight is back; returns its members. The caller finishes the sequences that end."""
        _, members = self.in_flight.popleft()
        if not self.credits:
            self._credit_since_ns = now_ns
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
        self._written_tokens -= rejected
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

    def take_releases(self) -> tuple[int, ...]:
        """Owners whose KV was freed since the last microbatch."""
        releases, self.releases = tuple(self.releases), []
        if self.cache is not None:
            releases += self.cache.take_evicted()
        return releases

    def last_releases(self) -> tuple[int, ...]:
        """The run is over: owners of everything that is still held, cached blocks included."""
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
        self.form_all(now_ns, out)
        self._had_work = self.has_work
        return out

    def form_all(self, now_ns: int, out: list[Formed]) -> None:
        """Add to `out` every microbatch that may leave now."""
        while self.credits and self.has_work and now_ns >= self.gate_ns:
            forming = self.schedule(now_ns)
            if not forming.members:
                return
            out.append(self._dispatch(forming, now_ns))
            self._work_since_ns = self._empty_stamp_ns = now_ns

    def next_timer_ns(self, now_ns: int) -> int:
        """When the gate alone would let work start; NEVER if something else is missing."""
        if self._had_work and self.credits and self.gate_ns > now_ns:
            return self.gate_ns
        return NEVER

    def schedule(self, now_ns: int) -> Forming:
        """The members of one microbatch; none when nothing that could join has room."""
        running = len(self.running)
        context = self._written_tokens // running if running else 0
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
        self._written_tokens += len(forming.members) + forming.draft_tokens
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
            if sequence is None or not self.was_there(sequence):
                break
            if self.cache is not None:
                self._acquire_prefix(self.cache, sequence)
            chunk = min(sequence.todo_tokens, forming.tokens_left, self._chunk_tokens)
            if not self.kv.admit(sequence, chunk, forming):
                self._release_prefix(sequence)
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
        formed = Item(arrival, Trail(now_ns), microbatch), forming.members
        self.in_flight.append(formed)
        if microbatch.grants or microbatch.releases:
            self.mirror.sample_peaks()
        return formed

    # -- the prefix cache

    def _acquire_prefix(self, cache: PromptCache, sequence: Sequence) -> None:
        """Hold the cached blocks of its prompt: their tokens are not prefilled."""
        cached = cache.acquire(sequence)
        sequence.todo_tokens -= cached
        sequence.written_tokens = cached
        self.outstanding_tokens -= cached
        self._written_tokens += cached

    def _release_prefix(self, sequence: Sequence) -> None:
        """It can't be admitted: undo `_acquire_prefix`."""
        cached = sequence.written_tokens
        if self.cache is not None:
            self.cache.release(sequence)
        sequence.todo_tokens += cached
        sequence.written_tokens = 0
        self.outstanding_tokens += cached
        self._written_tokens -= cached

    # -- preemption, finishing

    def victim(self, grower: Sequence) -> Sequence | None:
        """The youngest running sequence with nothing in flight; members of the one being formed count as in flight."""
        idle = (s for s in self.running.values() if not s.in_flight and s is not grower)
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
        del self.running[sequence.request.index]
        sequence.running = False
        self._unschedule(sequence)
        self.mirror.free(sequence.blocks, 1, self.mirror.kept_of(sequence.blocks + sequence.cached_blocks))
        self.releases.append(sequence.request.index)
        self._written_tokens -= sequence.written_tokens
        sequence.blocks = sequence.written_tokens = 0
        if self.cache is not None:
            self.cache.release(sequence)

    def leave(self, sequence: Sequence, now_ns: int) -> None:
        """It has finished or was cancelled."""
        self.outstanding_tokens -= sequence.outstanding_tokens
        if not self.running and not len(self.waiting):
            self._empty_since_ns = now_ns

    def _unschedule(self, sequence: Sequence) -> None:
        if sequence.ready:
            sequence.ready = False
            self._ready_count -= 1
        if sequence in self._partial:
            self._partial.remove(sequence)

    def _push_ready(self, sequence: Sequence) -> None:
        self._pushes += 1
        heapq.heappush(self._ready, (_number(sequence), self._pushes, sequence))

    def count_waiting(self, sequence: Sequence, sign: int) -> None:
        """It starts (1) or stops (-1) waiting: count the most KV that it will hold."""
        blocks = self.mirror.blocks_for(self.kv.max_tokens(sequence.request))
        self._waiting_blocks += sign * blocks
        if self._waiting_kept:
            kept = self.mirror.kept_of(blocks)
            self._waiting_kept = [a + sign * b for a, b in zip(self._waiting_kept, kept, strict=True)]


def _number(sequence: Sequence) -> int:
    return sequence.number or 0
