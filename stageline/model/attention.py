"""Kinds of attention: their weights, their cache or state, and their FLOPs per query-key pair.

Full attention (GQA, MLA, compressed) caches KV per token; linear attention (KDA, gated delta, Mamba, Mamba-2,
lightning) keeps a constant state per request.
"""

from stageline.model.attention_kind import AttentionKind, KvCache, NoAttention
from stageline.model.compressed import Compressed
from stageline.model.linear_attention import GatedDelta, Kda, Lightning, Mamba, Mamba2
from stageline.model.splits import Split
from stageline.model.tensors import Tensor, tensor

INDEX_SCALE_BYTES = 4  # one fp32 scale per token of fp8 index keys

__all__ = [
    "Attention",
    "AttentionKind",
    "Compressed",
    "GatedDelta",
    "Gqa",
    "Kda",
    "Lightning",
    "Mamba",
    "Mamba2",
    "Mla",
    "Parallel",
]


class Gqa(AttentionKind, frozen=True, tag="gqa"):
    """Grouped-query attention; multi-head and multi-query attention are its extremes."""

    heads: int
    kv_heads: int
    head_dim: int  # of queries and keys
    value_dim: int = 0  # of values; 0: head_dim
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    qk_norm_all_heads: bool = False  # the norms of q and k span all heads, not one
    output_gate: bool = False  # a gate as wide as the query, projected from the hidden state
    head_gate: bool = False  # one gate per head, projected from the hidden state
    sinks: bool = False  # one learned attention sink per head
    shared_kv_projection: bool = False  # values are the projected keys; both are cached
    borrowed_kv: bool = False  # reads the cache of an earlier layer; no keys and values of its own
    window_tokens: int = 0  # sliding window; 0: none
    chunk_tokens: int = 0  # attention within chunks of this many tokens; 0: none

    @property
    def linear(self) -> bool:
        """Caches KV."""
        return False

    @property
    def values(self) -> int:
        """Width of one head's values."""
        return self.value_dim or self.head_dim

    def kv_projection(self) -> int:
        """Columns of the key and value projections, per KV head."""
        if self.borrowed_kv:
            return 0
        return self.head_dim if self.shared_kv_projection else self.head_dim + self.values

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """q, k, v and o; gates; biases and sinks; norms of q and k."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.kv_projection()
        normed = self.head_dim * (1 if self.borrowed_kv else 2)
        if self.qk_norm_all_heads:
            normed = self.head_dim * (self.heads + self.kv_heads)
        gates = query * self.output_gate + self.heads * self.head_gate
        bias = (query + key) * self.qkv_bias + hidden * self.o_bias
        return (
            tensor("qkv", "attention", hidden * (query + key)),
            tensor("gate", "attention", hidden * gates),
            tensor("o", "attention", self.heads * self.values * hidden),
            tensor("bias", "attention_minor", bias + self.heads * self.sinks),
            tensor("qk_norm", "norms", normed * (self.qk_norm or self.qk_norm_all_heads)),
        )

    def caches(self) -> tuple[KvCache, ...]:
        """K and V of every KV head: 2 x heads x (head_dim + value_dim) FLOPs per pair.

        A query in a chunk reads half of it on average.
        """
        flops = 2 * self.heads * (self.head_dim + self.values)
        reads = self.window_tokens or -(-self.chunk_tokens // 2)
        kept = self.window_tokens or self.chunk_tokens
        elements = self.kv_heads * (self.head_dim + self.values)
        return (KvCache(elements, 0, flops, flops, kept, reads, owned=not self.borrowed_kv),)

    def copies(self, ranks: int) -> int:
        """More ranks than KV heads hold each head several times."""
        return -(-ranks // self.kv_heads)

    def splits(self) -> tuple[Split, ...]:
        """Heads divide; KV heads divide, or ranks copy them."""
        heads = Split("heads", self.heads, "attention", min(self.head_dim, self.values))
        return (heads, Split("KV heads", self.kv_heads, "attention", copied=True))

    def query_elements(self) -> int:
        """heads x head_dim."""
        return self.heads * self.head_dim

    def activation_elements(self) -> int:
        """Query, output, the step's key and value, gate."""
        gate = self.heads * self.head_dim * self.output_gate
        return (self.heads + self.kv_heads) * (self.head_dim + self.values) + gate


