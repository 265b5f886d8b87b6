"""events.jsonl: what each stage served when, and why it idled. Timelines are drawn from it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from stageline.report.canonical import canonical_line


class Served(msgspec.Struct, frozen=True, kw_only=True, tag="served", tag_field="kind"):
    """One service: microbatch `number` of a replica arrived at a visit, and was served from start to end."""

    replica: int
    stage: int
    visit: int
    number: int
    arrival_ns: int
    start_ns: int
    end_ns: int


class Gap(msgspec.Struct, frozen=True, kw_only=True, tag="gap", tag_field="kind"):
    """Idle time before a service, split by cause; causes of zero are left out. It ends at start_ns + their sum."""

    replica: int
    stage: int
    start_ns: int
    idle_ns: dict[str, int]


class Kv(msgspec.Struct, frozen=True, kw_only=True, tag="kv", tag_field="kind"):
    """The bytes in a stage's KV ledger from this time on."""

    replica: int
    stage: int
    at_ns: int
    used_bytes: int


StageEvent = Served | Gap | Kv


class StageEventWriter:
    """A StageObserver that writes every event as one line. A context manager."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def served(
        self, replica: int, stage: int, visit: int, number: int, arrival_ns: int, start_ns: int, end_ns: int
    ) -> None:
        """See StageObserver."""
        event = Served(
            replica=replica,
            stage=stage,
            visit=visit,
            number=number,
            arrival_ns=arrival_ns,
            start_ns=start_ns,
            end_ns=end_ns,
        )
        self._file.write(canonical_line(event))

    def gap(self, replica: int, stage: int, start_ns: int, idle_ns: Mapping[str, int]) -> None:
        """See StageObserver."""
        causes = {cause: ns for cause, ns in idle_ns.items() if ns}
        self._file.write(canonical_line(Gap(replica=replica, stage=stage, start_ns=start_ns, idle_ns=causes)))

    def kv(self, replica: int, stage: int, now_ns: int, used_bytes: int) -> None:
        """See StageObserver."""
        self._file.write(canonical_line(Kv(replica=replica, stage=stage, at_ns=now_ns, used_bytes=used_bytes)))

    def __enter__(self) -> "StageEventWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
