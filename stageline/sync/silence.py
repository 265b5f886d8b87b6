"""How long others have owed something, in time that this process was there to hear it."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Silence(Generic[K]):
    """Counts, tick by tick, how long each debtor has owed the same thing.

    A tick counts for at most `longest_tick_ns`: a process that was itself stopped blames nobody for that time. It reads
    no clock.
    """

    def __init__(self, longest_tick_ns: int) -> None:
        self.owed_ns: dict[K, int] = {}
        self._longest_tick_ns = longest_tick_ns
        self._debts: dict[K, object] = {}
        self._ticked_ns: int | None = None

    def tick(self, now_ns: int, debts: Mapping[K, object]) -> None:
        """At `now_ns` these are owed, each with what tells it from the one before."""
        passed_ns = 0 if self._ticked_ns is None else min(now_ns - self._ticked_ns, self._longest_tick_ns)
        self._ticked_ns = now_ns
        owed_ns = {
            debtor: self.owed_ns[debtor] + passed_ns if self._debts.get(debtor) == debt else 0
            for debtor, debt in debts.items()
        }
        self.owed_ns, self._debts = owed_ns, dict(debts)
