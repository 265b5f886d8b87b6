"""The partition is optimal: compared with every possible cut of small cases."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.plan.partition import Cuts, Part, balanced, fewest, held, roomiest


def every_cut(count: int, stages: int) -> list[Cuts]:
    found = []
    for inner in combinations(range(1, count), stages - 1):
        edges = [0, *inner, count]
        found.append(list(pairwise(edges)))
    return found


layers = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=9)


@settings(deadline=None)
@given(layers, st.integers(1, 60), st.integers(1, 9))
def test_balanced_is_the_best_of_all_cuts(layers: list[tuple[int, int]], capacity: int, stages: int) -> None:
    times, sizes = [t for t, _ in layers], [s for _, s in layers]

    def fits(start: int, end: int) -> bool:
        return sum(sizes[start:end]) <= capacity

    def score(cuts: Cuts) -> tuple[int, int]:
        runs = [sum(times[a:b]) for a, b in cuts]
        return max(runs), sum(run * run for run in runs)

    allowed = [cuts for cuts in every_cut(len(times), stages) if all(fits(a, b) for a, b in cuts)]
    found = balanced(times, stages, fits)
    if not allowed:
        assert found is None
        return
    assert found in allowed
    assert score(found) == min(score(cuts) for cuts in allowed)


@settings(deadline=None)
@given(layers, st.integers(1, 60))
def test_fewest_is_the_fewest_of_all_cuts(layers: list[tuple[int, int]], capacity: int) -> None:
    sizes = [size for _, size in layers]

    def fits(start: int, end: int) -> bool:
        return sum(sizes[start:end]) <= capacity

    found = fewest(len(sizes), fits)
    if isinstance(found, int):
        assert sizes[found] > capacity
        return
    assert all(fits(a, b) for a, b in found)
    assert [a for a, _ in found] == [0, *[b for _, b in found][:-1]]
    for stages in range(1, len(found)):
        assert not any(all(fits(a, b) for a, b in cuts) for cuts in every_cut(len(sizes), stages))


@settings(deadline=None)
@given(layers, st.integers(20, 90), st.integers(1, 5), st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 40))
def test_the_roomiest_cut_holds_the_most_of_all_that_are_hardly_slower(
    layers: list[tuple[int, int]], capacity: int, stages: int, slack: float, enough: int
) -> None:
    times, sizes = [t for t, _ in layers], [s for _, s in layers]

    def left(start: int, end: int) -> int:
        return (capacity - sum(sizes[start:end])) // (end - start)

    parts = [Part(times, lambda a, b: left(a, b) >= 0, left)] * stages
    even = balanced(times, stages, parts[0].fits)
    if even is None:
        return

    def slowest(cuts: Cuts) -> int:
        return max(sum(times[a:b]) for a, b in cuts)

    limit = int(slowest(even) * (1 + slack))
    allowed = [cuts for cuts in every_cut(len(times), stages) if slowest(cuts) <= limit and held(parts, cuts) >= 0]
    most = max(min(held(parts, cuts), enough) for cuts in allowed)
    found = roomiest(parts, even, slack, enough)
    assert found in allowed
    assert min(held(parts, found), enough) == most
    assert slowest(found) == min(slowest(cuts) for cuts in allowed if held(parts, cuts) >= most)
