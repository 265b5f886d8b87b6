"""Kinds of FFN: dense, and mixture of experts. All are gated: gate, up and down projections."""

import msgspec

from stageline.model.tensors import Tensor, tensor


class Dense(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="dense", tag_field="kind"):
    """A gated FFN."""

    width: int  # intermediate size

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Gate, up, down."""
        return (tensor("ffn", "ffn", 3 * hidden * self.width),)


class Moe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="moe", tag_field="kind"):
    """A mixture of experts: routed experts, optionally in a latent space, and shared experts that every token uses."""

    experts: int
    top_k: int
    width: int  # intermediate size of one routed expert
    shared_width: int = 0  # intermediate size of all shared experts together
    latent_width: int = 0  # input and output width of the routed experts; 0: the hidden size
    shared_gate: bool = False  # one sigmoid gate over the shared experts

    def expert_params(self, hidden: int) -> int:
        """Parameters of one routed expert."""
        return 3 * (self.latent_width or hidden) * self.width

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Router, routed experts, shared experts and their gate, latent projections."""
        expert = self.expert_params(hidden)
        return (
            tensor("router", "router", hidden * self.experts),
            tensor("routed", "routed_experts", expert * self.experts, expert * self.top_k),
            tensor("shared", "shared_experts", 3 * hidden * self.shared_width),
            tensor("shared_gate", "router", hidden * self.shared_gate),
            tensor("latent", "latent", 2 * hidden * self.latent_width),
        )


Ffn = Dense | Moe
