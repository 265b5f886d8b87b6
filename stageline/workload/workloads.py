"""The workloads that engines take requests from; all implement `stageline.engine.types.Workload`."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from stageline.engine.types import NEVER, Cancellation, Request, Workload
from stageline.workload.rows import RowCounts


class DescribedWorkload(Workload, Protocol):
    """A workload that can describe itself and its progress."""

    @property
    def description(self) -> str:
        """What it is, for people and for summary.json."""
        ...

    @property
    def counts(self) -> RowCounts:
        """What became of its rows so far."""
        ...

    @property
    def hash_block_tokens(self) -> int:
        """Tokens that one hash id stands for; 0: requests carry no hash ids."""
        ...

    def fraction(self) -> float:
        """Share that has been taken, 0 to 1, for progress bars."""
        ...


class IteratedWorkload:
    """Requests, and in recordings cancellations, from an iterator in order of time. Reads one ahead."""

    reactive = False

    def __init__(
        self,
        requests: Iterator[Request | Cancellation] | Iterator[Request],
        *,
        description: str,
        counts: RowCounts,
        fraction: Callable[[], float],
        hash_block_tokens: int = 0,
    ) -> None:
        self._requests: Iterator[Request | Cancellation] = iter(requests)
        self._head = next(self._requests, None)
        self._fraction = fraction
        self.description = description
        self.counts = counts
        self.hash_block_tokens = hash_block_tokens

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        head = self._head
        if head is None:
            return None
        return head.at_ns if isinstance(head, Cancellation) else head.arrival_ns

    def take(self) -> Request | Cancellation:
        """See Workload. A bad row of a trace raises BadInput here, about one reorder window before its turn."""
        head = self._head
        if head is None:
            raise LookupError("take() when no arrival is known")
        self._head = next(self._requests, None)
        return head

    def finished(self, index: int, now_ns: int) -> None:
        """Open loop: arrivals do not depend on replies."""

    def horizon_ns(self) -> int:
        """See Workload: the next request is always known."""
        return NEVER

    def fraction(self) -> float:
        """See DescribedWorkload."""
        return 1.0 if self._head is None else self._fraction()


class ClosedLoop:
    """A fixed number of users; each sends its next request `think_ns` after its previous one left the system.

    All users begin at 0. Requests due at the same time go by user number. The lengths of a request depend only on its
    user and on how many that user has sent, so no order of events can change them.
    """

    reactive = True
    hash_block_tokens = 0

    def __init__(
        self,
        *,
        users: int,
        think_ns: int,
        requests: int,
        lengths: Callable[[int, int], tuple[int, int, int]],
        description: str,
        models: Sequence[str] = ("",),
    ) -> None:
        """`models`: what users ask for, one after the other."""
        self._think_ns, self._models = think_ns, models
        self._limit = requests
        self._lengths = lengths
        self._due: list[tuple[int, int, int]] = [(0, user, 0) for user in range(min(users, requests))]
        self._waiting: dict[int, tuple[int, int]] = {}  # index → user, turn
        self.description = description
        self.counts = RowCounts()

    def next_arrival_ns(self) -> int | None:
        """See Workload; None while every user waits."""
        return self._due[0][0] if self._due and self.counts.accepted < self._limit else None

    def take(self) -> Request:
        """See Workload."""
        if self.next_arrival_ns() is None:
            raise LookupError("take() when no arrival is known")
        due_ns, user, turn = heapq.heappop(self._due)
        index = self.counts.accepted
        self.counts.accepted += 1
        self._waiting[index] = (user, turn)
        prompt, output, most = self._lengths(user, turn)
        return Request(
            index=index,
            arrival_ns=due_ns,
            prompt_tokens=prompt,
            output_tokens=output,
            max_output_tokens=most,
            conversation=f"user-{user}",
            model=self._models[user % len(self._models)],
        )

    def finished(self, index: int, now_ns: int) -> None:
        """Schedules the user's next request."""
        user, turn = self._waiting.pop(index)
        heapq.heappush(self._due, (now_ns + self._think_ns, user, turn + 1))

    def horizon_ns(self) -> int:
        """See Workload: only `finished` creates arrivals."""
        return NEVER

    def fraction(self) -> float:
        """See DescribedWorkload."""
        return self.counts.accepted / self._limit
