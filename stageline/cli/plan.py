"""`stageline plan`: layers -> stages -> devices."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline.catalog.loader import Catalog
from stageline.cli import output, units
from stageline.cli.sources import find_model
from stageline.errors import UsageError
from stageline.model.formats import format_named
from stageline.model.spec import ElementType, ModelSpec
from stageline.plan.build import Planned, make_plan
from stageline.plan.explain import explain as explain_plan
from stageline.plan.options import LayerBytes, Placement, PlanOptions
from stageline.plan.report import PlanReport, report


def plan(
    model: str,
    device: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    placement: Placement = "fewest",
    consecutive: Annotated[bool, Parameter(negative="")] = False,
    layer_bytes: LayerBytes = "exact",
    devices: int | None = None,
    replicas: Annotated[int, Parameter(name=["--replicas", "--data-parallel-size"])] = 1,
    tensor_parallel: Annotated[int, Parameter(name=["--tensor-parallel-size", "--tp"])] = 1,
    context: Annotated[str | None, Parameter(name=["--context", "--max-model-len"])] = None,
    concurrency: int = 1,
    weights: str = "as-shipped",
    kv_cache_dtype: ElementType | None = None,
    state_dtype: ElementType | None = None,
    network: str | None = None,
    hop_latency: str | None = None,
    hop_bandwidth: str | None = None,
    hop_jitter: str = "0ns",
    memory_share: Annotated[float | None, Parameter(name=["--memory-share", "--gpu-memory-utilization"])] = None,
    microbatch: int | None = None,
    credits_: Annotated[int | None, Parameter(name="--credits")] = None,
    batched_tokens: Annotated[int, Parameter(name=["--batched-tokens", "--max-num-batched-tokens"])] = 2048,
    block_tokens: Annotated[int, Parameter(name=["--block-tokens", "--block-size"])] = 16,
    catalog: tuple[Path, ...] = (),
    json: Annotated[bool, Parameter(negative="")] = False,
    explain: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Place a model's layers on devices and size the pipeline.

    Parameters
    ----------
    model
        Catalogue name, or path of a Hugging Face config.json.
    device
        Catalogue name of a device.
    out
        Write the plan file here.
    placement
        fewest: fewest devices, consecutive layers, balanced; by-kind: the published rule for hybrid models.
    consecutive
        With by-kind: a stage holds consecutive layers only.
    layer_bytes
        exact: real bytes; nominal: one round number for every layer.
    devices
        Devices per replica (default: as few as fit).
    replicas
        Copies of the pipeline behind one router.
    tensor_parallel
        Devices per stage.
    context
        Tokens per request that room is computed for (8192, 128K).
    concurrency
        Requests of that context that every stage must have room for.
    weights
        Format of all linear weights: as-shipped, bf16, fp8, int8, int4, mxfp4, nvfp4.
    kv_cache_dtype
        Type of the KV cache (default: the model's).
    state_dtype
        Type of the recurrent state of linear attention (default: the model's).
    network
        Catalogue name of the network between stages (default: the device's links).
    hop_latency
        Latency of every hop (2us).
    hop_bandwidth
        Bandwidth of every hop (300GB/s).
    hop_jitter
        Largest jitter of every hop.
    memory_share
        Usable share of device memory (default: wafers 1.0, GPUs 0.9).
    microbatch
        Nominal and largest number of sequences in a microbatch.
    credits_
        Microbatches in flight per replica (default: max(stages, ceil(L/T))).
    batched_tokens
        Largest number of new tokens in a microbatch.
    block_tokens
        Tokens per KV block.
    catalog
        Directories with your own models/, devices/ and links/.
    json
        Print JSON instead of tables.
    explain
        Print how the plan came about.
    """
    shelf = Catalog(catalog)
    spec = _adapted(find_model(model, shelf), weights, kv_cache_dtype, state_dtype)
    link = shelf.link(network).network if network else None
    options = PlanOptions(
        placement=placement,
        consecutive=consecutive,
        layer_bytes=layer_bytes,
        devices=_positive(devices, "--devices"),
        replicas=_positive(replicas, "--replicas") or 1,
        tensor_parallel=_positive(tensor_parallel, "--tensor-parallel-size") or 1,
        context_tokens=_positive(units.tokens(context, "--context"), "--context") if context else None,
        concurrency=_positive(concurrency, "--concurrency") or 1,
        memory_share=_share(memory_share),
        hop_latency_ns=units.duration_ns(hop_latency, "--hop-latency") if hop_latency else link and link.latency_ns,
        hop_bytes_per_s=units.rate_bytes_per_s(hop_bandwidth, "--hop-bandwidth")
        if hop_bandwidth
        else link and link.bytes_per_s,
        hop_jitter_ns=units.duration_ns(hop_jitter, "--hop-jitter"),
        microbatch=_positive(microbatch, "--microbatch"),
        credits=_positive(credits_, "--credits"),
        batched_tokens=_positive(batched_tokens, "--batched-tokens") or 1,
        block_tokens=_positive(block_tokens, "--block-tokens") or 1,
    )
    planned = make_plan(spec, shelf.device(device).device, options)
    _show(spec, planned, as_json=json, with_explanation=explain)
    if out:
        output.write_file(out, msgspec.json.format(planned.plan.canonical(), indent=1) + b"\n")
    return 0


