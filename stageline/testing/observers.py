"""Observers that keep everything, nothing, or the digest alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stageline.engine.types import RequestRecord, StageRecord
from stageline.report.canonical import canonical_line
from stageline.report.digest import Digest
from stageline.report.events import Gap, Kv, Served


class Token(NamedTuple):
    """One sampled token, as `Observer.token` reports it."""

    request: int  # its index
    now_ns: int
    since_ns: int | None


class Ignoring:
    """Observer, MemberObserver and StageObserver that keeps nothing; a base for those who want to hear of one thing."""

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""

    def request(self, record: RequestRecord) -> None:
        """See Observer."""

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """See MemberObserver."""

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """See StageObserver."""

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """See StageObserver."""

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """See StageObserver."""


class Recorder(Ignoring):
    """Keeps everything in the order in which it came."""

    def __init__(self) -> None:
        self.requests: list[RequestRecord] = []
        self.tokens: list[Token] = []
        self.microbatches: dict[tuple[int, int], tuple[int, ...]] = {}  # requests by replica, number
        self.services: list[Served] = []
        self.gaps: list[Gap] = []  # causes of zero are left out
        self.ledgers: list[Kv] = []

    @property
    def tokens_ns(self) -> dict[int, list[int]]:
        """When each token of a request came back, by index of the request."""
        times: dict[int, list[int]] = defaultdict(list)
        for request, now_ns, _ in self.tokens:
            times[request].append(now_ns)
        return dict(times)

    def by_index(self) -> list[RequestRecord]:
        """The records in the order of their indices, as all engines give them."""
        return sorted(self.requests, key=lambda record: record.index)

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer."""
        self.tokens.append(Token(index, now_ns, since_ns))

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self.requests.append(record)

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """See MemberObserver."""
        self.microbatches[replica, number] = tuple(requests)

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """See StageObserver."""
        service = Served(
            replica=replica, stage=stage, visit=visit, number=number, arrival_ns=arrival_ns, start_ns=start_ns,
            end_ns=end_ns,
        )  # fmt: skip
        self.services.append(service)

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """See StageObserver."""
        causes = {cause: ns for cause, ns in idle_ns.items() if ns}
        self.gaps.append(Gap(replica=replica, stage=stage, start_ns=start_ns, idle_ns=causes))

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """See StageObserver."""
        self.ledgers.append(Kv(replica=replica, stage=stage, at_ns=now_ns, used_bytes=used_bytes))


class DigestObserver(Ignoring):
    """Keeps only what the digest needs: runs of any length fit into memory."""

    def __init__(self) -> None:
        self._digest = Digest()

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self._digest.request(record.index, canonical_line(record))

    def finish(self, stages: Iterable[StageRecord]) -> str:
        """The hex digest of the run, given the records of its stages. Once, at the end."""
        return self._digest.finish(stages)
