"""A microbatch while it is being formed: who is in it, its totals, its KV changes, the limits left.

`draft_tokens` and `max_drafts` count the draft tokens of speculative decoding.
"""

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Grant, Microbatch
from stageline.engine.sequence import Sequence


class Forming:
    """Collects members up to `limit` sequences and `tokens_left` new tokens."""

    __slots__ = (
        "decode_kv_tokens",
        "decode_sequences",
        "draft_pairs",
        "draft_tokens",
        "grants",
        "limit",
        "max_drafts",
        "members",
        "prefill_kv_tokens",
        "prefill_pairs",
        "prefill_sequences",
        "prefill_tokens",
        "sampled",
        "tokens_left",
    )  # fmt: skip

    def __init__(self, limit: int, batched_tokens: int) -> None:
        self.limit = limit
        self.tokens_left = batched_tokens
        self.members: list[tuple[Sequence, int]] = []  # (sequence, rows sampled for it)
        self.grants: list[Grant] = []
        self.decode_sequences = self.decode_kv_tokens = 0
        self.draft_tokens = self.draft_pairs = 0  # what speculation adds to one token per decode step
        self.max_drafts = 0  # the most that one member has
        self.prefill_sequences = self.prefill_tokens = self.prefill_kv_tokens = self.prefill_pairs = 0
        self.sampled = 0

    @property
    def has_room(self) -> bool:
        """Whether one more member may join."""
        return self.tokens_left > 0 and len(self.members) < self.limit

    def add_decode(self, sequence: Sequence) -> None:
        """Add one decode step: it writes the KV of the last token and reads the whole context."""
        sequence.written_tokens += 1
        sequence.in_flight += 1
        self.decode_sequences += 1
        self.decode_kv_tokens += sequence.written_tokens
        self.sampled += 1
        self.tokens_left -= 1
        self.members.append((sequence, 1))

    def add_verification(self, sequence: Sequence, tokens: int) -> None:
        """Add one decode step of the last token and `tokens` - 1 drafts: a short chunk of which every row is sampled.

        With W tokens written before, the i-th of them is a query against W + i keys.
        """
        drafts = tokens - 1
        sequence.written_tokens = written = sequence.written_tokens + tokens
        sequence.in_flight += 1
        self.decode_sequences += 1
        self.decode_kv_tokens += written
        self.draft_tokens += drafts
        self.draft_pairs += drafts * written - drafts * tokens // 2
        self.max_drafts = max(self.max_drafts, drafts)
        self.sampled += tokens
        self.tokens_left -= tokens
        self.members.append((sequence, tokens))

    def add_prefill(self, sequence: Sequence, chunk: int) -> None:
        """Add a prefill chunk; the one that completes the prompt samples a token."""
        written = sequence.written_tokens
        self.prefill_sequences += 1
        self.prefill_tokens += chunk
        self.prefill_kv_tokens += written + chunk
        self.prefill_pairs += chunk * written + chunk * (chunk + 1) // 2
        sequence.written_tokens = written + chunk
        sequence.todo_tokens -= chunk
        sequence.in_flight += 1
        samples = not sequence.todo_tokens
        self.sampled += samples
        self.tokens_left -= chunk
        self.members.append((sequence, int(samples)))

    def take_grants(self) -> list[Grant]:
        """Remove and return the grants so far."""
        grants, self.grants = self.grants, []
        return grants

    def withdraw(self, owner: int) -> bool:
        """Drop the grants to an owner whose KV is freed before they are sent; True if nothing was sent before them.

        The first grant to a request has its state; a cached block is granted once.
        """
        mine = [grant for grant in self.grants if grant[0] == owner]
        if mine:
            self.grants = [grant for grant in self.grants if grant[0] != owner]
        return bool(mine) and (owner < 0 or any(states > 0 for _, _, states, _ in mine))

    def seal(
        self, number: int, now_ns: int, stamps: tuple[int, int, int, int], releases: tuple[int, ...]
    ) -> Microbatch:
        """The finished microbatch; `stamps` are (work_since, empty_since, credit_since, transfer_wait)."""
        totals = BatchTotals(
            self.decode_sequences, self.decode_sequences + self.draft_tokens,
            self.decode_kv_tokens, self.decode_kv_tokens + self.draft_pairs,
            self.prefill_sequences, self.prefill_tokens, self.prefill_kv_tokens, self.prefill_pairs, self.sampled,
        )  # fmt: skip
        return Microbatch(number, totals, now_ns, *stamps[:3], releases, tuple(self.grants), stamps[3])