def _positive(value: int | None, flag: str) -> int | None:
    if value is not None and not 1 <= value < 1 << 40:
        raise UsageError(f"{flag} {value}: must be a positive integer")
    return value


def _share(value: float | None) -> float | None:
    if value is not None and not 0 < value <= 1:
        raise UsageError(f"--memory-share {value}: a share is above 0 and at most 1")
    return value


def _adapted(spec: ModelSpec, weights: str, kv: ElementType | None, state: ElementType | None) -> ModelSpec:
    """The model with the formats that were asked for."""
    if weights != "as-shipped":
        format_named(weights, "--weights")
        spec = spec.requantised(weights)
    return msgspec.structs.replace(spec, kv_type=kv or spec.kv_type, state_type=state or spec.state_type)


def _show(spec: ModelSpec, planned: Planned, *, as_json: bool, with_explanation: bool) -> None:
    summary = report(planned)
    lines = explain_plan(spec, planned) if with_explanation else []
    if as_json:
        document = msgspec.to_builtins(summary)
        output.print_json(document | {"explanation": lines} if with_explanation else document)
        return
    _print_stages(summary)
    output.print_lines(_summary_lines(summary) + ([""] + lines if lines else []))


def _print_stages(summary: PlanReport) -> None:
    columns = [("stage", False), ("layers", False), ("visits", True), ("weights", True), ("free", True)]
    columns += [(f"requests at {summary.context_tokens:,}", True), ("service", True)]
    rows = [
        [
            row.name,
            row.layers,
            str(row.visits),
            units.bytes_text(row.weight_bytes),
            units.bytes_text(row.free_bytes),
            f"{row.requests:,}",
            units.time_text(row.service_ns),
        ]
        for row in summary.stages
    ]
    output.print_table(f"{summary.model} on {summary.devices} {summary.device}", columns, rows)


def _summary_lines(s: PlanReport) -> list[str]:
    copies = f" x {s.replicas} replicas = {s.total_devices} devices" if s.replicas > 1 else ""
    return [
        f"devices           {s.devices}{copies}, {s.visits} stage visits per token",
        f"weights           {units.bytes_text(s.weight_bytes)}",
        f"requests          {s.total_requests:,} of {s.context_tokens:,} tokens in total; {s.binding_stage} binds",
        f"one token's trip  {units.time_text(s.trip_ns)} (L); busiest stage {units.time_text(s.busiest_ns)} (T); "
        f"network floor {units.time_text(s.network_floor_ns)}",
        f"in flight         {s.credits} credits x microbatch {s.microbatch}; knee L/T = {s.knee} microbatches; "
        f"published rule stages x microbatch = {s.published_in_flight} requests",
    ]
