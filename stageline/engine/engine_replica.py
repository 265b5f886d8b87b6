"""A replica whose microbatches form as a serving engine forms them under pipeline parallelism (rule 5)."""

import heapq

from stageline.engine.below import Hit
from stageline.engine.forming import Forming
from stageline.engine.policies.batching_policy import Load
from stageline.engine.policies.grouping import Grouping
from stageline.engine.policies.queueing import QUEUEING
from stageline.engine.replica import Formed, Incoming, Members, Replica
from stageline.engine.request_queue import RequestQueues
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling


class EngineReplica(Replica):
    """Has no gate. While microbatches are in flight it forms at returns only; `grouping` says who may join each."""

    def __init__(self, route: Route, index: int, scheduling: Scheduling, seed: int, grouping: Grouping) -> None:
        super().__init__(route, index, scheduling, seed)
        self.grouping = grouping
        self._queues: RequestQueues | None = None  # where every group has its own
        if grouping.own_queues:
            self.waiting = self._queues = RequestQueues(QUEUEING.make(scheduling), self.credits)
        self._just_returned = False  # a microbatch came back, and the engine has not looked at its work since
        self._waiting_tokens = 0  # that the waiting sequences have to prefill

    @property
    def gate_ns(self) -> int:
        """Always open: what has a slot leaves, and queues at the first stage."""
        return 0

    def enqueue(self, sequence: Sequence) -> None:
        """See Replica."""
        self.grouping.arrived(sequence)
        super().enqueue(sequence)

    def complete(self, now_ns: int) -> Members:
        """See Replica."""
        self.grouping.returned()
        self._just_returned = True
        return super().complete(now_ns)

    # -- forming microbatches

    def form_all(self, now_ns: int, out: list[Formed]) -> None:
        """See Replica."""
        grouping = self.grouping
        returned, self._just_returned = self._just_returned, False
        if self.in_flight or returned:
            self.stamps.credit_since_ns = now_ns  # what waited, waited for a return
        looks = grouping.own_loops or not self.in_flight
        if not (returned or (looks and self.has_work)):
            return
        for group in grouping.attempts():
            grouping.group = group
            forming = self.schedule(now_ns)
            if forming.members:
                grouping.dispatched(forming.members)
                out.append(self._dispatch(forming, now_ns))
                self.dispatched(now_ns)

    def schedule(self, now_ns: int) -> Forming:
        """See Replica."""
        unfinished = [*self._partial, *self._loading]
        prefill_tokens = self._waiting_tokens + sum(s.todo_tokens for s in unfinished)
        load = Load(len(self.running), len(self.waiting), len(unfinished), prefill_tokens)
        quota = self.batching.quota(load, self.batched_tokens)
        forming = Forming(quota.members, quota.tokens)
        self._schedule_own_decodes(forming, quota.decodes)
        for sequence in tuple(self._partial):
            if self.grouping.may_prefill(sequence):
                self._schedule_chunk(forming, sequence)
        if len(self.waiting) and forming.has_room:
            if self._queues is not None:
                self._queues.turn(self.grouping.group)
            self.schedule_waiting(forming, now_ns)
        return forming

    def _schedule_own_decodes(self, forming: Forming, limit: int) -> None:
        """As `_schedule_decodes`, but only members of the group, and `limit` of them."""
        kept, tokens = [], 1
        while self._ready and forming.has_room and len(forming.members) < limit:
            sequence = heapq.heappop(self._ready)[2]
            if not sequence.ready:
                continue
            if self.speculation is not None:
                tokens = self.speculation.step_tokens(sequence, forming.tokens_left)
            if not self.grouping.may_decode(sequence) or not self.allocate_slots(sequence, tokens, forming):
                kept.append(sequence)
                continue
            sequence.ready = False
            if tokens == 1:
                forming.add_decode(sequence)
            else:
                forming.add_verification(sequence, tokens)
            if self.cache is not None:
                self.cache.cache_full_blocks(sequence, forming.grants)
        self._ready_count -= len(forming.members)
        self.written_tokens += len(forming.members) + forming.draft_tokens
        for sequence in kept:
            if sequence.ready:
                self._push_ready(sequence)

    def may_admit(self) -> bool:
        """See Replica."""
        return self.grouping.may_admit(len(self.running))

    def admit_head(self, incoming: Incoming, now_ns: int) -> bool:
        """See Replica; where every group has a queue of its own, the first whose head there is room for."""
        if self._queues is None:
            return super().admit_head(incoming, now_ns)
        for group in range(self.grouping.slots):
            self._queues.turn(group)
            if super().admit_head(incoming, now_ns):
                return True
        return False

    def _hold(self, sequence: Sequence, incoming: Incoming) -> bool:
        if not super()._hold(sequence, incoming):
            return False
        self.grouping.received(sequence)
        return True

    def was_there(self, sequence: Sequence) -> bool:
        """See Replica."""
        return self.grouping.was_there(sequence)

    def admit(self, sequence: Sequence, chunk: int, forming: Forming) -> None:
        """See Replica."""
        self.grouping.admitted(sequence)
        super().admit(sequence, chunk, forming)

    def admit_load(self, sequence: Sequence, hit: Hit, now_ns: int) -> None:
        """See Replica."""
        self.grouping.admitted(sequence)
        super().admit_load(sequence, hit, now_ns)

    # -- preemption, finishing

    def victim(self, grower: Sequence) -> Sequence | None:
        """See Replica; where groups take turns or steps only younger ones, or two preempt each other for ever."""
        found = super().victim(grower)
        if found is not None and self.grouping.younger_victims and (found.number or 0) < (grower.number or 0):
            return None
        return found

    def _stop(self, sequence: Sequence) -> None:
        self.grouping.stopped(sequence)
        super()._stop(sequence)

    def leave(self, sequence: Sequence, now_ns: int) -> None:
        """See Replica."""
        self.grouping.left(sequence)
        super().leave(sequence, now_ns)

    def count_waiting(self, sequence: Sequence, sign: int) -> None:
        """See Replica."""
        if not sequence.incoming:
            self._waiting_tokens += sign * (sequence.request.prompt_tokens + sequence.generated)
        super().count_waiting(sequence, sign)


def make_replica(route: Route, index: int, scheduling: Scheduling, seed: int) -> Replica:
    """The replica that the batching policy asks for."""
    replica = Replica(route, index, scheduling, seed)
    grouping = replica.batching.grouping(replica.max_running)
    return replica if grouping is None else EngineReplica(route, index, scheduling, seed, grouping)
