"""The size of each group over time."""

from stageline.report.events import Served
from stageline.report.groups import Groups, Part, groups_over_time, groups_table


def served(number: int, start_ns: int, replica: int = 0, visit: int = 0) -> Served:
    return Served(
        replica=replica, stage=0, visit=visit, number=number, arrival_ns=0, start_ns=start_ns, end_ns=start_ns + 1
    )


def test_who_travels_together_stays_one_group() -> None:
    groups = Groups()
    assert [groups.join(n, members) for n, members in enumerate(([1, 2], [3], [1, 2], [3, 4]))] == [0, 1, 0, 1]


def test_a_group_that_splits_leaves_its_later_part_in_a_new_group() -> None:
    groups = Groups()
    assert [groups.join(n, members) for n, members in enumerate(([1, 2, 3], [1], [2, 3]))] == [0, 0, 1]


def test_groups_that_join_become_one_and_the_number_of_the_other_is_free() -> None:
    """A burst packs all into the group of most; the next new group has the number of the one that ended."""
    groups = Groups()
    assert [groups.join(n, members) for n, members in enumerate(([1], [2, 3], [1, 2, 3], [4]))] == [0, 1, 1, 0]


def test_a_group_ends_with_its_last_request() -> None:
    groups = Groups()
    assert groups.join(0, [1]) == 0
    assert groups.join(1, [2]) == 1
    groups.leave(1)
    groups.leave(99)  # never travelled
    assert groups.join(2, [3]) == 0


def test_chunks_that_follow_each_other_are_one_group() -> None:
    """The second chunk of a prompt leaves before the first is back."""
    groups = Groups()
    assert [groups.join(n, members) for n, members in enumerate(([7], [7], [7]))] == [0, 0, 0]


def test_means_by_group_and_slice() -> None:
    """Two groups, two slices of 20 ns; other visits and other replicas do not count."""
    events = [served(n, 10 * n) for n in range(4)]
    events += [served(0, 5, replica=1), served(0, 5, visit=1)]
    parts = {(0, 0): Part(0, 7), (0, 1): Part(1, 1), (0, 2): Part(0, 9), (0, 3): Part(1, 3), (1, 0): Part(5, 99)}
    assert groups_over_time(parts, events, 2) == [(15, [7.0, 1.0]), (31, [9.0, 3.0])]


def test_a_slice_without_microbatches_of_a_group_has_no_mean() -> None:
    events = [served(0, 0), served(1, 1), served(2, 100)]
    parts = {(0, 0): Part(0, 4), (0, 1): Part(1, 4), (0, 2): Part(0, 6)}
    assert groups_over_time(parts, events, 2) == [(50, [4.0, 4.0]), (101, [6.0, None])]


def test_one_microbatch_in_flight_or_no_events_make_no_table() -> None:
    assert groups_table({(0, 0): Part(0, 4)}, [served(0, 0)], 1) is None
    assert groups_table({}, [], 4) is None


def test_many_groups_are_summed_up() -> None:
    parts = {(0, n): Part(n, 1 + n) for n in range(20)}
    table = groups_table(parts, [served(n, n) for n in range(20)], 20)
    assert table is not None
    assert [c.header for c in table.columns] == ["until", "groups", "smallest", "mean", "largest"]
    assert [next(iter(c.cells)) for c in table.columns][1:] == ["3", "1.0", "2.0", "3.0"]
