"""microbatches.jsonl: how many requests each microbatch carried; and the size of each group over time, from it.

A group is what travels in one microbatch of every round: the microbatches whose numbers leave the same remainder when
divided by the credits. While all credits are in use that is one slot of the engine; while some are not, neighbours mix.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from stageline.engine.types import MemberObserver
from stageline.report.canonical import canonical_line
from stageline.report.events import Served, StageEvent
from stageline.units import NS_PER_S

if TYPE_CHECKING:
    from rich.table import Table

SLICES = 8  # of the run, in the table
MAX_GROUPS = 12  # that fit 80 columns

Sizes = dict[tuple[int, int], int]  # requests by replica and number of the microbatch


class Formed(msgspec.Struct, frozen=True, kw_only=True):
    """One microbatch of a replica: its number and how many requests it carries."""

    replica: int
    number: int
    requests: int


class MicrobatchWriter:
    """A MemberObserver that writes every microbatch as one line. A context manager."""

    def __init__(self, path: Path, also: MemberObserver | None) -> None:
        self._file = path.open("wb")
        self._also = also

    def formed(self, replica: int, number: int, requests: Iterable[int]) -> None:
        """See MemberObserver."""
        carried = list(requests)
        self._file.write(canonical_line(Formed(replica=replica, number=number, requests=len(carried))))
        if self._also is not None:
            self._also.formed(replica, number, carried)

    def __enter__(self) -> "MicrobatchWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()


def groups_over_time(
    sizes: Mapping[tuple[int, int], int], events: Iterable[StageEvent], groups: int, slices: int = SLICES
) -> list[tuple[int, list[float | None]]]:
    """(end of the slice in ns, mean requests of each group in it) of replica 0, by the start at the first stage."""
    starts = [
        (e.start_ns, e.number) for e in events if isinstance(e, Served) and e.visit == 0 and e.replica == 0
    ]  # fmt: skip
    if not starts:
        return []
    first, length = starts[0][0], starts[-1][0] + 1 - starts[0][0]
    found: list[list[list[int]]] = [[[] for _ in range(groups)] for _ in range(slices)]
    for start_ns, number in starts:
        found[(start_ns - first) * slices // length][number % groups].append(sizes[0, number])
    return [
        (first + length * (i + 1) // slices, [sum(own) / len(own) if own else None for own in row])
        for i, row in enumerate(found)
    ]


def groups_table(sizes: Sizes, events: Iterable[StageEvent], credits_: int) -> "Table | None":
    """Mean requests per microbatch by group and time; None when there is one group, too many, or no microbatch."""
    rows = groups_over_time(sizes, events, credits_) if 1 < credits_ <= MAX_GROUPS else []
    if not rows:
        return None
    from rich import box  # noqa: PLC0415  (whoever only writes runs must not pay for loading it)
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, title="requests per microbatch, by group (number modulo credits), replica 0")
    table.add_column("until", justify="right")
    for group in range(credits_):
        table.add_column(str(group), justify="right")
    for end_ns, means in rows:
        table.add_row(f"{end_ns / NS_PER_S:.4g} s", *("-" if m is None else f"{m:.1f}" for m in means))
    return table
