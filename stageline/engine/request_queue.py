"""The waiting sequences of one replica, in the order in which they are scheduled."""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from stageline.engine.policies.queueing import QUEUEING, QueueingPolicy, QueueState, StateAwarePolicy
from stageline.engine.policies.users_key import UsersKeys
from stageline.engine.sequence import Sequence


class RequestQueue:
    """Preempted sequences first, the last one preempted at the head; then the others by policy, equal keys by arrival.

    Keys are computed at two moments only: those of a static policy when a sequence is added, those of a state-aware one
    in `reorder`. In between the order does not change, so `take` removes the very sequence that `peek` has shown.
    """

    def __init__(self, policy: QueueingPolicy) -> None:
        built_in = type(policy) in QUEUEING.built_in.values()
        key: Callable[..., Any] = policy.key if built_in else UsersKeys(policy)
        self._key_at_formation = key if isinstance(policy, StateAwarePolicy) else None
        self._key_at_arrival = None if isinstance(policy, StateAwarePolicy) else key
        self._heap: list[tuple[Any, int, Sequence]] = []  # key, number of arrival; state-aware: no heap until `reorder`
        self._preempted: deque[Sequence] = deque()
        self._added = 0

    @property
    def state_aware(self) -> bool:
        """Whether the order must be computed again at every formation."""
        return self._key_at_formation is not None

    def __len__(self) -> int:
        return len(self._heap) + len(self._preempted)

    def add(self, sequence: Sequence) -> None:
        """A request arrived; O(log n)."""
        if self._key_at_arrival is not None:
            heapq.heappush(self._heap, (self._key_at_arrival(sequence.request), self._added, sequence))
        else:
            self._heap.append((None, self._added, sequence))
        self._added += 1

    def prepend(self, sequence: Sequence) -> None:
        """A sequence was preempted: it goes before all others."""
        self._preempted.appendleft(sequence)

    def reorder(self, state: QueueState) -> None:
        """Sort by the keys that a state-aware policy computes now; O(n). The order holds until the next call."""
        key = self._key_at_formation
        if key is not None:
            self._heap = [(key(s.request, state), number, s) for _, number, s in self._heap]
            heapq.heapify(self._heap)

    def peek(self) -> Sequence | None:
        """The sequence that `take` would remove; None when nobody waits. A state-aware order needs `reorder` first."""
        if self._preempted:
            return self._preempted[0]
        return self._heap[0][2] if self._heap else None

    def take(self) -> Sequence:
        """Remove and return what `peek` shows; IndexError when nobody waits. O(log n)."""
        return self._preempted.popleft() if self._preempted else heapq.heappop(self._heap)[2]

    def remove(self, sequence: Sequence) -> None:
        """Remove one from the middle: its client left. O(n)."""
        if sequence in self._preempted:
            self._preempted.remove(sequence)
            return
        self._heap = [entry for entry in self._heap if entry[2] is not sequence]
        if not self.state_aware:
            heapq.heapify(self._heap)


class RequestQueues:
    """One queue per group of a `Grouping`; `turn` says which one `reorder`, `peek` and `take` mean."""

    def __init__(self, policy: QueueingPolicy, groups: int) -> None:
        self._queues = [RequestQueue(policy) for _ in range(groups)]
        self._now = self._queues[0]

    @property
    def state_aware(self) -> bool:
        """See RequestQueue."""
        return self._now.state_aware

    def turn(self, group: int) -> None:
        """The queue that the next calls mean."""
        self._now = self._queues[group]

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues)

    def add(self, sequence: Sequence) -> None:
        """See RequestQueue."""
        self._queues[sequence.group or 0].add(sequence)

    def prepend(self, sequence: Sequence) -> None:
        """See RequestQueue."""
        self._queues[sequence.group or 0].prepend(sequence)

    def remove(self, sequence: Sequence) -> None:
        """See RequestQueue."""
        self._queues[sequence.group or 0].remove(sequence)

    def reorder(self, state: QueueState) -> None:
        """See RequestQueue."""
        self._now.reorder(state)

    def peek(self) -> Sequence | None:
        """See RequestQueue."""
        return self._now.peek()

    def take(self) -> Sequence:
        """See RequestQueue."""
        return self._now.take()
