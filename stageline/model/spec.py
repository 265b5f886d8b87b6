"""A model as a list of layers: its parameters, its bytes, and what crosses each layer boundary."""

from typing import Literal

import msgspec

from stageline.model.attention import Attention, Gqa, Mla
from stageline.model.attention_kind import NoAttention
from stageline.model.ffn import Ffn, NoFfn
from stageline.model.formats import ELEMENT_BYTES, WeightFormats, weight_bytes
from stageline.model.splits import Split
from stageline.model.tensors import Tensor, tensor

ElementType = Literal["fp32", "bf16", "fp16", "fp8"]
CONV_STATE_BYTES = 2  # per element: convolution inputs are bf16 activations, whatever the recurrent state is


class Layer(msgspec.Struct, frozen=True):
    """One transformer layer; it may consist of attention or of an FFN alone."""

    attention: Attention
    ffn: Ffn
    formats: WeightFormats
    extra: tuple[Tensor, ...] = ()  # weights that belong to neither; every tensor rank holds them

    @property
    def parts(self) -> int:
        """2, or 1 for attention or an FFN alone."""
        return 2 - isinstance(self.attention, NoAttention) - isinstance(self.ffn, NoFfn)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """All weights of the layer: attention, FFN, the norm before each of them, and what else there is."""
        norms = tensor("norms", "norms", self.parts * hidden)
        return (*self.attention.tensors(hidden), *self.ffn.tensors(hidden), norms, *self.extra)

    def splits(self) -> tuple[Split, ...]:
        """What tensor ranks split."""
        return (*self.attention.splits(), *self.ffn.splits())

    def weight_bytes(self, hidden: int) -> int:
        """Stored bytes of all weights."""
        return sum(weight_bytes(t.params, self.formats.of(t.weight_class)) for t in self.tensors(hidden))


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A text model; layers are 0-based. `left_out` names the parts that are not modelled: vision towers, MTP layers."""

    name: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    formats: WeightFormats  # of embedding and head
    tied: bool = False  # embedding and head share their weights
    context: int = 0  # longest context in tokens; 0: unknown
    kv_type: ElementType = "bf16"
    state_type: ElementType = "fp32"
    activation_type: ElementType = "bf16"
    residual_block: int = 0  # layers per block of attention residuals; 0: a plain residual stream
    residual_streams: int = 1  # parallel streams of hyper-connections
    carried_elements: int = 0  # per token, that cross every layer boundary besides the residual streams
    nominal_layer_bytes: int = 0  # the rounded bytes per layer of a published placement; 0: none
    left_out: tuple[str, ...] = ()
    quant_method: str = (
        ""  # how the checkpoint was quantised, in the word of its quantization_config; "": not, or unknown
    )
    tower_params: int = 0  # of a vision tower in 16 bits, which an engine loads on its first stage; 0: none, or unknown
    mtp_layers: int = 0  # layers for multi-token prediction, like the last one; left out unless a plan drafts with them
    draft_vocab: int = 0  # tokens that an EAGLE head's own head tells apart; 0: all
    extra: tuple[Tensor, ...] = ()  # weights outside the layers besides embedding, head and final norm; first stage

    def embedding(self) -> Tensor:
        """The input embedding. Tokens look it up, so that none of its parameters are active."""
        return tensor("embedding", "embedding", self.vocab * self.hidden, 0)

    def head(self) -> Tensor:
        """The output head. If it is tied, the embedding counts its parameters."""
        size = self.vocab * self.hidden
        return tensor("head", "head", 0 if self.tied else size, size)

    def layer_bytes(self, index: int) -> int:
        """Stored bytes of one layer's weights."""
        return self.layers[index].weight_bytes(self.hidden)

    def embedding_bytes(self) -> int:
        """Stored bytes of the embedding and of what else the first stage holds outside the layers."""
        extra = sum(weight_bytes(t.params, self.formats.of(t.weight_class)) for t in self.extra)
        return weight_bytes(self.vocab * self.hidden, self.formats.of("embedding")) + extra

    def tied_bytes(self) -> int:
        """Stored bytes that embedding and head share."""
        return weight_bytes(self.vocab * self.hidden, self.formats.of("embedding")) if self.tied else 0

    def head_bytes(self) -> int:
        """Stored bytes of head and final norm; a tied head on another stage is a copy of the embedding."""
        head = weight_bytes(self.vocab * self.hidden, self.formats.of("embedding" if self.tied else "head"))
        return head + weight_bytes(self.hidden, self.formats.of("norms"))

    def tower_bytes(self) -> int:
        """Stored bytes of the vision tower, which is no part of `weight_bytes`. Checkpoints leave it in 16 bits."""
        return 2 * self.tower_params

    def total_params(self) -> int:
        """Every stored parameter of the text model."""
        layers = sum(t.params for layer in self.layers for t in layer.tensors(self.hidden))
        extra = sum(t.params for t in self.extra)
        return layers + self.embedding().params + self.head().params + self.hidden + extra

    def active_params(self) -> int:
        """Parameters that one token is multiplied with: router and head count, embedding and norms do not."""
        layers = sum(t.active for layer in self.layers for t in layer.tensors(self.hidden))
        return layers + self.head().active + sum(t.active for t in self.extra)

    def weight_bytes(self) -> int:
        """Stored bytes of all weights; tied ones once."""
        layers = sum(self.layer_bytes(i) for i in range(len(self.layers)))
        head = weight_bytes(self.head().params, self.formats.of("head"))
        return layers + self.embedding_bytes() + head + weight_bytes(self.hidden, self.formats.of("norms"))

    def kv_bytes_per_token(self, index: int) -> int:
        """Bytes that one more token of a sequence adds to one layer's KV.

        Of a layer with windows alone, before they are full; of one that keeps other entries too, only those.
        """
        caches = [c for c in self.layers[index].attention.caches() if c.owned]
        kept = [c for c in caches if not c.kept_tokens] or caches
        return sum(c.token_bytes(ELEMENT_BYTES[self.kv_type]) for c in kept)

    def window_bytes(self, index: int) -> int:
        """Bytes of one sequence's windows in one layer, once they are full."""
        caches = [c for c in self.layers[index].attention.caches() if c.owned]
        return sum(c.kept_tokens * c.token_bytes(ELEMENT_BYTES[self.kv_type]) for c in caches)

    def state_bytes(self, index: int) -> int:
        """Bytes of one request's constant state in one layer."""
        recurrent, conv = self.layers[index].attention.state_elements()
        return recurrent * ELEMENT_BYTES[self.state_type] + conv * CONV_STATE_BYTES

    def boundary_elements(self, layers_before: int) -> int:
        """Elements per token that cross the boundary after `layers_before` (l) layers.

        residual_streams x hidden + carried_elements; with attention residuals (1 + ceil(l / residual_block)) x hidden,
        for the residual stream and the output of every block so far.
        """
        if self.residual_block == 0:
            return self.residual_streams * self.hidden + self.carried_elements
        return (1 + -(-layers_before // self.residual_block)) * self.hidden

    def boundary_bytes(self, layers_before: int) -> int:
        """Bytes per token that cross the boundary after `layers_before` layers."""
        return self.boundary_elements(layers_before) * ELEMENT_BYTES[self.activation_type]

    def requantised(self, name: str) -> "ModelSpec":
        """The same model with all linear layers in another weight format."""
        layers = tuple(msgspec.structs.replace(x, formats=x.formats.with_linear(name)) for x in self.layers)
        return msgspec.structs.replace(self, layers=layers)


def kind_name(layer: Layer) -> str:
    """The short name of a layer's kind: "kda+moe", "gqa-window+dense", "mamba2"."""
    names = (_attention_name(layer.attention), str(type(layer.ffn).__struct_config__.tag))
    return "+".join(name for name in names if name != "none") or "none"


def _attention_name(attention: Attention) -> str:
    name, suffix = str(type(attention).__struct_config__.tag), ""
    if isinstance(attention, Gqa):
        suffix = "-window" * (attention.window_tokens > 0) + "-chunk" * (attention.chunk_tokens > 0)
    elif isinstance(attention, Mla) and attention.index_top_k:
        suffix = "-sparse"
    return name + suffix
