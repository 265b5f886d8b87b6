"""What the serving engine of a plan says when it starts: its limits, and the KV cache that its memory holds."""

import msgspec

from stageline.plan.memory import Memory
from stageline.plan.schema import Plan


class EngineStart(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and KV cache of one data-parallel rank."""

    max_num_seqs: int  # 0: as many as memory holds
    max_num_batched_tokens: int
    kv_cache_tokens: int
    max_model_len: int  # 0: no limit
    max_concurrency: float | None  # requests of max_model_len tokens that the KV cache holds; None: no limit


def engine_start(plan: Plan, memory: Memory) -> EngineStart | None:
    """As vLLM logs them (`vllm/v1/core/kv_cache_utils.py`); None if the plan names no engine.

    The stage with the least room counts. Blocks of equal size hold block_tokens each; with windows or states beside
    them the KV cache is said to hold max_concurrency x max_model_len tokens.
    """
    if not plan.serving:
        return None
    ranks, longest = plan.serving.ranks, plan.max_context_tokens
    blocks = -(-longest // plan.block_tokens)
    concurrency = min(s.kv_budget_bytes / max(1, s.kv_bytes(blocks, 1)) for s in plan.stages) / ranks
    uneven = any(s.windows or s.state_bytes or not s.kv_block_bytes for s in plan.stages)
    if uneven:
        tokens = int(concurrency * (longest or memory.context_tokens))
    else:
        least = min(s.kv_budget_bytes // s.kv_block_bytes for s in plan.stages) // ranks
        tokens, concurrency = least * plan.block_tokens, least / max(1, blocks)
    return EngineStart(
        max_num_seqs=plan.serving.max_running // ranks,
        max_num_batched_tokens=plan.defaults.batched_tokens // ranks,
        kv_cache_tokens=tokens,
        max_model_len=longest,
        max_concurrency=round(concurrency, 2) if longest else None,
    )
