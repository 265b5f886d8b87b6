"""Some of the accidents of `scripts/accidents`: after each the cluster serves again, and its books are right."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.cluster.accidents.leaks import Leaks, Size, grown
from tests.cluster.accidents.trial import trial

SEED, ACCIDENTS = 1, 10


async def test_accidents_leave_nothing_wrong(tmp_path: Path) -> None:
    async with trial(tmp_path, SEED) as cluster:
        found = [await cluster.accident(number) for number in range(ACCIDENTS)]
    assert cluster.leaks.errors() == []
    assert [(what, errors) for what, errors in found if errors] == []


def sizes(descriptors: Sequence[int], mib: Sequence[int] = ()) -> list[Size]:
    return [Size(Counter(socket=d), m << 20) for d, m in zip_longest(descriptors, mib, fillvalue=50)]


@pytest.mark.parametrize("found", [
    pytest.param(sizes([24, 25, 24, 28, 24, 26, 25]), id="a connection that is just being closed"),
    pytest.param(sizes([24, 25, 26, 27]), id="too short a life"),
    pytest.param(sizes([24] * 12, [50, 74, 74, 75, 75, 75, 75, 110, 81, 86, 87, 87]), id="what is collected late"),
])  # fmt: skip
def test_what_goes_again_is_no_leak(found: list[Size]) -> None:
    assert grown(found) == []


@pytest.mark.parametrize(("found", "error"), [
    (sizes(range(24, 30)), "has 3 descriptors more in the end, {'socket': 3}: [24, 25, 26, 27, 28, 29]"),
    (sizes([24] * 24, range(50, 74)), f"has 17 MiB more in the end: {list(range(50, 74))}"),
])  # fmt: skip
def test_what_is_lost_at_every_accident_is_found(found: list[Size], error: str) -> None:
    assert grown(found) == [error]
    assert grown(found[:-1]) == []


def test_descriptors_are_told_by_kind(tmp_path: Path) -> None:
    leaks, path = Leaks(), tmp_path / "recording"
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(path.open("w"))
            assert leaks.look({os.getpid(): "this one"}) == []
        assert f"this one, process {os.getpid()}, has 3 descriptors more in the end, {{'{path}': 3}}" in str(
            leaks.errors()
        )
