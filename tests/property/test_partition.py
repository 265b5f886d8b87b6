"""The partition is optimal: compared with every possible cut of small cases."""

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from stageline.plan.partition import Cuts, balanced, fewest


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
