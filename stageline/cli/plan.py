"""`stageline plan`: layers -> stages -> devices."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline import units
from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.lookup import find_model
from stageline.cli.plan_flags import PlanFlags, element_type, options_of, wired
from stageline.cli.training import TrainingFlags, plan_training
from stageline.errors import DoesNotFit
from stageline.hardware.device import Device
from stageline.model.formats import format_named
from stageline.model.spec import ModelSpec
from stageline.plan.advice import advice
from stageline.plan.build import Planned, make_plan
from stageline.plan.check import check_plan
from stageline.plan.device_map import device_map as map_devices
from stageline.plan.explain import explain as explain_plan
from stageline.plan.fitted_efficiencies import with_efficiencies
from stageline.plan.options import PlanOptions
from stageline.plan.report import PlanReport, plan_report

CONTEXTS_SHOWN = 4


def plan(
    model: str,
    device: str,
    /,
    *,
    flags: PlanFlags = PlanFlags(),  # noqa: B008
    learning: TrainingFlags = TrainingFlags(),  # noqa: B008
    out: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
    explain: Annotated[bool, Parameter(negative="")] = False,
    device_map: Annotated[bool, Parameter(negative="")] = False,
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
    json
        Print JSON instead of tables.
    explain
        Print how the plan came about.
    device_map
        Print only the device map, in the Hugging Face form.
    """
    shelf = Catalog(flags.catalog)
    shipped = find_model(model, shelf)
    spec = in_formats(shipped, flags)
    found, options = wired(shelf.device(device).device, flags, shelf), options_of(flags, shelf)
    if learning.training:
        return plan_training(spec, found, learning, flags, as_json=json)
    found, options = with_efficiencies(spec, found, options)
    planned = make_plan(spec, found, options)
    check_plan(planned.plan, "the plan that these flags make")
    if out:
        output.write_file(out, msgspec.json.format(planned.plan.canonical(), indent=1) + b"\n")
    if device_map:
        output.print_json(map_devices(planned.plan))
        return 0
    hints = advice(spec, found, options, planned)
    saved = _saved(shipped, spec, found, options, planned)
    _show(planned, hints, explain_plan(spec, planned) if explain else [], saved, as_json=json)
    return 0


def _saved(shipped: ModelSpec, spec: ModelSpec, device: Device, options: PlanOptions, planned: Planned) -> int | None:
    """Devices fewer than with the weights as shipped; None where weights or their number do not come from --weights."""
    if spec.layers == shipped.layers or options.devices is not None:
        return None
    whole = msgspec.structs.replace(shipped, kv_type=spec.kv_type, state_type=spec.state_type)
    try:
        before = make_plan(whole, device, options).plan
    except DoesNotFit:
        return None
    return sum(s.devices for s in before.stages) - sum(s.devices for s in planned.plan.stages)


def in_formats(spec: ModelSpec, flags: PlanFlags) -> ModelSpec:
    """The model with the formats that were asked for."""
    if flags.weights != "as-shipped":
        format_named(flags.weights, "--weights")
        spec = spec.requantised(flags.weights)
    kv, state = element_type(flags.kv_cache_dtype, spec.kv_type), element_type(flags.state_dtype, spec.state_type)
    return msgspec.structs.replace(spec, kv_type=kv, state_type=state)


def _show(planned: Planned, hints: list[str], lines: list[str], saved: int | None, *, as_json: bool) -> None:
    summary = plan_report(planned)
    if as_json:
        document = msgspec.to_builtins(summary) | {"advice": hints}
        if saved is not None:
            document["devices_fewer"] = saved
        output.print_json(document | {"explanation": lines} if lines else document)
        return
    _print_stages(summary)
    advised = ["", *(f"advice: {hint}" for hint in hints)] if hints else []
    fewer = [] if saved is None else [f"--weights         {saved:,} device(s) fewer than with the weights as shipped"]
    output.print_lines(_summary_lines(summary) + fewer + advised + (["", *lines] if lines else []))


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
    output.print_table(f"{summary.model} on {summary.devices} {summary.device} (layers count from 0)", columns, rows)


def _memory_lines(s: PlanReport) -> list[str]:
    """One device of the stage that binds, and what binds at other contexts."""
    row = next(row for row in s.stages if row.name == s.binding_stage)
    size, shown = row.device, s.by_context[:: max(1, len(s.by_context) // CONTEXTS_SHOWN)]
    over = ", more than the reserve: --activations kv" * (size.activation_bytes > size.reserve_bytes)
    counts = ", ".join(f"{b.requests:,} at {b.context_tokens:,} ({b.stage}, {b.binds})" for b in shown)
    lines = [
        f"one device        {units.bytes_text(size.weight_bytes)} weights + {units.bytes_text(size.kv_bytes)} KV and "
        f"state + {units.bytes_text(size.reserve_bytes)} reserve; activations need "
        f"{units.bytes_text(size.activation_bytes)} ({row.name}){over}",
        f"what binds        {counts}",
    ]
    if s.state_binds_below_tokens is not None:
        lines.append(f"state or KV       state binds below {s.state_binds_below_tokens:,} tokens of context, KV above")
    return lines


def _summary_lines(s: PlanReport) -> list[str]:
    copies = f" x {s.replicas} replicas = {s.total_devices} devices" if s.replicas > 1 else ""
    return [
        f"devices           {s.devices}{copies}, {s.visits} stage visits per token",
        f"weights           {units.bytes_text(s.weight_bytes)}",
        f"requests          {s.total_requests:,} of {s.context_tokens:,} tokens in total; {s.binding_stage} binds",
        *_memory_lines(s),
        f"one token's trip  {units.time_text(s.trip_ns)} (L); busiest stage {units.time_text(s.busiest_ns)} (T); "
        f"network floor {units.time_text(s.network_floor_ns)}",
        f"in flight         {s.credits} credits x microbatch {s.microbatch}; knee L/T = {s.knee} microbatches; "
        f"published rule stages x microbatch = {s.published_in_flight} requests",
    ]
