"""The longest context of a Hugging Face config: its positions, stretched by the scaling of its rotary embedding."""

from stageline.errors import BadInput
from stageline.model.hf_fields import ConfigFields

ROPE_NAMES = ("rope_scaling", "rope_parameters")
# max_position_embeddings of these is the stretched length already
_STRETCHED = ("default", "mrope", "su", "longrope", "llama3", "proportional", None)


def scaled_context(f: ConfigFields, positions: int) -> int:
    """Positions x factor; of YaRN, the original positions x factor. Raises BadInput for a malformed one.

    As vLLM derives it (`_get_and_verify_max_len` in its config/model.py).
    """
    name = next((name for name in ROPE_NAMES if isinstance(f.get(name), dict)), None)
    if name is None:
        return positions
    rope = ConfigFields(f.get(name), f.at(name))
    kind = rope.text("rope_type") or rope.text("type")
    if kind in _STRETCHED:
        return positions
    factor = rope.get("factor")
    if not isinstance(factor, int | float) or not 1 <= factor < 1 << 20:
        raise BadInput(rope.at("factor"), factor, "expected a number from 1 up")
    original = rope.integer("original_max_position_embeddings", default=positions)
    return int((original if kind == "yarn" else positions) * factor)
