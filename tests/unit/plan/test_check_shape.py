"""Refused shapes: the error names place, value and way out, and the way out works."""

import re

import pytest

from stageline.catalog.loader import Catalog
from stageline.cli.main import invoke as run
from stageline.errors import BadInput
from stageline.plan.check_shape import check_shape, heads_divide
from stageline.plan.options import PlanOptions

SHELF = Catalog()
FIELDS = {
    "--tensor-parallel-size": "tensor_parallel",
    "--ep": "expert_parallel",
    "--redundant-experts": "redundant_experts",
}


@pytest.mark.parametrize(
    ("model", "asked", "place", "reason"),
    [
        ("llama-3.1-8b", {"tensor_parallel": 3}, "--tensor-parallel-size", "the 32 heads of layer 0"),
        ("llama-3.1-8b", {"tensor_parallel": 64}, "--tensor-parallel-size", "the 32 heads of layer 0"),
        ("qwen2.5-7b", {"tensor_parallel": 8}, "--tensor-parallel-size", "the 28 heads"),
        ("kimi-k3", {"tensor_parallel": 5}, "--tensor-parallel-size", "the 96 heads"),
        ("deepseek-v3", {"expert_parallel": 24}, "--ep", "256 experts do not spread evenly over 24 ranks"),
        ("deepseek-v3", {"expert_parallel": 32, "redundant_experts": 5}, "--ep", "256 experts and 5 copies"),
        ("deepseek-v3", {"tensor_parallel": 4, "expert_parallel": 12}, "--ep", "over 12 ranks"),
    ],
)
def test_uneven_divisions_are_refused_and_every_hint_is_one(
    model: str, asked: dict[str, int], place: str, reason: str
) -> None:
    spec = SHELF.model(model).spec
    with pytest.raises(BadInput, match=re.escape(reason)) as refusal:
        check_shape(spec, PlanOptions(**asked))  # type: ignore[arg-type]
    assert refusal.value.place == place and refusal.value.value == asked[FIELDS[place]]
    ways, flag = re.findall(r"(--[a-z-]+)? ?(\d+)", refusal.value.hint), place
    assert ways
    for name, value in ways:
        flag = name or flag
        check_shape(spec, PlanOptions(**(asked | {FIELDS[flag]: int(value)})))  # type: ignore[arg-type]


def test_expert_ranks_need_experts_and_copies_need_ranks() -> None:
    dense, moe = SHELF.model("llama-3.1-8b").spec, SHELF.model("deepseek-v3").spec
    with pytest.raises(BadInput, match=r"dense and has no experts .*--tensor-parallel-size 4 or --replicas 4"):
        check_shape(dense, PlanOptions(expert_parallel=4))
    with pytest.raises(BadInput, match=r"have no use .got 8.; spread experts with --ep"):
        check_shape(moe, PlanOptions(redundant_experts=8))
    with pytest.raises(BadInput, match="at most once: 2 ranks hold at most 256 copies"):
        check_shape(moe, PlanOptions(expert_parallel=2, redundant_experts=258))
    check_shape(moe, PlanOptions(expert_parallel=2, redundant_experts=256))
    check_shape(moe, PlanOptions(expert_parallel=24, redundant_experts=8))


def test_heads_that_divide() -> None:
    kimi = SHELF.model("kimi-k3").spec
    assert [n for n in range(1, 13) if heads_divide(kimi, n)] == [1, 2, 3, 4, 6, 8, 12]


@pytest.mark.parametrize("flags", [["--tp", "3"], ["--ep", "4"], ["--enable-expert-parallel", "--tp", "2"]])
def test_the_command_line_exits_with_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "llama-3.1-8b", "h100-sxm", *flags]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and ("--tensor-parallel-size" in said or "--ep" in said)
