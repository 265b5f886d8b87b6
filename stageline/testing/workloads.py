"""Where requests come from in tests: a list, or users who wait for their answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stageline.engine.types import NEVER, Cancellation, Request


def request(
    index: int = 0, arrival_ns: int = 0, *, prompt_tokens: int = 4, output_tokens: int = 3, **more: Any
) -> Request:
    """One request; it may produce as much as it will, unless `max_output_tokens` says more. `more`: fields of Request.

    The indices of a workload count from 0.
    """
    more.setdefault("max_output_tokens", output_tokens)
    return Request(index=index, arrival_ns=arrival_ns, prompt_tokens=prompt_tokens, output_tokens=output_tokens, **more)


@dataclass
class ListWorkload:
    """Requests and cancellations known beforehand, in the order of their times. `ended`: who left, and when."""

    events: Sequence[Request | Cancellation]
    taken: int = 0
    ended: list[tuple[int, int]] = field(default_factory=list)  # index, time
    reactive: bool = False

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        if self.taken == len(self.events):
            return None
        head = self.events[self.taken]
        return head.at_ns if isinstance(head, Cancellation) else head.arrival_ns

    def horizon_ns(self) -> int:
        """See Workload."""
        return NEVER

    def take(self) -> Request | Cancellation:
        """See Workload."""
        self.taken += 1
        return self.events[self.taken - 1]

    def finished(self, index: int, now_ns: int) -> None:
        """See Workload. Nothing depends on it."""
        self.ended.append((index, now_ns))


@dataclass
class UsersWorkload:
    """A closed loop: each user sends one request after the other, `think_ns` after the previous one left.

    `users[u]` are the requests of user u, who starts at `starts_ns[u]`. Their indices and arrivals are overwritten:
    requests are numbered in the order in which they are sent.
    """

    users: Sequence[Sequence[Request]]
    starts_ns: Sequence[int]
    think_ns: int
    planned: list[tuple[int, int]] = field(init=False)  # arrival, user
    sent: list[int] = field(init=False)  # per user
    user_of: list[int] = field(default_factory=list)  # per index
    reactive: bool = True

    def __post_init__(self) -> None:
        self.sent = [0 for _ in self.users]
        self.planned = [(start_ns, u) for u, start_ns in enumerate(self.starts_ns) if self.users[u]]

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        return min(self.planned)[0] if self.planned else None

    def horizon_ns(self) -> int:
        """See Workload."""
        return NEVER

    def take(self) -> Request:
        """See Workload; equal times: the lower user first."""
        arrival_ns, user = min(self.planned)
        self.planned.remove((arrival_ns, user))
        sent = self.users[user][self.sent[user]]
        self.sent[user] += 1
        self.user_of.append(user)
        return msgspec.structs.replace(sent, index=len(self.user_of) - 1, arrival_ns=arrival_ns)

    def finished(self, index: int, now_ns: int) -> None:
        """See Workload. The user thinks, then sends the next one, if there is any."""
        user = self.user_of[index]
        if self.sent[user] < len(self.users[user]):
            self.planned.append((now_ns + self.think_ns, user))
