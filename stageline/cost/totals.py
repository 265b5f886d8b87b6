"""What a service time depends on: the totals of one microbatch (rule 3)."""

import msgspec


class BatchTotals(msgspec.Struct, frozen=True, gc=False):
    """The totals of one microbatch, kept apart for decode and prefill.

    Counts, all >= 0. `*_kv_tokens` are the tokens of KV that attention reads once per step (the context after the
    step's own tokens are written); `*_pairs` are query-key pairs under the causal mask: a chunk of T new tokens after
    C cached ones reads C + T tokens and forms T * C + T * (T + 1) / 2 pairs.

    A msgspec struct and not a dataclass because one is made for every microbatch: it costs a fifth.
    """

    decode_sequences: int = 0
    decode_tokens: int = 0
    decode_kv_tokens: int = 0
    decode_pairs: int = 0
    prefill_sequences: int = 0
    prefill_tokens: int = 0
    prefill_kv_tokens: int = 0
    prefill_pairs: int = 0
    sampled: int = 0

    @property
    def tokens(self) -> int:
        """New tokens that pass through every layer."""
        return self.decode_tokens + self.prefill_tokens
