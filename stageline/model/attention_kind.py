"""What every kind of attention says of itself: its caches, its state, and how ranks may split it."""

from typing import NamedTuple

import msgspec

from stageline.model.formats import Precision
from stageline.model.splits import Split
from stageline.model.tensors import Tensor

STATE_FLOPS = 8  # per token and element of a recurrent state: the delta rule's update and its read


class KvCache(NamedTuple):
    """A cache with an entry per token, and the work of one query with one entry. Sizes are of one copy."""

    elements: int = 0  # per token, in the KV cache's type
    fixed_bytes: int = 0  # per token, whatever the KV cache's type is
    decode_flops: int = 0  # per query-key pair
    prefill_flops: int = 0
    kept_tokens: int = 0  # the most that are kept of a sequence; 0: all
    read_tokens: int = 0  # the most that a query reads, on average; 0: all
    precision: Precision = "bf16"
    owned: bool = True  # this layer keeps it; otherwise an earlier one does

    def token_bytes(self, element_bytes: int) -> int:
        """Bytes per token."""
        return self.elements * element_bytes + self.fixed_bytes


class AttentionKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """The base of all kinds of attention; the defaults are those of linear attention."""

    @property
    def linear(self) -> bool:
        """Whether it keeps a constant state, or nothing, instead of a KV cache."""
        return True

    def kinds(self) -> "tuple[AttentionKind, ...]":
        """What works side by side in the layer: itself alone, unless it is made of several."""
        return (self,)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """All weights."""
        raise NotImplementedError

    def caches(self) -> tuple[KvCache, ...]:
        """The caches with an entry per token; the first one is that of the attention itself."""
        return ()

    def copies(self, ranks: int) -> int:
        """Copies of the caches that `ranks` tensor ranks hold between them."""
        return ranks

    def splits(self) -> tuple[Split, ...]:
        """What tensor ranks split."""
        return ()

    def state_elements(self) -> tuple[int, int]:
        """State elements per request: (recurrent, convolution)."""
        return (0, 0)

    def state_flops(self) -> int:
        """FLOPs per token: update and read of the recurrent state."""
        return STATE_FLOPS * self.state_elements()[0]

    def query_elements(self) -> int:
        """Elements of one token's query."""
        return 0

    def activation_elements(self) -> int:
        """Elements per token between the projections, all heads."""
        return 0

    def kv_elements(self) -> int:
        """KV cache elements per token, in all caches of the layer's own."""
        return sum(cache.elements for cache in self.caches() if cache.owned)

    def pair_flops(self) -> tuple[int, int]:
        """FLOPs per query-key pair: (decode, prefill)."""
        caches = self.caches()
        return (sum(c.decode_flops for c in caches), sum(c.prefill_flops for c in caches))


class NoAttention(AttentionKind, frozen=True, tag="none"):
    """A layer without attention: an FFN alone."""

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """No weights."""
        return ()
