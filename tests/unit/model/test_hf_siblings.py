"""Siblings of the families import, with the totals on their model cards."""

import json
from typing import Any

import pytest

from stageline.errors import BadInput
from stageline.model.hf import import_config
from tests.unit.model.sibling_configs import CHECKED, CONFIGS


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters(name: str) -> None:
    config, total, active = CONFIGS[name]
    found = import_config(json.dumps(config).encode(), "config.json", name)
    assert (round(found.total_params() / 1e9, 2), round(found.active_params() / 1e9, 2)) == (total, active)


def test_what_was_checked_is_among_them() -> None:
    assert set(CHECKED) <= set(CONFIGS)


def test_caches_and_states_of_new_families() -> None:
    """Bytes per token and sequence, by hand from the configs."""
    found = {
        name: import_config(json.dumps(CONFIGS[name][0]).encode(), "config.json", name)
        for name in ("granite-4-h-small", "command-a", "gemma-3n-e4b")
    }
    granite = found["granite-4-h-small"]
    assert sum(layer.attention.linear for layer in granite.layers) == 36
    kept = [layer.attention.caches() for layer in found["command-a"].layers]
    assert [cache.kept_tokens for (cache,) in kept[:4]] == [4096, 4096, 4096, 0]
    owned = [layer.attention.caches()[0].owned for layer in found["gemma-3n-e4b"].layers]
    assert owned == [True] * 20 + [False] * 15


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "rwkv7"}, "this file has them all"),
        ({"model_type": "opt", "head_dim": None, "intermediate_size": None}, "lacks head_dim, intermediate_size"),
    ],
)
def test_an_unknown_type_says_which_fields_are_needed(change: dict[str, Any], says: str) -> None:
    config = CONFIGS["llama-3.2-1b"][0] | change
    with pytest.raises(BadInput, match=f"can be imported under its name, if it has hidden_size.*{says}"):
        import_config(json.dumps(config).encode(), "config.json", "x")


def test_lists_by_layer_must_agree() -> None:
    config = CONFIGS["hunyuan-a13b"][0] | {"moe_topk": [8] * 31 + [4]}
    with pytest.raises(BadInput, match=r"moe_topk.*the same number for each of 32 layers"):
        import_config(json.dumps(config).encode(), "config.json", "x")
