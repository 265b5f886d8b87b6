"""What a run has produced and its client has not been sent yet."""

from collections.abc import Iterator

from stageline.engine.types import RequestRecord
from stageline.v1 import router_pb2
from stageline.wire.runs import BATCH_ROWS, records_of

FULL = 1 << 16  # tokens and records; more than that, and the run waits for its client


class Outbox:
    """An Observer that collects columns. `tokens`: whether the client wants every token."""

    def __init__(self, *, tokens: bool) -> None:
        self._tokens = tokens
        self._indexes: list[int] = []
        self._times_ns: list[int] = []
        self._records: list[RequestRecord] = []

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        if self._tokens:
            self._indexes.append(index)
            self._times_ns.append(now_ns)

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._records.append(record)

    @property
    def full(self) -> bool:
        """Whether the run is too far ahead of its client."""
        return len(self._indexes) + len(self._records) > FULL

    def take(self) -> Iterator[router_pb2.RunReply]:
        """Empties the box into messages: tokens first, so that a request's last token comes before its record."""
        indexes, times, records = self._indexes, self._times_ns, self._records
        self._indexes, self._times_ns, self._records = [], [], []
        for start in range(0, len(indexes), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            yield router_pb2.RunReply(tokens=router_pb2.Tokens(index=indexes[part], now_ns=times[part]))
        for start in range(0, len(records), BATCH_ROWS):
            yield router_pb2.RunReply(records=records_of(records[start : start + BATCH_ROWS]))
