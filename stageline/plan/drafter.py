"""What drafts tokens for speculative decoding beside the last layers of a plan: its weights, its KV, its cost.

An MTP layer (DeepSeek-V3, arXiv 2412.19437, section 2.2) is a decoder layer like the model's last one behind a
projection of two hidden vectors to one; embedding and head are the model's. An EAGLE head (arXiv 2401.15077) is a
decoder layer with a config of its own behind such a projection; EAGLE-3 (arXiv 2503.01840) projects three vectors, and
queries, keys and values of its layer see two. A draft model is a model of its own.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from stageline.cost.entries import Drafter
from stageline.cost.group import Group, layer_group_bytes
from stageline.cost.roofline_entry import roofline_entry
from stageline.errors import BadInput
from stageline.hardware.device import Device
from stageline.model.attention import Gqa
from stageline.model.spec import Layer, ModelSpec
from stageline.model.tensors import tensor

Method = Literal["mtp", "eagle", "eagle3", "draft_model", "ngram"]
FLAG = "--speculative-config"


class Draft(NamedTuple):
    """How a plan drafts: `tokens` per step, by layers of `model` (None: without weights, by looking the text up)."""

    method: Method
    tokens: int
    model: ModelSpec | None = None
    own_embedding: bool = False
    own_head: bool = False

    def weight_bytes(self, group: Group) -> int:
        """Of all devices of the stage that drafts, copies included."""
        spec = self.model
        if spec is None:
            return 0
        copies = group.devices // group.tensor  # of weights that only tensor ranks split
        ends = self.own_embedding * spec.embedding_bytes() + self.own_head * spec.head_bytes()
        return sum(layer_group_bytes(spec, layer, group) for layer in spec.layers) + ends * copies

    def layers(self) -> Sequence[Layer]:
        """The layers that keep KV."""
        return self.model.layers if self.model else ()

    def cost(self, device: Device, group: Group) -> Drafter | None:
        """One pass. Of several MTP layers each drafts one token: a pass takes one of them."""
        if self.model is None:
            return None
        passed = range(1 if self.method == "mtp" else len(self.model.layers))
        entry = roofline_entry(self.model, passed, device, group, head=True)
        assert entry.head is not None
        return Drafter(groups=entry.groups, head=entry.head)


def mtp(spec: ModelSpec, tokens: int) -> Draft:
    """The model's own MTP layers. Raises BadInput for a model that has none, or whose last layer is not a whole one."""
    last = spec.layers[-1]
    if not spec.mtp_layers:
        raise BadInput(FLAG, "mtp", f"{spec.name} has no MTP layer", "give another method, or the model that has one")
    if last.parts < 2:
        raise BadInput(FLAG, "mtp", f"the MTP layers of {spec.name} are not known: its last layer is not a whole one")
    projection = tensor("eh_proj", "attention_minor", 2 * spec.hidden * spec.hidden)
    norms = tensor("mtp_norms", "norms", 3 * spec.hidden)
    layer = msgspec.structs.replace(last, extra=(*last.extra, projection, norms))
    return Draft("mtp", tokens, msgspec.structs.replace(spec, layers=(layer,) * spec.mtp_layers, residual_block=0))


def eagle(spec: ModelSpec, head: ModelSpec, method: Literal["eagle", "eagle3"], tokens: int) -> Draft:
    """An EAGLE head of a config of its own. Raises BadInput for one of another hidden size."""
    if head.hidden != spec.hidden:
        reason = f"its hidden size is {head.hidden:,}, that of {spec.name} {spec.hidden:,}"
        raise BadInput(FLAG, head.name, reason, "give the head that was trained for this model")
    inputs = 3 if method == "eagle3" else 2
    extra = [tensor("fc", "attention_minor", inputs * spec.hidden * spec.hidden)]
    attention = head.layers[0].attention
    if method == "eagle3" and isinstance(attention, Gqa):  # its layer sees the embedding beside the hidden vector
        qkv = next(t.params for t in attention.tensors(spec.hidden) if t.name == "qkv")
        extra.append(tensor("eagle_qkv", "attention", qkv))
    first = msgspec.structs.replace(head.layers[0], extra=(*head.layers[0].extra, *extra))
    drafted = msgspec.structs.replace(
        head, layers=(first, *head.layers[1:]), vocab=head.draft_vocab or head.vocab, kv_type=spec.kv_type
    )
    return Draft(method, tokens, drafted, own_head=method == "eagle3")


def draft_model(spec: ModelSpec, small: ModelSpec, tokens: int) -> Draft:
    """A model of its own. Raises BadInput for one with another vocabulary."""
    if small.vocab != spec.vocab:
        reason = f"its vocabulary has {small.vocab:,} tokens, that of {spec.name} {spec.vocab:,}"
        raise BadInput(FLAG, small.name, reason, "give a draft model with the same vocabulary")
    own_head = not small.tied
    return Draft(
        "draft_model",
        tokens,
        msgspec.structs.replace(small, kv_type=spec.kv_type),
        own_embedding=True,
        own_head=own_head,
    )
