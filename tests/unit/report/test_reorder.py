"""Lines come out in the wanted order, whatever the order of leaving."""

from hypothesis import given
from hypothesis import strategies as st

from stageline.report.reorder import ReorderBuffer

ORDERS = st.integers(0, 30).flatmap(lambda n: st.tuples(st.permutations(range(n)), st.permutations(range(n))))


def line(key: int) -> bytes:
    return f"{key}\n".encode()


@given(ORDERS)
def test_counting_order(orders: tuple[list[int], list[int]]) -> None:
    out: list[bytes] = []
    lines = ReorderBuffer(out.append)
    left = set[int]()
    for key in orders[0]:
        lines.put(key, line(key))
        left.add(key)
        ready = next(i for i in range(len(orders[0]) + 1) if i not in left)
        assert out == [line(i) for i in range(ready)]
    lines.flush()
    assert out == [line(i) for i in range(len(orders[0]))]


@given(ORDERS)
def test_announced_order(orders: tuple[list[int], list[int]]) -> None:
    arrivals, leaving = orders
    out: list[bytes] = []
    lines = ReorderBuffer(out.append)
    for key in arrivals:
        lines.expect(key)
    for key in leaving:
        lines.put(key, line(key))
    assert out == [line(key) for key in arrivals]


def test_the_end_passes_over_gaps() -> None:
    out: list[bytes] = []
    lines = ReorderBuffer(out.append)
    for key in (3, 0, 2):
        lines.put(key, line(key))
    assert out == [line(0)]
    for _ in range(2):  # a second end has nothing left to emit
        lines.flush()
        assert out == [line(0), line(2), line(3)]


def test_the_end_keeps_the_announced_order() -> None:
    out: list[bytes] = []
    lines = ReorderBuffer(out.append)
    for key in (2, 1, 0):
        lines.expect(key)
    for key in (0, 1):
        lines.put(key, line(key))
    lines.flush()
    assert out == [line(1), line(0)]
