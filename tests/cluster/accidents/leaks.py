"""Whether servers that live through many accidents grow: descriptors, memory, processes that nobody has ended.

An idle server has the same descriptors after every accident: its ports, its event loop, the connections of the one open
session and its recording. Sessions and clients give theirs back when they end, not at a timeout and not when Python's
collector comes, so nothing is waited for, and whoever loses one at every accident is found after six.
Memory is another matter: the collector comes late, and an allocator keeps what it once had.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

MORE_DESCRIPTORS = 2  # the recording, which a full disk ends early; a connection that is just being closed
MORE_BYTES = 16 << 20  # the results of a large run that are not collected yet
MIN_LOOKS = 4  # a server that lived through fewer accidents says nothing of descriptors
MIN_MEMORY_LOOKS = 8  # nor of memory


class Size(NamedTuple):
    """Of one process that has nothing to do: its descriptors by kind."""

    descriptors: Counter[str]
    resident_bytes: int


class Leaks:
    """`look` at the servers whenever they are idle; `errors` compares the end of each life with its beginning."""

    def __init__(self) -> None:
        self._seen: dict[int, list[Size]] = {}
        self._names: dict[int, str] = {}
        self._others = children_of(os.getpid())  # that were there before

    def look(self, servers: Mapping[int, str]) -> list[str]:
        """Measure these processes, of which the names are for people. Returns what is wrong: children of this process
        that are none of them.
        """
        self._names.update(servers)
        for pid in servers:
            if (size := size_of(pid)) is not None:
                self._seen.setdefault(pid, []).append(size)
        strangers = children_of(os.getpid()) - set(servers) - self._others
        return [f"processes {sorted(strangers)} were left"] if strangers else []

    def errors(self) -> list[str]:
        """Servers that have grown."""
        return [f"{self._names[pid]}, process {pid}, {e}" for pid, sizes in self._seen.items() for e in grown(sizes)]

    def left(self) -> list[str]:
        """Servers that have not ended, once all should have."""
        alive = [pid for pid in self._seen if Path(f"/proc/{pid}").exists()]
        return [f"processes {alive} have not ended"] if alive else []

    def __str__(self) -> str:
        lives = [sizes for sizes in self._seen.values() if len(sizes) >= MIN_LOOKS]
        descriptors = max((more_descriptors(sizes)[0] for sizes in lives), default=0)
        memory = max((more_bytes(sizes) for sizes in lives if len(sizes) >= MIN_MEMORY_LOOKS), default=0)
        longest = max((len(sizes) for sizes in self._seen.values()), default=0)
        return (
            f"{len(self._seen)} servers, {len(lives)} of them for {MIN_LOOKS} accidents or more, one for {longest}; "
            f"the most that one grew: {descriptors:+} descriptors, {memory / (1 << 20):+.1f} MiB"
        )


def grown(sizes: list[Size]) -> list[str]:
    """What has grown by more than it may, from the beginning of a life to its end."""
    errors = []
    if len(sizes) >= MIN_LOOKS:
        more, kinds = more_descriptors(sizes)
        if more > MORE_DESCRIPTORS:
            counts = [size.descriptors.total() for size in sizes]
            errors.append(f"has {more} descriptors more in the end, {dict(kinds)}: {counts}")
    if len(sizes) >= MIN_MEMORY_LOOKS and (added := more_bytes(sizes)) > MORE_BYTES:
        errors.append(f"has {added >> 20} MiB more in the end: {[size.resident_bytes >> 20 for size in sizes]}")
    return errors


def more_descriptors(sizes: list[Size]) -> tuple[int, Counter[str]]:
    """How many the smaller one of the last two looks has more than the larger one of the first two, and of which kinds
    there are more: another recording has another name.
    """
    first = max((size.descriptors for size in sizes[:2]), key=Counter.total)
    last = min((size.descriptors for size in sizes[-2:]), key=Counter.total)
    return last.total() - first.total(), last - first


def more_bytes(sizes: list[Size]) -> int:
    """What the least of the last four looks has more than the most of the first ones, once it has warmed up."""
    return min(size.resident_bytes for size in sizes[-4:]) - max(size.resident_bytes for size in sizes[1:4])


def size_of(pid: int) -> Size | None:
    """Of a process that lives; None: it has ended."""
    descriptors: Counter[str] = Counter()
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed just now
                descriptors[kind_of(str(descriptor.readlink()))] += 1
        return Size(descriptors, int(fields[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, IndexError):
        return None


def kind_of(target: str) -> str:
    """What a descriptor leads to: `socket` of `socket:[4711]`, or a file's path."""
    return target if target.startswith("/") else target.removeprefix("anon_inode:").partition(":")[0]


def children_of(pid: int) -> set[int]:
    """Its child processes, those included that have ended and were not waited for."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found
