"""The size of each group over time."""

from stageline.report.events import Served
from stageline.report.groups import groups_over_time, groups_table


def served(number: int, start_ns: int, replica: int = 0, visit: int = 0) -> Served:
    return Served(
        replica=replica, stage=0, visit=visit, number=number, arrival_ns=0, start_ns=start_ns, end_ns=start_ns + 1
    )


def test_means_by_group_and_slice() -> None:
    """Two groups, two slices of 20 ns; other visits and other replicas do not count."""
    events = [served(n, 10 * n) for n in range(4)]
    events += [served(0, 5, replica=1), served(0, 5, visit=1)]
    sizes = {(0, 0): 7, (0, 1): 1, (0, 2): 9, (0, 3): 3, (1, 0): 99}
    assert groups_over_time(sizes, events, 2, 2) == [(15, [7.0, 1.0]), (31, [9.0, 3.0])]


def test_a_slice_without_microbatches_of_a_group_has_no_mean() -> None:
    events = [served(0, 0), served(2, 100)]
    assert groups_over_time({(0, 0): 4, (0, 2): 6}, events, 2, 2) == [(50, [4.0, None]), (101, [6.0, None])]


def test_one_group_or_no_events_make_no_table() -> None:
    assert groups_table({(0, 0): 4}, [served(0, 0)], 1) is None
    assert groups_table({}, [], 4) is None
