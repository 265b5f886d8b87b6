"""Where requests come from in tests: a list, or users who wait for their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from stageline.engine.types import NEVER, Request


@dataclass(slots=True)
class ListWorkload:
    """Requests known beforehand, in arrival order."""

    requests: Sequence[Request]
    taken: int = 0
    reactive: bool = False

    def next_arrival_ns(self) -> int | None:
        """See `Workload`."""
        return self.requests[self.taken].arrival_ns if self.taken < len(self.requests) else None

    def take(self) -> Request:
        """See `Workload`."""
        self.taken += 1
        return self.requests[self.taken - 1]

    def horizon_ns(self) -> int:
        """See `Workload`."""
        return NEVER

    def finished(self, index: int, now_ns: int) -> None:
        """Nothing depends on it."""


@dataclass(slots=True)
class UsersWorkload:
    """A closed loop. Each user sends its requests one after the other, `think_ns` after the last one left.

    `users[u]` are the user's requests, whose index and arrival are still to be given; user u starts at `starts_ns[u]`.
    """

    users: Sequence[Sequence[Request]]
    starts_ns: Sequence[int]
    think_ns: int
    planned: list[tuple[int, int]] = field(default_factory=list)  # arrival, user
    sent: list[int] = field(default_factory=list)  # per user
    user_of: list[int] = field(default_factory=list)  # per index
    reactive: bool = True

    def __post_init__(self) -> None:
        self.sent = [0 for _ in self.users]
        self.planned = [(start_ns, u) for u, start_ns in enumerate(self.starts_ns) if self.users[u]]

    def next_arrival_ns(self) -> int | None:
        """See `Workload`."""
        return min(self.planned)[0] if self.planned else None

    def take(self) -> Request:
        """See `Workload`; equal times: the lower user first."""
        arrival_ns, user = min(self.planned)
        self.planned.remove((arrival_ns, user))
        request = msgspec.structs.replace(
            self.users[user][self.sent[user]], index=len(self.user_of), arrival_ns=arrival_ns
        )
        self.sent[user] += 1
        self.user_of.append(user)
        return request

    def horizon_ns(self) -> int:
        """See `Workload`."""
        return NEVER

    def finished(self, index: int, now_ns: int) -> None:
        """The user thinks, then sends its next one, if it has any left."""
        user = self.user_of[index]
        if self.sent[user] < len(self.users[user]):
            self.planned.append((now_ns + self.think_ns, user))
