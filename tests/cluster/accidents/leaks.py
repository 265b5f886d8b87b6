"""Whether servers that live through many accidents grow: descriptors, memory, processes that nobody has ended."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

MIN_LOOKS = 8  # a server that lived through fewer accidents says nothing of leaks
MORE_DESCRIPTORS = 8  # connections that a server holds for a while: the next stage's, a scraper's
MORE_BYTES = 32 << 20  # what an allocator keeps of the largest accident


class Size(NamedTuple):
    """Of one process that has nothing to do."""

    descriptors: int
    resident_bytes: int


class Leaks:
    """`look` at the servers whenever they are idle; `errors` compares the end of each life with its beginning."""

    def __init__(self) -> None:
        self._seen: dict[int, list[Size]] = {}
        self._others = children_of(os.getpid())  # that were there before

    def look(self, servers: set[int]) -> list[str]:
        """Measure these processes. Returns what is wrong: children of this process that are none of them."""
        for pid in servers:
            if (size := size_of(pid)) is not None:
                self._seen.setdefault(pid, []).append(size)
        strangers = children_of(os.getpid()) - servers - self._others
        return [f"processes {sorted(strangers)} were left"] if strangers else []

    def errors(self) -> list[str]:
        """Servers that have grown."""
        return [error for pid, sizes in self._seen.items() for error in grown(pid, sizes)]

    def left(self) -> list[str]:
        """Servers that have not ended, once all should have."""
        alive = [pid for pid in self._seen if Path(f"/proc/{pid}").exists()]
        return [f"processes {alive} have not ended"] if alive else []

    def __str__(self) -> str:
        lives = [sizes for sizes in self._seen.values() if len(sizes) >= MIN_LOOKS]
        most = [max((_end(s)[i] - _begin(s)[i] for s in lives), default=0) for i in range(2)]
        longest = max((len(sizes) for sizes in self._seen.values()), default=0)
        return (
            f"{len(self._seen)} servers, {len(lives)} of them for {MIN_LOOKS} accidents or more, one for {longest}; "
            f"the most that one grew: {most[0]:+g} descriptors, {most[1] / (1 << 20):+.1f} MiB"
        )


def grown(pid: int, sizes: list[Size]) -> list[str]:
    """What has grown by more than it may, from the beginning of a life to its end."""
    if len(sizes) < MIN_LOOKS:
        return []
    errors, begin, end = [], _begin(sizes), _end(sizes)
    if end.descriptors > begin.descriptors + MORE_DESCRIPTORS:
        counts = [size.descriptors for size in sizes]
        errors.append(f"process {pid} had {begin.descriptors} descriptors, and {end.descriptors} in the end: {counts}")
    if end.resident_bytes > begin.resident_bytes + MORE_BYTES:
        mib = [size.resident_bytes >> 20 for size in (begin, end)]
        errors.append(f"process {pid} had {mib[0]} MiB, and {mib[1]} in the end: {[s[1] >> 20 for s in sizes]}")
    return errors


def _begin(sizes: list[Size]) -> Size:
    """The most of a few looks, once it has warmed up."""
    return Size(*map(max, zip(*sizes[1:4], strict=True)))


def _end(sizes: list[Size]) -> Size:
    """The least of the last looks: closed connections go when Python collects what held them, and a leak never goes."""
    return Size(*map(min, zip(*sizes[-4:], strict=True)))


def size_of(pid: int) -> Size | None:
    """Of a process that lives; None: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, IndexError):
        return None
    return Size(descriptors, int(fields[1]) * os.sysconf("SC_PAGE_SIZE"))


def children_of(pid: int) -> set[int]:
    """Its child processes, those included that have ended and were not waited for."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found
