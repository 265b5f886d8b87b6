"""The planner on random models and devices: every plan is sound, and every refusal names a change that works."""

import re

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stageline.errors import DoesNotFit, UsageError
from stageline.hardware.device import Device, Overhead, Peak, Share
from stageline.hardware.networks import Network, ScaleUp
from stageline.model.attention import Attention, GatedDelta, Gqa, Kda, Mla
from stageline.model.ffn import Dense, Ffn, Moe
from stageline.model.formats import WeightFormats
from stageline.model.spec import Layer, ModelSpec
from stageline.plan.build import Planned, make_plan
from stageline.plan.check import check_plan
from stageline.plan.explain import explain
from stageline.plan.options import PlanOptions
from stageline.plan.parse import parse_plan
from stageline.plan.report import plan_report

ATTENTION: list[Attention] = [
    Gqa(heads=8, kv_heads=2, head_dim=16),
    Gqa(heads=8, kv_heads=8, head_dim=16, window_tokens=64),
    Mla(heads=8, q_rank=32, kv_rank=64, nope_dim=16, rope_dim=8, value_dim=16),
    Kda(heads=8, head_dim=16, conv_kernel=4),
    GatedDelta(key_heads=4, value_heads=8, key_dim=16, value_dim=16, conv_kernel=4),
]
FFN: list[Ffn] = [Dense(width=256), Moe(experts=16, top_k=2, width=64, shared_width=64, latent_width=32)]

layers = st.builds(
    Layer,
    st.sampled_from(ATTENTION),
    st.sampled_from(FFN),
    st.sampled_from([WeightFormats(), WeightFormats(ffn="int4")]),
)
models = st.builds(
    ModelSpec,
    name=st.just("m"),
    hidden=st.just(128),
    vocab=st.integers(10, 4000),
    layers=st.lists(layers, min_size=1, max_size=14).map(tuple),
    formats=st.just(WeightFormats()),
    tied=st.booleans(),
    residual_block=st.integers(0, 4),
)
devices = st.builds(
    Device,
    name=st.just("d"),
    title=st.just("D"),
    kind=st.just("gpu"),
    memory_bytes=st.integers(100_000, 4_000_000),
    bandwidth_bytes_per_s=st.just(10**9),
    peak_flops=st.just(Peak(bf16=10**12)),
    share=st.just(Share(flops=0.6, bandwidth=0.8, memory=0.9)),
    overhead=st.just(Overhead(op_ns=100)),
    scale_out=st.just(Network(bytes_per_s=10**8, latency_ns=500)),
    scale_up=st.just(ScaleUp(bytes_per_s=10**9, latency_ns=50, devices=4)),
)
options = st.builds(
    PlanOptions,
    placement=st.sampled_from(["fewest", "by-kind"]),
    consecutive=st.booleans(),
    layer_bytes=st.sampled_from(["exact", "nominal"]),
    devices=st.none() | st.integers(1, 20),
    replicas=st.integers(1, 3),
    tensor_parallel=st.sampled_from([1, 1, 2, 4]),
    context_tokens=st.none() | st.integers(1, 200),
    concurrency=st.integers(1, 50),
)


def check(spec: ModelSpec, found: Planned, asked: PlanOptions) -> None:
    plan, memory = found.plan, found.memory
    check_plan(plan, "plan")
    assert parse_plan(plan.canonical(), "plan") == plan
    assert sorted(layer for stage in plan.stages for layer in stage.layers) == list(range(len(spec.layers)))
    for stage in plan.stages:
        room = asked.concurrency * memory.request_bytes(stage.layers)
        assert stage.weight_bytes + room <= stage.memory_bytes == stage.weight_bytes + stage.kv_budget_bytes
    assert min(found.requests) >= asked.concurrency
    stages = len(plan.stages)
    assert plan.defaults.credits == (1 if stages == 1 else max(stages, found.timing.knee))  # one stage is one engine
    if asked.placement == "fewest" or asked.consecutive:
        assert len(plan.visits) == len(plan.stages)
    if asked.placement == "by-kind":
        kinds = [[spec.layers[i].attention.linear for i in stage.layers] for stage in plan.stages]
        assert all(len(held) == 1 or all(held) for held in kinds)
    assert plan_report(found).total_devices == len(plan.stages) * asked.tensor_parallel * asked.replicas
    assert explain(spec, found)


def follow(message: str, asked: PlanOptions) -> PlanOptions | None:
    """The options with the smallest change that the message names; None if it names no flag."""
    flags = {"devices": "devices", "concurrency": "concurrency", "tensor-parallel-size": "tensor_parallel"}
    named = re.search(r"smallest change: --([a-z-]+) (\d+)", message)
    if not named:
        return None
    changed = msgspec.structs.replace(asked, **{flags[named[1]]: int(named[2])})
    return changed if named[1] == "devices" else msgspec.structs.replace(changed, devices=None)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models, devices, options)
def test_plans_are_sound_and_refusals_helpful(spec: ModelSpec, device: Device, asked: PlanOptions) -> None:
    try:
        found = make_plan(spec, device, asked)
    except DoesNotFit as error:
        changed = follow(str(error), asked)
        if changed:
            check(spec, make_plan(spec, device, changed), changed)
        else:
            assert "use a device with more memory" in str(error)
        return
    except UsageError as error:
        assert "--" in str(error)
        return
    check(spec, found, asked)


@settings(max_examples=100, deadline=None)
@given(models, devices)
def test_more_memory_never_needs_more_stages(spec: ModelSpec, device: Device) -> None:
    larger = msgspec.structs.replace(device, memory_bytes=device.memory_bytes * 3 // 2)
    try:
        fewest = len(make_plan(spec, device, PlanOptions()).plan.stages)
    except DoesNotFit:
        return
    assert len(make_plan(spec, larger, PlanOptions()).plan.stages) <= fewest
