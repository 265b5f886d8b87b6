"""Several StageObservers in the place of one."""

from collections.abc import Mapping

from stageline.engine.types import StageObserver


class TeeStageObserver:
    """Passes every event to each of them, in order."""

    def __init__(self, *observers: StageObserver) -> None:
        self._observers = observers

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """See StageObserver."""
        for observer in self._observers:
            observer.served(replica, stage, visit, number, arrival_ns, start_ns, end_ns)

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """See StageObserver."""
        for observer in self._observers:
            observer.gap(replica, stage, start_ns, idle_ns)

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """See StageObserver."""
        for observer in self._observers:
            observer.kv(replica, stage, now_ns, used_bytes)
