"""Results of a run that have not been sent to its client yet."""

from collections.abc import Iterator

from stageline.engine.types import Observer, RequestRecord
from stageline.v1 import router_pb2
from stageline.wire.runs import results_of

FULL = 1 << 15  # tokens and records, the size of a message; with more than that the run waits for its client


class ResultBuffer:
    """An Observer that collects columns. `tokens`: whether the client wants every token."""

    def __init__(self, *, tokens: bool) -> None:
        self._tokens = tokens
        self._clear()

    def _clear(self) -> None:
        self._indexes: list[int] = []
        self._times_ns: list[int] = []
        self._records: list[RequestRecord] = []
        self._before: list[int] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        if self._tokens:
            self._indexes.append(index)
            self._times_ns.append(now_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._records.append(record)
        self._before.append(len(self._indexes))

    @property
    def full(self) -> bool:
        """Whether the run is too far ahead of its client."""
        return len(self._indexes) + len(self._records) > FULL

    def take(self) -> Iterator[router_pb2.RunReply]:
        """Empty the buffer."""
        if self._indexes or self._records:
            results = results_of(self._indexes, self._times_ns, self._records, self._before)
            self._clear()
            yield router_pb2.RunReply(results=results)


class TeeObserver:
    """An Observer that forwards to two."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self._first, self._second = first, second

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        self._first.token(index, now_ns, since_ns)
        self._second.token(index, now_ns, since_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._first.request(record)
        self._second.request(record)
