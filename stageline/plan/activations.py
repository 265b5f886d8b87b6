"""Activation memory: the most that one device holds between the operations of an inference step.

Per token, a layer of a pre-norm block holds, in elements,

    (residual stream + the block's normed input) + max(attention, FFN)

attention: query, output, and the step's key and value; FFN: gate, up and their product; MoE: the input, the three
intermediates and the output of each of a token's top_k copies. Logits are fp32, one row per sequence.

Tensor ranks split heads, widths and the vocabulary, context ranks and attention replicas split tokens, expert ranks
split copies; with sequence parallelism tensor ranks split stream and input too. Derived from these shapes alone:
fragmentation, kernel workspaces and buffers of collectives come on top.
"""

from stageline.cost.group import Group
from stageline.model.ffn import Dense, Ffn, Moe
from stageline.model.formats import ELEMENT_BYTES
from stageline.model.spec import ModelSpec

LOGIT_BYTES = 4


def layer_activation_bytes(spec: ModelSpec, group: Group, tokens: int) -> int:
    """Bytes on one device in the largest layer, with `tokens` new tokens in the whole group."""
    own = -(-tokens // (group.context * group.attention_replicas))
    stream = spec.boundary_elements(len(spec.layers)) + spec.hidden
    if group.sequence_parallel:
        stream = -(-stream // group.tensor)
    inner = max(
        max(
            own * -(-layer.attention.activation_elements() // group.tensor),
            _ffn_elements(layer.ffn, spec.hidden, own, tokens, group),
        )
        for layer in set(spec.layers)
    )
    return (own * stream + inner) * ELEMENT_BYTES[spec.activation_type]


def logit_bytes(spec: ModelSpec, group: Group, rows: int, sampler_bytes: int = 0) -> int:
    """Bytes of the logits on one device, with `rows` sampled rows in the whole group.

    With `sampler_bytes`, per row and entry of the vocabulary: what a serving engine's sampler holds, which works on
    whole rows on every rank.
    """
    each = spec.vocab * sampler_bytes if sampler_bytes else -(-spec.vocab // group.tensor) * LOGIT_BYTES
    return -(-rows // group.attention_replicas) * each


def _ffn_elements(ffn: Ffn, hidden: int, own: int, tokens: int, group: Group) -> int:
    """Elements on one device, of its `own` tokens or the expert copies of all `tokens`."""
    if isinstance(ffn, Dense):
        return own * -(-(2 + ffn.gated) * ffn.width // group.tensor)
    if not isinstance(ffn, Moe):
        return 0
    wide = ffn.latent_width or hidden
    copies = -(-tokens * ffn.top_k // group.expert_ranks) if group.experts else own * ffn.top_k
    width = ffn.width if group.experts else -(-ffn.width // group.tensor)
    return copies * (2 * wide + 3 * width) + own * -(-3 * ffn.shared_width // group.tensor)
