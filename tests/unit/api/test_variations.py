"""What a search varies."""

import pytest

from stageline.api.variations import spread, star, variations
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError


def test_formats_come_first_and_a_setting_is_the_plans() -> None:
    found = variations({"kv": ["grow", "reserve"], "batched_tokens": [512, 2048], "weights": ["fp8", "bf16"]}, None)
    assert [(a.name, a.of_plan) for a in found.axes] == [("weights", True), ("batched_tokens", True), ("kv", False)]
    assert found.of_plan((1, 0, 1)) == {"weights": "bf16", "batched_tokens": 512}
    assert found.of_run((1, 0, 1)) == {"kv": "reserve"}
    assert found.words((1, 0, 1)) == "--weights bf16 --batched-tokens 512 --kv reserve"
    assert found.format_words((1,)) == "--weights bf16"
    assert found.count == 8


def test_one_value_is_set_and_not_told() -> None:
    found = variations({"kv": ["grow"], "prefix_cache": [True, False]}, None)
    assert found.words((0, 1)) == "--no-enable-prefix-caching"
    assert found.of_run((0, 1)) == {"kv": "grow"}


def test_a_whole_scheduling_goes_before_the_plan() -> None:
    found = variations({"batched_tokens": [512, 2048]}, Scheduling())
    assert found.of_run((1,)) == {"batched_tokens": 2048}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tensor_parallel": [1]}, "tensor_parallel"),
        ({"batched_tokens": "512"}, "list of values"),
        ({"batched_tokens": []}, "one value or more"),
        ({"kv": [5]}, "kv=5"),
        ({"max_running": [0]}, "max_running=0"),
    ],
)
def test_what_can_not_be_varied(given: dict[str, list[object]], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        variations(given, None)


def test_points_of_a_box() -> None:
    assert spread([5, 2, 1], 3) == [(0, 0, 0), (2, 0, 0), (4, 1, 0)]
    assert star((1, 0), [3, 2]) == [(0, 0), (2, 0), (1, 1)]
