"""Overrides of the config at launch: rotary scaling and positions change the longest context, nothing else is taken."""

import pytest

from stageline.api.overrides import overridden
from stageline.catalog.loader import Catalog
from stageline.errors import BadInput

QWEN = Catalog([]).model("qwen3-32b").spec  # 40,960 positions, 32,768 of them original


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (None, 40_960),
        ("{}", 40_960),
        # Qwen3's model card: YaRN with factor 4 over 32,768 is 131,072
        (
            '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}',
            131_072,
        ),
        ('{"rope_parameters": {"rope_type": "linear", "factor": 2}}', 81_920),
        ('{"text_config": {"rope_parameters": {"type": "dynamic", "factor": 2}}}', 81_920),
        ('{"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}', 40_960),
        ('{"max_position_embeddings": 65536}', 65_536),
        ('{"max_model_len": 100000}', 100_000),
    ],
)
def test_the_longest_context(text: str | None, context: int) -> None:
    found = overridden(QWEN, text)
    assert found.context == context and found.layers == QWEN.layers


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"architectures": ["X"]}', "architectures makes another model"),
        ('{"text_config": {"num_hidden_layers": 2}}', "num_hidden_layers makes another model"),
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"rope_scaling": {"rope_type": "yarn"}}', r"rope_scaling.*factor: expected a number"),
        ('{"rope_scaling": {"rope_type": "yarn", "factor": 0.5}}', r"factor: expected a number from 1 up"),
    ],
)
def test_what_would_change_more_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        overridden(QWEN, text)