class Mla(AttentionKind, frozen=True, tag="mla"):
    """Multi-head latent attention: the KV cache holds one latent vector and one rotary key per token.

    With `index_top_k` a query attends only to that many tokens, which an indexer chooses: its few heads score every
    token, in fp8, against index keys of its own. A layer without `index_heads` uses an earlier layer's choice.
    """

    heads: int
    q_rank: int  # 0: the query is not compressed
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    output_gate: bool = False
    bias: bool = False  # of the down projections and of the output
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0  # tokens that a query attends to; 0: all

    @property
    def linear(self) -> bool:
        """Caches KV."""
        return False

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Down and up projections of query and KV; output; gate; norms of the latents; the indexer."""
        query = self.heads * (self.nope_dim + self.rope_dim)
        index = self.index_heads * self.index_dim
        down = self.q_rank + self.kv_rank + self.rope_dim
        return (
            tensor("q_a", "attention", hidden * self.q_rank),
            tensor("q_b", "attention", (self.q_rank or hidden) * query),
            tensor("kv_a", "attention", hidden * (self.kv_rank + self.rope_dim)),
            tensor("kv_b", "attention", self.kv_rank * self.heads * (self.nope_dim + self.value_dim)),
            tensor("o", "attention", self.heads * self.value_dim * hidden),
            tensor("gate", "attention", hidden * self.heads * self.value_dim * self.output_gate),
            tensor("down_bias", "attention_minor", (down + hidden) * self.bias),
            tensor("latent_norm", "norms", self.q_rank + self.kv_rank),
            tensor("index", "attention", (self.q_rank or hidden) * index + hidden * self.index_dim),
            tensor("index_weights", "attention_minor", hidden * self.index_heads),
            tensor("index_norm", "norms", 2 * self.index_dim),
        )

    def caches(self) -> tuple[KvCache, ...]:
        """The latent and the rotary key, shared by all heads; the indexer's keys.

        FLOPs per pair: decode absorbs the up projections, 2 x heads x (2 x kv_rank + rope_dim); dense prefill does not,
        2 x heads x (nope_dim + rope_dim + value_dim); sparse prefill does, because every query reads other tokens. The
        indexer takes 2 x index_heads x index_dim.
        """
        absorbed = 2 * self.heads * (2 * self.kv_rank + self.rope_dim)
        prefill = 2 * self.heads * (self.nope_dim + self.rope_dim + self.value_dim)
        prefill = absorbed if self.index_top_k else prefill
        latent = KvCache(self.kv_rank + self.rope_dim, 0, absorbed, prefill, 0, self.index_top_k)
        if not self.index_heads:
            return (latent,)
        scores = 2 * self.index_heads * self.index_dim
        return (latent, KvCache(0, self.index_dim + INDEX_SCALE_BYTES, scores, scores, precision="fp8"))

    def splits(self) -> tuple[Split, ...]:
        """Heads divide; every rank holds the latent and the whole indexer."""
        return (Split("heads", self.heads, "attention", self.value_dim),)

    def query_elements(self) -> int:
        """heads x (nope_dim + rope_dim)."""
        return self.heads * (self.nope_dim + self.rope_dim)

    def activation_elements(self) -> int:
        """Query, key, value, output, gate."""
        return self.heads * (2 * self.nope_dim + self.rope_dim + 2 * self.value_dim + self.value_dim * self.output_gate)


class Parallel(AttentionKind, frozen=True, tag="parallel"):
    """Grouped-query attention and Mamba-2 side by side: both read the same input, and their outputs are added."""

    attention: Gqa
    state_space: Mamba2

    @property
    def linear(self) -> bool:
        """Caches KV, beside the state."""
        return False

    def kinds(self) -> tuple[AttentionKind, ...]:
        """Both."""
        return (self.attention, self.state_space)

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Those of both."""
        return (*self.attention.tensors(hidden), *self.state_space.tensors(hidden))

    def caches(self) -> tuple[KvCache, ...]:
        """Those of attention."""
        return self.attention.caches()

    def copies(self, ranks: int) -> int:
        """Those of attention."""
        return self.attention.copies(ranks)

    def splits(self) -> tuple[Split, ...]:
        """Heads of both."""
        return (*self.attention.splits(), *self.state_space.splits())

    def state_elements(self) -> tuple[int, int]:
        """That of Mamba-2."""
        return self.state_space.state_elements()

    def state_flops(self) -> int:
        """Those of Mamba-2."""
        return self.state_space.state_flops()

    def query_elements(self) -> int:
        """Those of attention."""
        return self.attention.query_elements()

    def activation_elements(self) -> int:
        """Those of both, which wait for each other."""
        return self.attention.activation_elements() + self.state_space.activation_elements()


Attention = Gqa | Mla | Compressed | Kda | GatedDelta | Mamba | Mamba2 | Lightning | Parallel | NoAttention
