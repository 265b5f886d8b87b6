"""How many requests fit at each context length, which stage limits them, and whether KV or state fills it."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from stageline.plan.memory import Memory
from stageline.plan.schema import StagePlan

MIN_CONTEXT_TOKENS = 1024
MAX_CONTEXT_TOKENS = 1 << 20  # of a model whose longest context is unknown


class ContextCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The limit at one context length."""

    context_tokens: int
    requests: int  # of this context that fit, per replica
    stage: str  # that limits them
    binds: Literal[
        "kv", "state", "weights"
    ]  # the larger part of a request on that stage; weights: they leave room for no request


def by_context(stages: Sequence[StagePlan], memory: Memory, longest: int) -> tuple[ContextCapacity, ...]:
    """The limit at every power of two up to `longest` tokens, the model's longest context; 0: unknown."""
    contexts, tokens = [], min(MIN_CONTEXT_TOKENS, longest or MIN_CONTEXT_TOKENS)
    while tokens <= (longest or MAX_CONTEXT_TOKENS):
        contexts.append(tokens)
        tokens *= 2
    return tuple(capacity_at(stages, memory, tokens) for tokens in contexts)


def capacity_at(stages: Sequence[StagePlan], memory: Memory, context_tokens: int) -> ContextCapacity:
    """The stage that holds the fewest requests of that context; of equal ones the first."""
    blocks = -(-context_tokens // memory.block_tokens)
    count = [s.kv_budget_bytes // max(1, s.kv_bytes(blocks, 1)) for s in stages]
    tightest = count.index(min(count))
    stage = stages[tightest]
    kv_bytes = stage.kv_bytes(blocks, 0)
    binds: Literal["kv", "state", "weights"] = "kv" if kv_bytes >= stage.state_bytes else "state"
    return ContextCapacity(
        context_tokens=context_tokens,
        requests=count[tightest],
        stage=stage.name,
        binds=binds if count[tightest] or memory.kv_given else "weights",
    )


def crossover_tokens(stages: Sequence[StagePlan], memory: Memory, longest: int) -> int | None:
    """The shortest context, in whole blocks, from which on KV is the limit instead of state; None: it never changes."""
    low, high = memory.block_tokens, longest or MAX_CONTEXT_TOKENS
    if capacity_at(stages, memory, low).binds != "state" or capacity_at(stages, memory, high).binds == "state":
        return None
    low, high = 1, high // memory.block_tokens
    while high - low > 1:
        middle = (low + high) // 2
        if capacity_at(stages, memory, middle * memory.block_tokens).binds == "state":
            low = middle
        else:
            high = middle
    return high * memory.block_tokens
