"""Who waits in which order: one policy, one class. A user's own is named "package.module:Class"."""

import heapq
import importlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any

from stageline.engine.sequence import Sequence
from stageline.engine.types import Request
from stageline.errors import UsageError


class QueueingPolicy(ABC):
    """Orders the waiting requests of a replica; the smallest key is admitted first, equal keys by arrival."""

    @abstractmethod
    def key(self, request: Request) -> Any:
        """A sortable key, computed once when the request arrives. Must depend on the request alone."""


class Fcfs(QueueingPolicy):
    """First come, first served."""

    def key(self, request: Request) -> int:
        """All alike: arrival order decides."""
        return 0


class ShortestFirst(QueueingPolicy):
    """The shortest prompt first."""

    def key(self, request: Request) -> int:
        """The prompt's length in tokens; the output's is not known to a router."""
        return request.prompt_tokens


class Priority(QueueingPolicy):
    """The smallest priority number first."""

    def key(self, request: Request) -> int:
        """The request's own priority."""
        return request.priority


POLICIES: dict[str, type[QueueingPolicy]] = {"fcfs": Fcfs, "shortest": ShortestFirst, "priority": Priority}


def load_policy(name: str) -> QueueingPolicy:
    """A built-in policy by name, or a user's class by "package.module:Class". Raises UsageError."""
    if name in POLICIES:
        return POLICIES[name]()
    module, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(f"--policy {name}: not one of {', '.join(POLICIES)} and not of the form package.module:Class")
    try:
        policy = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise UsageError(f"--policy {name}: {e}; the class must be importable") from e
    if not (isinstance(policy, type) and callable(getattr(policy, "key", None))):
        raise UsageError(f"--policy {name}: not a class with a method key(request)")
    try:
        return policy()  # type: ignore[no-any-return]
    except TypeError as e:
        raise UsageError(f"--policy {name}: {e}; the class must take no arguments") from e


class WaitingQueue:
    """Preempted sequences at the head, the others by policy. Cancelled ones are dropped when they surface."""

    def __init__(self, policy: QueueingPolicy) -> None:
        self._policy = policy
        self._heap: list[tuple[Any, int, Sequence]] = []
        self._resumed: deque[Sequence] = deque()
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._resumed)

    def push(self, sequence: Sequence) -> None:
        """A new arrival."""
        heapq.heappush(self._heap, (self._policy.key(sequence.request), self._pushed, sequence))
        self._pushed += 1

    def push_front(self, sequence: Sequence) -> None:
        """A preempted sequence goes before everybody."""
        self._resumed.appendleft(sequence)

    def head(self) -> Sequence | None:
        """Who is next; None when nobody waits."""
        if self._resumed:
            return self._resumed[0]
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Sequence:
        """Take the head."""
        return self._resumed.popleft() if self._resumed else heapq.heappop(self._heap)[2]

    def remove(self, sequence: Sequence) -> None:
        """Take one out of the middle (a client that left); O(n)."""
        if sequence in self._resumed:
            self._resumed.remove(sequence)
            return
        self._heap = [entry for entry in self._heap if entry[2] is not sequence]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._resumed
        yield from (entry[2] for entry in sorted(self._heap, key=lambda e: e[:2]))
