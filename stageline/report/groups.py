"""microbatches.jsonl: the group of each microbatch and how many requests it carries; groups over time, from it.

A group is what travels together, round after round. A microbatch continues the group of the earlier microbatch in
which most of its members travelled last; of microbatches that another one has continued before, it continues none, and
begins a group of its own. So the part of a split group that leaves first keeps the group, and groups that join become
one. A group ends when all its members have left or travel in other groups; a new group takes the lowest free number.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from stageline.engine.types import MemberObserver
from stageline.report.canonical import canonical_line
from stageline.report.events import Served, StageEvent
from stageline.units import NS_PER_S, figure_text

if TYPE_CHECKING:
    from rich.table import Table

SLICES = 8  # of the run, in the table
MAX_GROUPS = 12  # that fit 80 columns


class Formed(msgspec.Struct, frozen=True, kw_only=True):
    """One microbatch of a replica: its number, its group and how many requests it carries."""

    replica: int
    number: int
    group: int
    requests: int


class Part(NamedTuple):
    """A microbatch's group and size."""

    group: int
    requests: int


Parts = Mapping[tuple[int, int], Part]  # by replica and number of the microbatch


class Travelled(NamedTuple):
    """The microbatch in which a request travelled last."""

    group: int
    number: int


class Groups:
    """The groups of one replica."""

    def __init__(self) -> None:
        self._last: dict[int, Travelled] = {}  # by request
        self._newest: list[int] = []  # microbatch of each group
        self._members: list[int] = []  # of each group

    def join(self, number: int, requests: Iterable[int]) -> int:
        """The group of a microbatch with these members."""
        members = list(requests)
        former = Counter(self._last[r] for r in members if r in self._last)
        for travelled, count in former.items():
            self._members[travelled.group] -= count
        open_ = [t for t in former if self._newest[t.group] == t.number]
        group = min(open_, key=lambda t: (-former[t], t)).group if open_ else self._free()
        self._newest[group] = number
        self._members[group] += len(members)
        self._last.update(dict.fromkeys(members, Travelled(group, number)))
        return group

    def leave(self, request: int) -> None:
        """A request has ended."""
        if travelled := self._last.pop(request, None):
            self._members[travelled.group] -= 1

    def _free(self) -> int:
        for group, members in enumerate(self._members):
            if not members:
                return group
        self._newest.append(0)
        self._members.append(0)
        return len(self._members) - 1


class MicrobatchWriter:
    """A MemberObserver that writes every microbatch as one line. A context manager."""

    def __init__(self, path: Path, also: MemberObserver | None) -> None:
        self._file = path.open("wb")
        self._also = also
        self._groups: dict[int, Groups] = {}  # by replica

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """See MemberObserver."""
        carried = list(requests)
        group = self._groups.setdefault(replica, Groups()).join(number, carried)
        self._file.write(canonical_line(Formed(replica=replica, number=number, group=group, requests=len(carried))))
        if self._also is not None:
            self._also.formed(replica, number, carried)

    def ended(self, replica: int | None, request: int) -> None:
        """A request has ended."""
        if replica in self._groups:
            self._groups[replica].leave(request)

    def __enter__(self) -> "MicrobatchWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def groups_over_time(
    parts: Parts, events: Iterable[StageEvent], slices: int = SLICES
) -> list[tuple[int, list[float | None]]]:
    """(end of the slice in ns, mean requests of each group in it) of replica 0, by the start at the first stage."""
    starts = [(e.start_ns, e.number) for e in _of_first_replica(events) if e.visit == 0]
    if not starts:
        return []
    groups = 1 + max(part.group for (replica, _), part in parts.items() if replica == 0)
    first, length = starts[0][0], starts[-1][0] + 1 - starts[0][0]
    found: list[list[list[int]]] = [[[] for _ in range(groups)] for _ in range(slices)]
    for start_ns, number in starts:
        part = parts[0, number]
        found[(start_ns - first) * slices // length][part.group].append(part.requests)
    return [
        (first + length * (i + 1) // slices, [sum(own) / len(own) if own else None for own in row])
        for i, row in enumerate(found)
    ]


def _of_first_replica(events: Iterable[StageEvent]) -> Iterator[Served]:
    return (e for e in events if isinstance(e, Served) and e.replica == 0)


def groups_table(parts: Parts, events: Iterable[StageEvent], credits_: int, replica: str = "0") -> "Table | None":
    """Mean requests per microbatch by group and time; None when one microbatch is in flight, or without microbatches.

    Many groups are summed up: how many, the smallest, the mean and the largest. `replica` is what replica 0 is called.
    """
    rows = groups_over_time(parts, events) if parts and credits_ > 1 else []
    if not rows:
        return None
    from rich import box  # noqa: PLC0415  (whoever only writes runs must not pay for loading it)
    from rich.table import Table  # noqa: PLC0415

    groups = len(rows[0][1])
    few = groups <= MAX_GROUPS
    table = Table(box=box.SIMPLE_HEAD, title="requests per microbatch, by group", title_justify="left")
    table.caption, table.caption_justify = f"of replica {replica}; {credits_} microbatches may be in flight", "left"
    for name in ("until", *(map(str, range(groups)) if few else ("groups", "smallest", "mean", "largest"))):
        table.add_column(name, justify="right")
    for end_ns, means in rows:
        cells = ["-" if m is None else f"{m:.1f}" for m in means] if few else _summed_up(means)
        table.add_row(f"{figure_text(end_ns / NS_PER_S)} s", *cells)
    return table


def _summed_up(means: Iterable[float | None]) -> list[str]:
    found = [m for m in means if m is not None]
    if not found:
        return ["0", "-", "-", "-"]
    return [str(len(found)), *(f"{m:.1f}" for m in (min(found), sum(found) / len(found), max(found)))]
