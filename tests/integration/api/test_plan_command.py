"""The command of a plan makes that plan: every keyword, and every division."""

import shlex
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

import stageline
from stageline.api.keywords import DesignKeywords
from stageline.api.plan_command import keyword_words, plan_command_text
from stageline.api.question import Question
from stageline.api.search_space import Space
from stageline.api.workload_totals import workload_totals
from stageline.cli.main import invoke
from stageline.plan.schema import Plan
from stageline.runtime.plans import read_plan_file

DRAFT = '{"method": "ngram", "num_speculative_tokens": 2}'
OSS, LLAMA = "gpt-oss-20b", "llama-3.1-8b"
SAMPLES: list[tuple[str, dict[str, Any]]] = [
    (OSS, {"weights": "bf16", "kv_cache_dtype": "fp8", "whole_kv": True, "context_tokens": 12_000}),
    (OSS, {"redundant_experts": 2, "expert_parallel": 2, "devices": 2, "expert_imbalance": 1.05}),
    (OSS, {"placement": "interleaved", "chunks": 3, "devices": 2, "axes": ("tp",), "state_dtype": "bf16"}),
    (OSS, {"placement": "by-kind", "consecutive": True, "layer_bytes": "nominal", "sequence_parallel": True}),
    (OSS, {"layer_partition": "11,13", "devices": 2, "hop_latency_ns": 1500, "hop_bytes_per_s": 123_456_789}),
    (OSS, {"devices_by_stage": "h100-sxm,a100-80g", "hop_jitter_ns": 77, "concurrency": 3}),
    (OSS, {"tensor_parallel": 2, "devices": 2, "overlap": True, "devices_per_node": 1, "activations": "kv"}),
    (OSS, {"tensor_parallel": 4, "devices": 4, "scale_up": "nvlink-h100", "scale_out": "10gbe"}),
    (OSS, {"network": "100gbe", "devices": 2, "memory_share": 0.77, "block_tokens": 32}),
    (OSS, {"host_floor_ns": 1_000_000, "host_step_ns": 2, "host_sequence_ns": 3_000, "front_end_ns": 4}),
    (OSS, {"ring_step_ns": 5_000, "context_parallel": 2, "devices": 2, "async_scheduling": False}),
    (OSS, {"microbatch": 9, "credits": 3, "batched_tokens": 700, "prefix_cache": False}),
    (OSS, {"serving_engine": "sglang", "max_num_seqs": 33, "max_num_batched_tokens": 512}),
    (OSS, {"max_model_len": "auto", "kv_cache_bytes": 7 << 30, "enforce_eager": True, "prefix_cache": True}),
    (OSS, {"cuda_graph_sizes": (1, 2, 4), "async_scheduling": True, "speculative_config": DRAFT}),
    (OSS, {"cuda_graph_max": 64, "max_model_len": 9_000}),
    (LLAMA, {"kv_blocks": 999, "sampling_step_ns": 70, "sampling_sequence_ns": 8_000, "language_model_only": True}),
    (LLAMA, {"quantization": "fp8", "hf_overrides": '{"max_position_embeddings": 65536}', "tower_mode": "data"}),
]
NEED_FILES = {"profile"}
SHAPE = {"devices": "--devices", "expert_parallel": "--ep", "tensor_parallel": "--tp", "context_parallel": "--cp"}


def test_every_keyword_has_a_sample() -> None:
    tried = {name for _, keywords in SAMPLES for name in keywords}
    assert set(get_type_hints(DesignKeywords)) <= tried | NEED_FILES


@pytest.mark.parametrize(("model", "keywords"), SAMPLES)
def test_the_flags_of_keywords_make_their_plan(model: str, keywords: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    words: list[str] = []
    for name, value in keywords.items():
        words += [SHAPE[name], str(value)] if name in SHAPE else keyword_words(name, value)
    assert len([word for word in words if word.startswith("--")]) == len(keywords)
    assert invoke(["plan", model, "h100-sxm", *words, "-o", str(path)]) == 0
    assert _bare(read_plan_file(path)) == _bare(stageline.plan_model(model, "h100-sxm", **keywords).plan)


@pytest.mark.parametrize(
    ("model", "device", "keywords"),
    [
        ("qwen3-30b-a3b", "h100-sxm", {"redundant_experts": 4}),
        (OSS, "h100-sxm", {"serving_engine": "sglang"}),  # whose reserve of memory depends on the ranks
        (LLAMA, "wse-3", {"weights": "fp8"}),
    ],
)
def test_every_division_of_a_search_has_a_command(
    model: str, device: str, keywords: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search makes the very plans that `stageline plan` makes; copies of experts go where experts are spread."""
    monkeypatch.chdir(tmp_path)
    asked = Question(
        models=(model,), device_names=(device,), devices=(4,), max_context_parallel=2, requests=4,
        workload="poisson:rate=1,input=64,output=8", keywords={"context_tokens": 4096, **keywords},
    )  # fmt: skip
    space, totals = Space(asked), workload_totals(asked.open())
    made = [(d, space.candidate(d, (), 4, totals, None)) for d in space.designs(model, device)]
    found = [(d, c.plan) for d, c in made if not isinstance(c, str)]
    assert len(found) > 4 and any(d.shape.ep > 1 for d, _ in found) == (device != "wse-3")
    for design, plan in found:
        text = plan_command_text((model, device), design.shape, space.keywords_at(design, ()))
        assert invoke(shlex.split(text)[1:]) == 0, text
        assert _bare(read_plan_file(Path("plan.json"))) == _bare(plan), text


def _bare(plan: Plan) -> Plan:
    """Without how it was made."""
    return msgspec.structs.replace(plan, info={})
