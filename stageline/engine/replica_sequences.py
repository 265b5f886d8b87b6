"""The sequences of one replica (rules 5, 6, 11 and 12): who waits, runs, may be preempted, goes on elsewhere."""

import heapq

from stageline.engine.idle_stamps import IdleStamps
from stageline.engine.replica_kv import ReplicaKv
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling


class ReplicaSequences(ReplicaKv):
    """Queue and running sequences of a replica, their KV, and since when there were none of its own."""

    def __init__(self, route: Route, scheduling: Scheduling) -> None:
        super().__init__(route, scheduling)
        self.admissions = 0
        self._ready: list[tuple[int, int, Sequence]] = []  # heap by admission number; may hold stale entries
        self._ready_count = 0
        self._pushes = 0
        self._partial: list[Sequence] = []  # running, prompt not yet fully scheduled; by admission number
        self._loading: list[Sequence] = []  # running, part of their prompt on the way from tiers
        self.without_room: set[int] = set()  # request indexes of running ones that found none when they last asked
        self.stamps = IdleStamps()
        self._own = 0  # requests here but those whose KV comes from elsewhere and has not landed

    # -- what happens to requests

    def enqueue(self, sequence: Sequence) -> None:
        """A request arrived and was bound to this replica."""
        self.outstanding_tokens += sequence.outstanding_tokens
        self.count_waiting(sequence, 1)
        self.waiting.add(sequence)
        self.stamps.came(to_none=not self._own)
        self._own += not sequence.incoming

    def run(self, sequence: Sequence) -> None:
        """A waiting sequence has been admitted."""
        self.count_waiting(sequence, -1)
        if sequence.number is None:
            sequence.number = self.admissions
            self.admissions += 1
        sequence.running = True
        self.running[sequence.request.index] = sequence

    def goes_on(self, sequence: Sequence) -> None:
        """A running sequence has more of its prompt to prefill."""
        self._partial.append(sequence)
        self._partial.sort(key=number_of)

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

    # -- preemption, finishing

    def victim(self, grower: Sequence) -> Sequence | None:
        """The youngest running sequence with nothing in flight; members of the one being formed count as in flight."""
        idle = (s for s in self.running.values() if not s.in_flight and not s.fixed and s is not grower)
        return max(idle, key=number_of, default=None)

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
        self.without_room.discard(sequence.request.index)
        self._unschedule(sequence)
        self.written_tokens -= sequence.written_tokens

    # -- KV that goes elsewhere, or comes from there

    def pin(self, sequence: Sequence, now_ns: int) -> None:
        """Its prompt is done and it decodes elsewhere: it is no longer here, but its KV is, until `unpin`."""
        self._stop(sequence)
        self.pinned[sequence.request.index] = sequence
        self.leave(sequence, now_ns)

    def land(self, sequence: Sequence) -> None:
        """Its KV is here: it decodes or goes on with its prompt, and others can hit its full blocks."""
        sequence.incoming = False
        sequence.in_flight -= 1
        self.stamps.came(to_none=not self._own)
        self._own += 1
        if self.cache is not None:
            self.cache.cache_full_blocks(sequence, self.between.grants, computed=False)
        if sequence.todo_tokens:
            self._loading.remove(sequence)
            self.goes_on(sequence)
        else:
            self.set_ready(sequence)

    def _unschedule(self, sequence: Sequence) -> None:
        if sequence.ready:
            sequence.ready = False
            self._ready_count -= 1
        for unfinished in (self._partial, self._loading):
            if sequence in unfinished:
                unfinished.remove(sequence)

    def _push_ready(self, sequence: Sequence) -> None:
        self._pushes += 1
        heapq.heappush(self._ready, (number_of(sequence), self._pushes, sequence))


def number_of(sequence: Sequence) -> int:
    """Its admission number."""
    return sequence.number or 0
