"""The prefix cache as sequences use it: cached blocks of a prompt, blocks that prompt and answer add, prefill saved."""

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Grant
from stageline.engine.mirror import KvMirror
from stageline.engine.prefix import HashBlock, PrefixCache
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling, data_parallel_ranks
from stageline.engine.tier import ItemKind
from stageline.engine.types import PrefixStats, Request
from stageline.errors import UsageError


class PromptCache(PrefixCache):
    """One replica's prefix cache, for whole sequences instead of single blocks."""

    def __init__(
        self, mirror: KvMirror, hash_block_tokens: int, snapshot_hash_blocks: int, route: Route, chunk_tokens: int
    ) -> None:
        super().__init__(mirror, hash_block_tokens, snapshot_hash_blocks)
        self._route = route
        self._chunk_tokens = chunk_tokens
        self.model = route.plan.model
        self.completed: list[tuple[Sequence, int]] | None = None  # in the microbatch being formed; see `take_completed`
        self._prefill_ns: dict[tuple[int, int], int] = {}  # by the first token and the one after the last
        self._queried_blocks = self._hit_blocks = self._queried_tokens = self._hit_tokens = self._total_saved_ns = 0

    def stats(self) -> PrefixStats:
        """Totals so far."""
        return PrefixStats(
            queried_blocks=self._queried_blocks, hit_blocks=self._hit_blocks, queried_tokens=self._queried_tokens,
            hit_tokens=self._hit_tokens, evictions=self.evicted_blocks, saved_prefill_ns=self._total_saved_ns,
        )  # fmt: skip

    def item_bytes(self) -> dict[ItemKind, int]:
        """What a block, its snapshot and its window KV take on all stages together."""
        stages = self._route.plan.stages
        return {
            "block": self.kv_blocks * sum(s.kv_block_bytes for s in stages),
            "snapshot": sum(s.state_bytes for s in stages),
            "window": sum(s.window_bytes(self.kv_blocks) for s in stages),
        }

    def acquire(self, sequence: Sequence) -> int:
        """Hold the longest usable chain for a sequence about to be admitted; returns how many tokens it covers."""
        sequence.block_ids = self.identities(sequence.request)
        chain = self.match(sequence.block_ids, sequence.todo_tokens)
        self._hold_chain(sequence, chain)
        return len(chain) * self.hash_block_tokens

    def acquire_chain(self, sequence: Sequence, chain: list[HashBlock]) -> None:
        """Hold the blocks of a hit that reads tiers, too, as far as they are here."""
        sequence.block_ids = self.identities(sequence.request)
        self._hold_chain(sequence, chain)

    def prepare(self, sequence: Sequence, *, acquire: bool) -> None:
        """A hand-over is about to be held: its blocks can be cached once they have landed.

        With `acquire` it holds those full blocks of its prompt that are cached here already, whatever states and window
        KV lie beside them: those are sent.
        """
        sequence.block_ids = self.identities(sequence.request)
        if acquire:
            self._hold_chain(sequence, self.resident_chain(sequence.block_ids, sequence.request.prompt_tokens))

    def release(self, sequence: Sequence) -> None:
        """Release its blocks: it stopped running, or was not admitted. The blocks stay until they are evicted."""
        self.let_go(sequence.chain)
        sequence.chain = []
        sequence.cached_blocks = 0

    def cache_full_blocks(self, sequence: Sequence, grants: list[Grant], *, computed: bool = True) -> None:
        """Cache the blocks full of known tokens that a dispatched step or chunk completes: they can be hit from now on.

        Drafts that are being verified are not known; `generated` counts neither them nor what they may yield. Of blocks
        that were not computed here, but have landed, neither states nor window KV are kept.
        """
        if len(sequence.chain) == len(sequence.block_ids):
            return
        request = sequence.request
        known = min(request.prompt_tokens + sequence.generated, sequence.written_tokens)
        before = len(sequence.chain)
        for key in sequence.block_ids[before : known // self.hash_block_tokens]:
            self.extend(sequence.chain, key, request.index, grants, computed=computed)
            sequence.blocks -= self.kv_blocks
            sequence.cached_blocks += self.kv_blocks
        if self.window_hash_blocks and computed:
            self.keep_windows(sequence.chain[before:], grants)
        if self.completed is not None and computed and len(sequence.chain) > before:
            self.completed.append((sequence, before))

    def take_completed(self) -> list[tuple[Sequence, list[HashBlock]]]:
        """The blocks that the members of the microbatch being formed complete; nothing unless `completed` is kept."""
        if not self.completed:
            return []
        completed, self.completed = self.completed, []
        return [(sequence, sequence.chain[before:]) for sequence, before in completed]

    def count(self, sequence: Sequence, hit: int) -> None:
        """Count an admission with so many hit tokens, once per request."""
        if sequence.admitted_ns is not None:
            return  # admitted before, here or where it was prefilled
        request = sequence.request
        sequence.cached_tokens = hit
        self._queried_blocks += len(request.hash_ids)
        self._hit_blocks += hit // self.hash_block_tokens
        self._queried_tokens += request.prompt_tokens
        self._hit_tokens += hit
        self._total_saved_ns += self.prefill_ns(0, hit)

    def prefill_ns(self, start: int, end: int) -> int:
        """Service time of a prompt's tokens from `start` until `end`, in the largest chunks allowed, each alone."""
        known = self._prefill_ns.get((start, end))
        if known is None:
            known = self._prefill_ns[start, end] = self._prefilled_ns(start, end)
        return known

    def _hold_chain(self, sequence: Sequence, chain: list[HashBlock]) -> None:
        for block in chain:
            self.hold(block)
        self.use_windows(chain)
        sequence.chain = chain
        sequence.cached_blocks = len(chain) * self.kv_blocks

    def identities(self, request: Request) -> tuple[int, ...]:
        """Of the prompt's full blocks and those that the answer completes, up to the first that has none."""
        full = request.prompt_tokens // self.hash_block_tokens
        ids = request.hash_ids
        return ids if len(ids) < full else ids[:full] + request.output_hash_ids

    def _prefilled_ns(self, start: int, end: int) -> int:
        total_ns = 0
        for before in range(start, end, self._chunk_tokens):
            chunk = min(self._chunk_tokens, end - before)
            totals = BatchTotals(
                prefill_sequences=1, prefill_tokens=chunk, prefill_kv_tokens=before + chunk,
                prefill_pairs=chunk * before + chunk * (chunk + 1) // 2,
            )  # fmt: skip
            total_ns += sum(m.service_ns(totals) for m in self._route.models)
        return total_ns

    def clear(self) -> None:
        """See PrefixCache. Blocks freed at the end of a run do not count as evicted."""
        evicted = self.evicted_blocks
        super().clear()
        self.evicted_blocks = evicted


def make_cache(mirror: KvMirror, route: Route, scheduling: Scheduling) -> PromptCache | None:
    """The cache that the settings ask for, or None. Raises UsageError when its blocks do not match the plan's."""
    if not scheduling.prefix_cache:
        return None
    plan = route.plan
    hash_block_tokens = scheduling.hash_block_tokens or plan.block_tokens
    chunk_tokens = -(-(scheduling.batched_tokens or plan.defaults.batched_tokens) // data_parallel_ranks(plan))
    if hash_block_tokens % plan.block_tokens:
        raise UsageError(
            f"--prefix-cache: {hash_block_tokens}-token blocks are not a multiple of the plan's KV blocks of "
            f"{plan.block_tokens}; plan with a --block-tokens that divides them"
        )
    if not any(s.state_bytes for s in plan.stages):
        return PromptCache(mirror, hash_block_tokens, 0, route, chunk_tokens)
    if scheduling.snapshot_tokens < hash_block_tokens or scheduling.snapshot_tokens % hash_block_tokens:
        raise UsageError(
            f"--snapshot-tokens {scheduling.snapshot_tokens}: states are kept at block ends; give a multiple of "
            f"{hash_block_tokens}"
        )
    return PromptCache(mirror, hash_block_tokens, scheduling.snapshot_tokens // hash_block_tokens, route, chunk_tokens)
