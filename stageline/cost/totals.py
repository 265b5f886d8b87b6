"""The totals of one microbatch, on which its service times depend (rule 3)."""

import msgspec


class BatchTotals(msgspec.Struct, frozen=True, gc=False):
    """Decode and prefill totals of one microbatch; all are counts >= 0.

    `*_kv_tokens`: tokens of KV that attention reads once per step, including the step's own. `*_pairs`: query-key pairs
    under the causal mask. A chunk of T new tokens after C cached ones reads C + T tokens and forms T C + T (T + 1) / 2
    pairs.

    A msgspec struct, because one is made for every microbatch and a dataclass takes five times as long.
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
