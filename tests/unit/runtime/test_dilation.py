"""Which factor `auto` takes, by hand."""

import pytest

from stageline.engine.route import Route
from stageline.errors import BadInput
from stageline.runtime.dilation import auto_dilation, parse_dilation
from tests.reference.plans import pipeline


def test_a_gpu_pipeline_runs_in_real_time() -> None:
    assert auto_dilation([Route(pipeline([5_000_000] * 8, latency_ns=30_000))], cores=2) == 1


def test_the_lone_trip_decides_for_short_hops() -> None:
    # 5 hops of 350 us in a trip of 4 x 100 us + 5 x 20 us = 500 us: 3.5, rounded up to 5.
    assert auto_dilation([Route(pipeline([100_000] * 4, latency_ns=20_000))], cores=64) == 5


def test_full_load_decides_for_few_cores() -> None:
    # 5 hops of 60 us per 100 us on one core: 3.0 against 5 x 350 / (400 + 5 x 400) = 0.73.
    assert auto_dilation([Route(pipeline([100_000] * 4, latency_ns=400_000))], cores=1) == 5


@pytest.mark.parametrize("text", ["0", "-1", "nan", "fast", "1e9", ""])
def test_what_is_no_factor_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--dilation"):
        parse_dilation(text, [Route(pipeline([1000]))])


def test_a_factor_is_taken_as_it_is() -> None:
    assert parse_dilation("2.5", [Route(pipeline([1000]))]) == 2.5


def test_of_several_pools_the_longest_trip_decides_or_the_sum_of_their_loads() -> None:
    quick, slow = Route(pipeline([100_000] * 4, latency_ns=20_000)), Route(pipeline([5_000_000] * 8, latency_ns=30_000))
    assert auto_dilation([slow, quick], cores=64) == auto_dilation([quick], cores=64) == 5
    # 5 hops of 60 us per 100 us, twice, on one core: 6.0.
    assert auto_dilation([Route(pipeline([100_000] * 4, latency_ns=400_000))] * 2, cores=1) == 10
