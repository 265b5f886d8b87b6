"""Data-parallel ranks of a replica: a chunk of one prompt stays within one rank's token budget."""

import msgspec
import pytest

from stageline.engine.types import Request
from stageline.plan.schema import Plan, Serving
from stageline.testing import run_plan, uniform_plan


def plan(ranks: int) -> Plan:
    """One stage that takes 1 ns and 1 ns per new token; 102 new tokens a microbatch over all ranks."""
    made = uniform_plan(1, service_ns=1, token_ns=1, microbatch=8, batched_tokens=102)
    return msgspec.structs.replace(made, serving=Serving(engine="own", ranks=ranks))


def prompts(count: int, tokens: int = 60) -> list[Request]:
    return [
        Request(index=i, arrival_ns=0, prompt_tokens=tokens, output_tokens=1, max_output_tokens=1) for i in range(count)
    ]


def chunks(ranks: int, count: int, batching: str) -> list[int]:
    """New tokens of every microbatch."""
    seen = run_plan(plan(ranks), prompts(count), batching=batching).seen
    return [served.end_ns - served.start_ns - 1 for served in seen.services]


@pytest.mark.parametrize("batching", ["balanced", "greedy", "natural", "natural-async", "slots"])
@pytest.mark.parametrize(
    ("ranks", "count", "tokens"),
    [
        (1, 1, [60]),
        (4, 1, [26, 26, 8]),  # ceil(102 / 4) on one rank, the others wait
        (4, 2, [52, 52, 16]),
        (4, 4, [102, 102, 36]),  # three chunks of 26 and one of 24: the budget of all ranks still binds
    ],
)
def test_a_chunk_stays_within_one_ranks_budget(ranks: int, count: int, tokens: list[int], batching: str) -> None:
    assert chunks(ranks, count, batching) == tokens
