"""Kinds of FFN: dense, and mixture of experts. Gated ones have gate, up and down projections, others up and down."""

import msgspec

from stageline.model.splits import Split
from stageline.model.tensors import Tensor, tensor


class NoFfn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="none", tag_field="kind"):
    """A layer without an FFN: attention alone."""

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """No weights."""
        return ()

    def splits(self) -> tuple[Split, ...]:
        """Nothing to split."""
        return ()


class Dense(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="dense", tag_field="kind"):
    """An FFN that every token uses."""

    width: int  # intermediate size
    gated: bool = True
    bias: bool = False

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Gate, up, down; biases."""
        return (
            tensor("ffn", "ffn", (2 + self.gated) * hidden * self.width),
            tensor("ffn_bias", "attention_minor", ((1 + self.gated) * self.width + hidden) * self.bias),
        )

    def splits(self) -> tuple[Split, ...]:
        """The width divides."""
        return (Split("FFN width", self.width, "ffn", 1),)


class Moe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="moe", tag_field="kind"):
    """A mixture of experts: routed experts, optionally in a latent space, and shared experts that every token uses."""

    experts: int
    top_k: int
    width: int  # intermediate size of one routed expert
    shared_width: int = 0  # intermediate size of all shared experts together
    latent_width: int = 0  # input and output width of the routed experts; 0: the hidden size
    shared_gate: bool = False  # one sigmoid gate over the shared experts
    gated: bool = True
    bias: bool = False  # of router and routed experts

    def expert_params(self, hidden: int) -> int:
        """Parameters of one routed expert, without its biases."""
        return (2 + self.gated) * (self.latent_width or hidden) * self.width

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Router, routed experts, shared experts and their gate, latent projections; biases."""
        expert = self.expert_params(hidden)
        bias = ((1 + self.gated) * self.width + (self.latent_width or hidden)) * self.bias
        return (
            tensor("router", "router", (hidden + self.bias) * self.experts),
            tensor("routed", "routed_experts", expert * self.experts, expert * self.top_k),
            tensor("shared", "shared_experts", (2 + self.gated) * hidden * self.shared_width),
            tensor("shared_gate", "router", hidden * self.shared_gate),
            tensor("latent", "latent", 2 * hidden * self.latent_width),
            tensor("expert_bias", "attention_minor", bias * self.experts, bias * self.top_k),
        )

    def splits(self) -> tuple[Split, ...]:
        """Widths divide; that of routed experts only where ranks shard them."""
        routed = Split("expert width", self.width, "routed_experts", 1, spread=True)
        if not self.shared_width:
            return (routed,)
        return (routed, Split("shared expert width", self.shared_width, "shared_experts", 1))


Ffn = Dense | Moe | NoFfn
