"""Which rows of a table of MoE kernels are those of a weight format, and what the timed rank of a row does."""

import pytest

from bench.costs.loads import busiest_rank
from stageline.cost.expert_formats import expert_formats


def test_rows_of_a_table_are_those_of_the_kernel_that_runs_the_format() -> None:
    static, block = ("fp8", "x_flashinfer_cutlass_x"), ("fp8_block", "x_triton_x")
    oss = [("w4a16_mxfp4", "x_gptossmxfp4moe_triton"), ("w4a16_mxfp4", "x_gptossmxfp4moe_marlin")]
    found = expert_formats([static, block, ("fp8_block", "x_flashinfer_cutlass_x"), *oss, ("unknown", "x")])
    assert found[static] == ("fp8-static",) and found[block] == ("fp8-block", "fp8")
    assert found["fp8_block", "x_flashinfer_cutlass_x"] == ("fp8-block",)
    assert [found[row] for row in oss] == [("mxfp4-openai",), ("mxfp4",)] and found["unknown", "x"] == ()
    assert expert_formats([static]) == {static: ("fp8",)}  # nothing else stands for dynamic scales
    both = ("fp8", "x_triton_x")
    assert expert_formats([both, block]) == {both: ("fp8",), block: ("fp8-block",)}


@pytest.mark.parametrize(("ranks", "tokens"), [(1, 1), (8, 1), (8, 64), (64, 4096), (1, 65536)])
def test_the_busiest_rank_has_at_least_its_share(ranks: int, tokens: int) -> None:
    """128 experts, top 8, drawn from a power law: no rank has more than all picks, nor an expert more than a pick."""
    distinct, copies = busiest_rank(tokens, 8, 128, ranks, 1.2)
    assert tokens * 8 / ranks <= copies <= tokens * min(8, 128 // ranks)
    assert copies / tokens <= distinct <= min(128 // ranks, tokens * 8)
    even, half = busiest_rank(tokens, 8, 128, ranks, 0.0)
    assert (even, half) == (min(128, tokens * 8) / ranks, tokens * 8 / ranks)
