"""Compressed attention (DeepSeek V4): a sliding window, and one entry for every few tokens of all that came before."""

from stageline.model.attention_kind import AttentionKind, KvCache
from stageline.model.splits import Split
from stageline.model.tensors import Tensor, tensor

FP32_BYTES = 4
INDEX_SCALE_BYTES = 4


class Compressed(AttentionKind, frozen=True, tag="compressed"):
    """One KV head whose entries are key and value at once; all query heads read it.

    Every layer sees its last `window_tokens` tokens. With `ratio`, a compressor makes one entry of that many tokens;
    with `index_heads` too, an indexer with a compressor of its own chooses `index_top_k` entries, and the windows of
    both compressors overlap by one. Queries come through a low rank, outputs leave through one per group of heads.
    """

    heads: int
    head_dim: int
    q_rank: int
    o_rank: int  # of every group
    o_groups: int
    window_tokens: int
    ratio: int = 0  # tokens per compressed entry; 0: only the window
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0  # entries

    @property
    def linear(self) -> bool:
        """Caches KV."""
        return False

    def _compressor(self, hidden: int, name: str, dim: int) -> tuple[Tensor, ...]:
        """Projections of entries and their gates, a bias per position, a norm."""
        series = 1 + (self.index_heads > 0)
        return (
            tensor(name, "attention_minor", 2 * hidden * series * dim + self.ratio * series * dim),
            tensor(f"{name}_norm", "norms", dim),
        )

    def tensors(self, hidden: int) -> tuple[Tensor, ...]:
        """Query, KV and output projections, sinks; compressor; indexer with its own compressor."""
        query = self.heads * self.head_dim
        found: tuple[Tensor, ...] = (
            tensor("q_a", "attention", hidden * self.q_rank),
            tensor("q_b", "attention", self.q_rank * query),
            tensor("kv_a", "attention", hidden * self.head_dim),
            tensor("o_a", "attention", query * self.o_rank),
            tensor("o_b", "attention", self.o_groups * self.o_rank * hidden),
            tensor("bias", "attention_minor", self.heads),
            tensor("latent_norm", "norms", self.q_rank + self.head_dim),
        )
        if self.ratio:
            found += self._compressor(hidden, "compressor", self.head_dim)
        if self.index_heads:
            found += self._compressor(hidden, "index_compressor", self.index_dim)
            found += (
                tensor("index", "attention", self.q_rank * self.index_heads * self.index_dim),
                tensor("index_weights", "attention_minor", hidden * self.index_heads),
            )
        return found

    def caches(self) -> tuple[KvCache, ...]:
        """The compressed entries, the index keys, the window, and the fp32 inputs that the compressors still need.

        Sizes and FLOPs per token are those of an entry / ratio.
        """
        pair = 4 * self.heads * self.head_dim
        window = KvCache(self.head_dim, 0, pair, pair, self.window_tokens, self.window_tokens)
        if not self.ratio:
            return (window,)
        each = -(-pair // self.ratio)
        series = 1 + (self.index_heads > 0)
        pending, reads = series * self.head_dim, 0
        found = []
        if self.index_heads:
            reads = self.index_top_k * self.ratio
            pending += series * self.index_dim
            scores = -(-2 * self.index_heads * self.index_dim // self.ratio)
            size = -(-(self.index_dim + INDEX_SCALE_BYTES) // self.ratio)
            found = [KvCache(0, size, scores, scores, precision="fp8")]
        entries = KvCache(-(-self.head_dim // self.ratio), 0, each, each, 0, reads)
        buffer = KvCache(0, 2 * FP32_BYTES * pending, kept_tokens=series * self.ratio)
        return (entries, *found, window, buffer)

    def splits(self) -> tuple[Split, ...]:
        """Heads and groups of the output divide; every rank holds KV, compressors and indexer."""
        heads = Split("heads", self.heads, "attention", self.head_dim)
        return (heads, Split("output groups", self.o_groups, "attention", self.o_rank))

    def query_elements(self) -> int:
        """heads x head_dim."""
        return self.heads * self.head_dim

    def activation_elements(self) -> int:
        """Query, output, the step's entry, the groups' outputs."""
        return 2 * self.heads * self.head_dim + self.head_dim + self.o_groups * self.o_rank
