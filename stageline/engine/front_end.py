"""The front end of a serving engine: what comes reaches the scheduler a constant time later."""

from stageline.engine.types import NEVER, Cancellation, Request, Workload


class BehindFrontEnd:
    """A Workload as the scheduler sees it. Requests keep the arrival that their client knows."""

    def __init__(self, workload: Workload, front_end_ns: int) -> None:
        self._workload, self._front_end_ns = workload, front_end_ns

    @property
    def reactive(self) -> bool:
        """See Workload."""
        return self._workload.reactive

    def next_arrival_ns(self) -> int | None:
        """See Workload."""
        at_ns = self._workload.next_arrival_ns()
        return None if at_ns is None else at_ns + self._front_end_ns

    def horizon_ns(self) -> int:
        """See Workload."""
        at_ns = self._workload.horizon_ns()
        return at_ns if at_ns >= NEVER else at_ns + self._front_end_ns

    def take(self) -> Request | Cancellation:
        """See Workload."""
        return self._workload.take()

    def finished(self, index: int, now_ns: int) -> None:
        """See Workload."""
        self._workload.finished(index, now_ns)
