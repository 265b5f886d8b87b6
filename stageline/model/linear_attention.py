"""Kinds of linear attention and state-space layers, which keep a constant state per request."""

from stageline.model.attention_kind import AttentionKind
from stageline.model.splits import Split
from stageline.model.tensors import Tensor, tensor


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

    def splits(self) -> tuple[Split, ...]:
        """Heads divide."""
        return (Split("heads", self.heads, "attention", self.head_dim),)

    def activation_elements(self) -> int:
        """q, k, v, decay, output; gate."""
        return self.heads * self.head_dim * (5 + self.full_rank_gate)


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

    def splits(self) -> tuple[Split, ...]:
        """Value heads and key heads divide."""
        values = Split("value heads", self.value_heads, "attention", self.value_dim)
        return (values, Split("key heads", self.key_heads, "attention", self.key_dim))

    def activation_elements(self) -> int:
        """q, k; v, gate, output."""
        return 2 * self.key_heads * self.key_dim + 3 * self.value_heads * self.value_dim


class Mamba(AttentionKind, frozen=True, tag="mamba"):
    """Mamba: a state of `state_dim` per channel, with input, output and step size maps that depend on the token."""

    width: int  # channels
    state_dim: int
    step_rank: int  # of the map to step sizes
    conv_kernel: int
    conv_bias: bool = True
    bias: bool = False  # of the input and output projections
    norms: bool = False  # of step sizes, B and C

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Gate and input; maps to steps, B and C; steps per channel; output; decay, skip; convolution; norms; bias."""
        maps = self.step_rank + 2 * self.state_dim
        return (
            tensor("in", "attention", 2 * hidden * self.width),
            tensor("maps", "attention", self.width * maps),
            tensor("dt", "attention", self.width * self.step_rank),
            tensor("o", "attention", self.width * hidden),
            tensor("decay", "attention_minor", self.width * (self.state_dim + 2)),
            tensor("conv", "attention_minor", self.width * (self.conv_kernel + self.conv_bias)),
            tensor("bias", "attention_minor", (2 * self.width + hidden) * self.bias),
            tensor("o_norm", "norms", maps * self.norms),
        )

    def state_elements(self) -> tuple[int, int]:
        """width x state_dim; the last conv_kernel - 1 inputs of the convolution."""
        return (self.width * self.state_dim, (self.conv_kernel - 1) * self.width)

    def state_flops(self) -> int:
        """6 per element, as Mamba-2."""
        return 6 * self.state_elements()[0]

    def splits(self) -> tuple[Split, ...]:
        """Channels divide."""
        return (Split("state-space width", self.width, "attention"),)

    def activation_elements(self) -> int:
        """Gate, input, output, step sizes, B, C."""
        return 4 * self.width + self.step_rank + 2 * self.state_dim


class Mamba2(AttentionKind, frozen=True, tag="mamba2"):
    """Mamba-2: one head_dim x state_dim state per head; groups of heads share the input and output maps B and C."""

    heads: int
    head_dim: int
    state_dim: int
    groups: int
    conv_kernel: int
    conv_bias: bool = True
    bias: bool = False  # of the input and output projections
    norm: bool = True  # of the output

    def _inner(self) -> int:
        return self.heads * self.head_dim

    def _conv_width(self) -> int:
        return self._inner() + 2 * self.groups * self.state_dim

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Gate and input; B and C; step sizes, decay and skip per head; convolution; output and its norm; biases."""
        inner = self._inner()
        bias = 2 * inner + 2 * self.groups * self.state_dim + self.heads + hidden
        return (
            tensor("in", "attention", 2 * hidden * inner),
            tensor("bc", "attention", 2 * hidden * self.groups * self.state_dim),
            tensor("dt", "attention", hidden * self.heads),
            tensor("o", "attention", inner * hidden),
            tensor("decay", "attention_minor", 3 * self.heads),
            tensor("conv", "attention_minor", self._conv_width() * (self.conv_kernel + self.conv_bias)),
            tensor("bias", "attention_minor", bias * self.bias),
            tensor("inner_norm", "norms", inner * self.norm),
        )

    def state_elements(self) -> tuple[int, int]:
        """heads x head_dim x state_dim; the last conv_kernel - 1 inputs of the convolution."""
        return (self._inner() * self.state_dim, (self.conv_kernel - 1) * self._conv_width())

    def state_flops(self) -> int:
        """6 per element: decay, outer product of step, B and input, addition; multiplication with C, addition."""
        return 6 * self.state_elements()[0]

    def splits(self) -> tuple[Split, ...]:
        """Heads divide; groups divide, or ranks copy a single one."""
        heads = Split("state-space heads", self.heads, "attention", self.head_dim)
        return (heads, Split("state-space groups", self.groups, "attention", copied=self.groups == 1))

    def activation_elements(self) -> int:
        """Gate, input, output, B, C, step sizes."""
        return 3 * self._inner() + 2 * self.groups * self.state_dim + self.heads


class Lightning(AttentionKind, frozen=True, tag="lightning"):
    """Lightning attention: one head_dim x head_dim state per head, fixed decay, gated output."""

    heads: int
    head_dim: int

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q, k and v; gate; output and its norm."""
        width = self.heads * self.head_dim
        return (
            tensor("qkv", "attention", 3 * hidden * width),
            tensor("gate", "attention", hidden * width),
            tensor("o", "attention", width * hidden),
            tensor("inner_norm", "norms", width),
        )

    def state_elements(self) -> tuple[int, int]:
        """heads x head_dim^2; no convolution."""
        return (self.heads * self.head_dim**2, 0)

    def state_flops(self) -> int:
        """5 per element: decay, outer product, addition; multiplication with the query, addition."""
        return 5 * self.state_elements()[0]

    def splits(self) -> tuple[Split, ...]:
        """Heads divide."""
        return (Split("heads", self.heads, "attention", self.head_dim),)

    def activation_elements(self) -> int:
        """q, k, v, gate, output."""
        return 5 * self.heads * self.head_dim
