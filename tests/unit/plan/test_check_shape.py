"""Refused shapes: the error names place, value and way out, and the way out works."""

import re
from pathlib import Path

import msgspec
import pytest

from stageline.catalog.loader import Catalog
from stageline.cli.main import invoke as run
from stageline.errors import BadInput
from stageline.model.hf import import_config
from stageline.plan.build import make_plan
from stageline.plan.check_shape import check_shape, ranks_divide
from stageline.plan.options import PlanOptions
from stageline.plan.shapes import shapes

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
        ("qwen2.5-1.5b", {"tensor_parallel": 3}, "--tensor-parallel-size", "a multiple of the 2 KV heads of layer 0"),
        ("qwen2.5-1.5b", {"tensor_parallel": 12}, "--tensor-parallel-size", "the FFN width, 8,960, of layer 0"),
        ("qwen3.6-27b", {"tensor_parallel": 24}, "--tensor-parallel-size", "the 16 key heads of layer 0"),
        ("deepseek-v3", {"tensor_parallel": 32}, "--tensor-parallel-size", "whole blocks of 128 (fp8-block)"),
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


def test_blocks_stay_whole(shared_data: Path) -> None:
    """1536 / 8 = 192 is not a multiple of 128, unless the experts are spread."""
    path = shared_data / "configs" / "Qwen--Qwen3-235B-A22B-FP8.json"
    spec = import_config(path.read_bytes(), path.name, "qwen")
    with pytest.raises(BadInput, match="has 192 columns") as refusal:
        check_shape(spec, PlanOptions(tensor_parallel=8))
    assert refusal.value.hint == "use --tensor-parallel-size 1, 2 or 4, or spread the experts with --ep 8"
    check_shape(spec, PlanOptions(tensor_parallel=8, expert_parallel=8))
    assert {(s.tp, s.ep) for s in shapes(spec, 8)} == {(t, e) for t in (1, 2, 4) for e in (1, t)} | {
        (1, 2), (1, 4), (1, 8), (8, 8),
    }  # fmt: skip


def test_ranks_that_copy_kv_heads_hold_what_they_copy() -> None:
    """Two KV heads on four ranks: each rank holds one, twice the bytes of one copy."""
    spec, h100 = SHELF.model("qwen2.5-1.5b").spec, SHELF.device("h100-sxm").device
    sizes = [make_plan(spec, h100, PlanOptions(tensor_parallel=n, devices=n)).plan.stages[0] for n in (1, 2, 4)]
    assert [s.kv_block_bytes // sizes[0].kv_block_bytes for s in sizes] == [1, 1, 2]
    heads, norms = 28 * 1536 * 2 * 2 * 128 * 2, 28 * 2 * 1536 * 2 * 2  # two more KV heads; norms of two more ranks
    assert sizes[2].weight_bytes - sizes[1].weight_bytes == heads + norms


def test_search_lists_no_shape_that_a_plan_refuses() -> None:
    for name in ("qwen2.5-1.5b", "qwen3.6-27b", "kimi-k2.6", "qwen3-30b-a3b"):
        spec = SHELF.model(name).spec
        for devices in (6, 8, 24, 32):
            for shape in shapes(spec, devices):
                check_shape(spec, msgspec.structs.replace(PlanOptions(), **shape.division()))


def test_ranks_that_divide() -> None:
    kimi = SHELF.model("kimi-k3").spec
    assert [n for n in range(1, 13) if ranks_divide(kimi, n)] == [1, 2, 3, 4, 6, 8, 12]


@pytest.mark.parametrize("flags", [["--tp", "3"], ["--ep", "4"], ["--enable-expert-parallel", "--tp", "2"]])
def test_the_command_line_exits_with_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "llama-3.1-8b", "h100-sxm", *flags]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and ("--tensor-parallel-size" in said or "--ep" in said)
