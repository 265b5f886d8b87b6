"""What stands out in a plan is named with its cost; a sound plan gets no line."""

import msgspec
import pytest

import stageline
from stageline.catalog.loader import Catalog
from stageline.plan.advice import advice
from stageline.plan.build import make_plan
from stageline.plan.device_map import device_map
from stageline.plan.options import PlanOptions

SHELF = Catalog()


def hints(model: str, device: str, **options: object) -> str:
    spec, found = SHELF.model(model).spec, SHELF.device(device).device
    asked = PlanOptions(**options)  # type: ignore[arg-type]
    return "\n".join(advice(spec, found, asked, make_plan(spec, found, asked)))


def test_a_sound_plan_gets_no_advice() -> None:
    assert hints("llama-3.1-8b", "h100-sxm") == ""
    assert hints("llama-3.1-70b", "h100-sxm", tensor_parallel=8) == ""


@pytest.mark.parametrize(
    ("model", "device", "options", "says"),
    [
        ("llama-3.1-8b", "h100-sxm", {"devices": 4}, "One h100-sxm holds llama-3.1-8b"),
        ("llama-3.1-405b", "h100-sxm", {"tensor_parallel": 16}, "with --tp 8 on as many devices"),
        ("llama-3.1-70b", "h100-sxm", {"devices": 8, "hop_latency_ns": 30_000_000}, "is network latency"),
        ("qwen2.5-7b", "h100-sxm", {"devices": 14}, "of the throughput of an even cut"),
        ("llama-3.1-70b", "h800", {"devices": 2, "context_tokens": 8192}, "Memory holds 1 request of"),
        ("llama-3.1-70b", "h100-sxm", {"devices": 8, "concurrency": 2}, "75% is bubble"),
        ("llama-3.1-70b", "h100-sxm", {"devices": 2, "replicas": 4}, "over the same 8 devices"),
        ("kimi-k3", "wse-3t", {"layer_bytes": "nominal"}, "16,000,000,000 bytes for every layer"),
        ("llama-3.1-70b", "h800", {}, "Weights in int4 fit 1 of the 2 devices"),
    ],
)
def test_a_mistake_is_named(model: str, device: str, options: dict[str, object], says: str) -> None:
    assert says in hints(model, device, **options)


def test_device_maps() -> None:
    h100 = SHELF.device("h100-sxm").device
    small, large = SHELF.model("qwen2.5-1.5b").spec, SHELF.model("llama-3.1-70b").spec
    assert device_map(make_plan(small, h100, PlanOptions()).plan) == {"": 0}
    found = device_map(make_plan(large, h100, PlanOptions(devices=8, tensor_parallel=4)).plan)
    assert list(found)[:2] == ["model.embed_tokens", "model.layers.0"]
    assert set(found.values()) == {0, 4}
    assert found["lm_head"] == found["model.norm"] == found["model.layers.79"] == 4
    assert len(found) == 83


def test_a_plan_that_needs_no_split_is_not_told_of_smaller_weights() -> None:
    """One H100 holds Qwen3 32B; that FP8 would, too, contradicts nothing but says nothing."""
    found = stageline.plan_model("qwen3-32b", "h100-sxm", layer_partition="21,21,22", context_tokens=1024).advice()
    assert any(text.startswith("One h100-sxm holds") for text in found)
    assert not any("Weights in" in text for text in found)


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ("h100-sxm", "cost what FlashInfer's CUTLASS kernel takes on h100-sxm"),
        ("b200", "no kernel of their own in the tables of b200: fp8's constants stand in"),
    ],
)
def test_experts_with_static_scales_name_the_kernel_that_they_cost(device: str, says: str) -> None:
    spec, found = SHELF.model("qwen3-30b-a3b").spec, SHELF.device(device).device
    for experts, named in (("fp8-static", True), ("fp8", False)):
        layers = tuple(
            msgspec.structs.replace(layer, formats=msgspec.structs.replace(layer.formats, routed_experts=experts))
            for layer in spec.layers
        )
        quantised = msgspec.structs.replace(spec, layers=layers)
        asked = PlanOptions()
        text = "\n".join(advice(quantised, found, asked, make_plan(quantised, found, asked)))
        assert (says in text) == named
