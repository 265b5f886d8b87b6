"""The largest load under an objective, on known limits."""

from collections.abc import Sequence

import pytest

from stageline.api.bisecting import Limit, largest_load


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("start", [0.4, 1.0, 9.0])
def test_the_limit_is_bracketed(width: int, start: float) -> None:
    found = largest_load(lambda loads: [load <= 3.7 for load in loads], start, width=width)
    assert found.kept is not None and found.missed is not None and found.monotone
    assert found.kept <= 3.7 < found.missed
    assert found.missed / found.kept <= 1.02 + 1e-9
    assert all(kept == (load <= 3.7) for load, kept in found.tried)


@pytest.mark.parametrize("limit", [1, 2, 37])
@pytest.mark.parametrize("width", [1, 2])
def test_whole_loads_end_at_neighbours(limit: int, width: int) -> None:
    found = largest_load(lambda loads: [load <= limit for load in loads], 8, width=width, whole=True, precision=0)
    assert (found.kept, found.missed) == (limit, limit + 1)
    assert all(load == int(load) for load, _ in found.tried)


def test_a_limit_that_is_not_there() -> None:
    assert largest_load(lambda loads: [True] * len(loads), 1.0).missed is None
    assert largest_load(lambda loads: [False] * len(loads), 1.0).kept is None
    assert largest_load(lambda loads: [False] * len(loads), 4, whole=True).kept is None


def test_an_order_that_is_broken_is_said() -> None:
    def probe(loads: Sequence[float]) -> list[bool]:
        return [load <= 2.0 or 2.9 <= load <= 3.2 for load in loads]

    found: Limit = largest_load(probe, 1.0, width=12)
    assert not found.monotone
    assert found.kept is not None and found.kept <= 2.0
