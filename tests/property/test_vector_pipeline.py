"""The vectorised pipeline against the event heap: the same records, whatever the size of the batches."""

import pytest

from tests.property.checks import run_case

CASES = {"plain": range(10_000, 10_300), "sharing": range(20_000, 20_100), "speculating": range(30_000, 30_100)}


@pytest.mark.parametrize("small_batch", [1, 3, 1000])
def test_vectors_equal_the_heap(small_batch: int) -> None:
    """Many routes visit every stage once; the others take the heap."""
    cases = [(kind, number) for kind, some in CASES.items() for number in some]
    assert sum(run_case(f"vectors-{small_batch}", kind, number) for kind, number in cases) > 30
