"""Sequences and the prefix cache: what a request finds of its prompt, what it leaves behind, and what that saved."""

import msgspec

from stageline.cost.load import Load
from stageline.engine.mirror import KvMirror
from stageline.engine.prefix import Grant, PrefixCache
from stageline.engine.route import Route
from stageline.engine.sequence import Sequence
from stageline.engine.settings import Scheduling
from stageline.errors import UsageError


class PrefixStats(msgspec.Struct, kw_only=True):
    """What one replica's cache did. Counted at first admissions, so that a preempted request counts once."""

    queried_blocks: int = 0  # identities of all prompts, a last partial one included
    hit_blocks: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    evictions: int = 0
    saved_prefill_ns: int = 0  # service time, summed over the route, of the prefill chunks that were not computed


class PromptCache(PrefixCache):
    """The index of one replica as its sequences use it."""

    def __init__(self, mirror: KvMirror, node_tokens: int, snapshot_nodes: int, route: Route) -> None:
        super().__init__(mirror, node_tokens, snapshot_nodes)
        self.stats = PrefixStats()
        self._route = route
        self._saved_ns: dict[int, int] = {}  # by hit tokens

    def take(self, sequence: Sequence) -> int:
        """Hold the longest usable chain for a sequence that may be admitted; the tokens it need not prefill."""
        chain = self.match(sequence.request.hash_ids, sequence.request.prompt_tokens)
        for node in chain:
            self.hold(node)
        sequence.chain = chain
        sequence.shared_blocks = len(chain) * self.node_blocks
        return len(chain) * self.node_tokens

    def drop(self, sequence: Sequence) -> None:
        """It stopped running, or could not be admitted: its blocks stay until room is needed."""
        self.let_go(sequence.chain)
        sequence.chain = []
        sequence.shared_blocks = 0

    def share(self, sequence: Sequence, grants: list[Grant]) -> None:
        """A chunk has been dispatched: every full block of the prompt that it completes can be hit from now on."""
        request = sequence.request
        full = min(request.prompt_tokens, sequence.written_tokens) // self.node_tokens
        for key in request.hash_ids[len(sequence.chain) : full]:
            self.extend(sequence.chain, key, request.index, grants)
            sequence.blocks -= self.node_blocks
            sequence.shared_blocks += self.node_blocks

    def count(self, sequence: Sequence) -> None:
        """Book an admission."""
        if sequence.cached_tokens is not None:
            return
        stats, request = self.stats, sequence.request
        hit = sequence.cached_tokens = len(sequence.chain) * self.node_tokens
        stats.queried_blocks += len(request.hash_ids)
        stats.hit_blocks += len(sequence.chain)
        stats.queried_tokens += request.prompt_tokens
        stats.hit_tokens += hit
        if hit and hit not in self._saved_ns:
            load = Load(
                prefill_sequences=1, prefill_tokens=hit, prefill_kv_tokens=hit, prefill_pairs=hit * (hit + 1) // 2
            )
            self._saved_ns[hit] = sum(m.service_ns(load) for m in self._route.models)
        stats.saved_prefill_ns += self._saved_ns.get(hit, 0)

    def clear(self) -> None:
        """See PrefixCache; what the end of a run clears away does not count as evicted."""
        self.stats.evictions = self.evicted_blocks
        super().clear()


def make_cache(mirror: KvMirror, route: Route, scheduling: Scheduling) -> PromptCache | None:
    """The cache that the settings ask for, if any. Raises UsageError when its blocks don't match the plan's."""
    if not scheduling.prefix_cache:
        return None
    plan = route.plan
    node_tokens = scheduling.hash_block_tokens or plan.block_tokens
    if node_tokens % plan.block_tokens:
        raise UsageError(
            f"--prefix-cache: the workload's blocks of {node_tokens} tokens are no multiple of the plan's KV blocks of "
            f"{plan.block_tokens}; plan with --block-tokens that divide them"
        )
    if not any(s.state_bytes for s in plan.stages):
        return PromptCache(mirror, node_tokens, 0, route)
    if scheduling.snapshot_tokens < node_tokens or scheduling.snapshot_tokens % node_tokens:
        raise UsageError(
            f"--snapshot-tokens {scheduling.snapshot_tokens}: states are kept at block ends; give a multiple of "
            f"{node_tokens}"
        )
    return PromptCache(mirror, node_tokens, scheduling.snapshot_tokens // node_tokens, route)
