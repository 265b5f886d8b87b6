"""Kinds of attention: their weights, their cache or state, and their FLOPs per query-key pair.

Full attention (GQA, MLA) caches KV per token; linear attention (KDA, gated delta) keeps a constant state per request.
"""

import msgspec

from stageline.model.tensors import Tensor, tensor


class AttentionKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """The base of all kinds of attention; the defaults are those of linear attention."""

    @property
    def linear(self) -> bool:
        """Whether it keeps a constant state instead of a KV cache."""
        return True

    def kv_elements(self) -> int:
        """KV cache elements per token."""
        return 0

    def state_elements(self) -> tuple[int, int]:
        """State elements per request: (recurrent, convolution)."""
        return (0, 0)

    def pair_flops(self) -> tuple[int, int]:
        """FLOPs per query-key pair: (decode, prefill)."""
        return (0, 0)


class Gqa(AttentionKind, frozen=True, tag="gqa"):
    """Grouped-query attention; multi-head and multi-query attention are its extremes."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    output_gate: bool = False  # a gate as wide as the query, projected from the hidden state
    window_tokens: int = 0  # sliding window; 0: none

    @property
    def linear(self) -> bool:
        """Caches KV."""
        return False

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q, k, v and o; the gate; biases; norms of q and k."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            tensor("qkv", "attention", hidden * (query + 2 * key)),
            tensor("gate", "attention", hidden * query * self.output_gate),
            tensor("o", "attention", query * hidden),
            tensor("bias", "attention_minor", (query + 2 * key) * self.qkv_bias + hidden * self.o_bias),
            tensor("qk_norm", "norms", 2 * self.head_dim * self.qk_norm),
        )

    def kv_elements(self) -> int:
        """K and V of every KV head."""
        return 2 * self.kv_heads * self.head_dim

    def pair_flops(self) -> tuple[int, int]:
        """4 x heads x head_dim FLOPs per query-key pair, in decode and in prefill."""
        return (4 * self.heads * self.head_dim,) * 2


class Mla(AttentionKind, frozen=True, tag="mla"):
    """Multi-head latent attention: the KV cache holds one latent vector and one rotary key per token."""

    heads: int
    q_rank: int  # 0: the query is not compressed
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    output_gate: bool = False

    @property
    def linear(self) -> bool:
        """Caches KV."""
        return False

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Down and up projections of query and KV; output; gate; norms of the latents."""
        query = self.heads * (self.nope_dim + self.rope_dim)
        return (
            tensor("q_a", "attention", hidden * self.q_rank),
            tensor("q_b", "attention", (self.q_rank or hidden) * query),
            tensor("kv_a", "attention", hidden * (self.kv_rank + self.rope_dim)),
            tensor("kv_b", "attention", self.kv_rank * self.heads * (self.nope_dim + self.value_dim)),
            tensor("o", "attention", self.heads * self.value_dim * hidden),
            tensor("gate", "attention", hidden * self.heads * self.value_dim * self.output_gate),
            tensor("latent_norm", "norms", self.q_rank + self.kv_rank),
        )

    def kv_elements(self) -> int:
        """The latent and the rotary key, shared by all heads."""
        return self.kv_rank + self.rope_dim

    def pair_flops(self) -> tuple[int, int]:
        """FLOPs per query-key pair; decode absorbs the up projections, prefill does not.

        Decode 2 x heads x (2 x kv_rank + rope_dim), prefill 2 x heads x (nope_dim + rope_dim + value_dim).
        """
        absorbed = 2 * self.heads * (2 * self.kv_rank + self.rope_dim)
        return (absorbed, 2 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim))


class Kda(AttentionKind, frozen=True, tag="kda"):
    """Kimi delta attention: one head_dim x head_dim state per head, channel-wise decay, short convolutions."""

    heads: int
    head_dim: int
    conv_kernel: int
    full_rank_gate: bool = False

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q, k, v and o; gate (full or low rank); low-rank decay and its constants; beta; convolutions; output norm."""
        width, low_rank = self.heads * self.head_dim, self.head_dim * (hidden + self.heads * self.head_dim)
        return (
            tensor("qkvo", "attention", 4 * hidden * width),
            tensor("gate", "attention", hidden * width if self.full_rank_gate else low_rank),
            tensor("decay", "attention_minor", low_rank + width + self.heads),
            tensor("beta", "attention_minor", hidden * self.heads),
            tensor("conv", "attention_minor", 3 * width * self.conv_kernel),
            tensor("o_norm", "norms", self.head_dim),
        )

    def state_elements(self) -> tuple[int, int]:
        """heads x head_dim^2; the last conv_kernel - 1 inputs of the q, k and v convolutions."""
        return (self.heads * self.head_dim**2, (self.conv_kernel - 1) * 3 * self.heads * self.head_dim)


class GatedDelta(AttentionKind, frozen=True, tag="gated-delta"):
    """Gated delta rule: one key_dim x value_dim state per value head, scalar decay, short convolutions."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int

    def _conv_width(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q, k and v; gate z; o; decay, beta and the decay constants; convolution; output norm."""
        value = self.value_heads * self.value_dim
        return (
            tensor("qkv", "attention", hidden * self._conv_width()),
            tensor("z", "attention", hidden * value),
            tensor("o", "attention", value * hidden),
            tensor("decay_beta", "attention_minor", 2 * hidden * self.value_heads + 2 * self.value_heads),
            tensor("conv", "attention_minor", self._conv_width() * self.conv_kernel),
            tensor("o_norm", "norms", self.value_dim),
        )

    def state_elements(self) -> tuple[int, int]:
        """value_heads x key_dim x value_dim; the last conv_kernel - 1 inputs of the convolution."""
        return (self.value_heads * self.key_dim * self.value_dim, (self.conv_kernel - 1) * self._conv_width())


Attention = Gqa | Mla | Kda | GatedDelta
