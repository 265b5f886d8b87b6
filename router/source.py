"""The requests of a run that its client has sent."""

from collections import deque

from stageline.engine.types import NEVER, Request
from stageline.errors import ProtocolError


class RowsSource:
    """Holds the requests of a run in the order of arrival; see `stageline.engine.types.Source`."""

    reactive = False

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self._indexes: set[int] = set()
        self.total = 0

    def add(self, requests: list[Request]) -> None:
        """Takes some more. Raises ProtocolError when they are out of order or named twice."""
        for request in requests:
            if self._requests and request.arrival_ns < self._requests[-1].arrival_ns:
                raise ProtocolError(f"request {request.index} arrives before the one that was sent ahead of it")
            if request.index in self._indexes:
                raise ProtocolError(f"request {request.index} was sent twice")
            self._requests.append(request)
            self._indexes.add(request.index)
            self.total += 1

    def next_arrival_ns(self) -> int | None:
        """See Source."""
        return self._requests[0].arrival_ns if self._requests else None

    def horizon_ns(self) -> int:
        """See Source: a run begins when all rows are here."""
        return NEVER

    def take(self) -> Request:
        """See Source."""
        return self._requests.popleft()

    def finished(self, index: int, now_ns: int) -> None:
        """Arrivals depend on nothing."""
