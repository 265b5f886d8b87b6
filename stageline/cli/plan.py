"""`stageline plan`: layers -> stages -> devices."""

import sys
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from stageline import units
from stageline.api.keywords import PlanKeywords
from stageline.api.launch_line import parse_launch_line
from stageline.api.planning import ModelPlan, find_inputs, plan_inputs
from stageline.cli import output
from stageline.cli.groups import MODEL, OUTPUT
from stageline.cli.plan_flags import DesignFlags, ShapeFlags
from stageline.cli.training import TrainingFlags, plan_training
from stageline.errors import UsageError
from stageline.plan.report import PlanReport
from stageline.plan.stage_hardware import parse_stage_devices
from stageline.units import counted

CONTEXTS_SHOWN = 4


def plan_command(
    model: Annotated[
        str | None, Parameter(help="Catalogue name, Hugging Face id, or path of a config.json.", show_default=False)
    ] = None,
    device: Annotated[str | None, Parameter(help="Catalogue name of a device.")] = None,
    /,
    *,
    shape: ShapeFlags = ShapeFlags(),  # noqa: B008  (frozen)
    design: DesignFlags = DesignFlags(),  # noqa: B008  (frozen)
    like: Annotated[
        str | None,
        Parameter(
            group=MODEL, help="Launch line of vLLM, SGLang or TensorRT-LLM in quotes, or Helm values, for MODEL."
        ),
    ] = None,
    learning: TrainingFlags = TrainingFlags(),  # noqa: B008  (frozen)
    out: Annotated[
        Path | None, Parameter(name=("-o", "--output"), group=OUTPUT, help="Write the plan file here.")
    ] = None,
    json: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print JSON instead of tables.")] = False,
    explain: Annotated[bool, Parameter(negative="", group=OUTPUT, help="Print the derivation of the plan.")] = False,
    device_map: Annotated[
        bool, Parameter(negative="", group=OUTPUT, help="Print only the device map, in the Hugging Face form.")
    ] = False,
) -> int:
    """Place a model's layers on devices and size the pipeline."""
    learning.check()
    if learning.training:
        _check_training(out=out is not None, explain=explain, device_map=device_map)
    keywords = design.keywords()
    keywords.update(shape.keywords())
    if like is not None:
        if device is not None:
            raise UsageError(f"--like names the model: give only the device, not {model} {device}")
        model, device = _follow(like, keywords), model
    if model is None:
        raise UsageError("MODEL is missing; stageline plan --help lists what it needs")
    by_stage = keywords.get("devices_by_stage")
    if by_stage and learning.training:
        raise UsageError("--stage-devices: not for a training run, whose devices are alike")
    if device is None and by_stage:
        device = parse_stage_devices(by_stage)[0]
    if device is None:
        place = " behind --like" if like is not None else ""
        raise UsageError(f"DEVICE is missing{place}; stageline plan --help lists what it needs")
    inputs = find_inputs(model, device, keywords, design.catalog_dirs)
    if learning.training:
        return plan_training(inputs.model, inputs.device, learning, shape, as_json=json)
    planned = plan_inputs(inputs, output.plan_command_line())
    if out:
        planned.write(out)
    if device_map:
        output.print_json(planned.device_map())
        return 0
    _show(planned, planned.explain() if explain else [], as_json=json)
    return 0


def _follow(like: str, keywords: PlanKeywords) -> str:
    """The model of a launch line, whose settings join the keywords; flags given beside it go before them."""
    line = parse_launch_line(like)
    untouched = DesignFlags().keywords() | ShapeFlags().keywords()
    for name, value in {"serving_engine": line.serving_engine, **line.keywords}.items():
        if keywords.get(name) == untouched.get(name):
            keywords[name] = value  # type: ignore[literal-required]
    if line.unused:
        sys.stderr.write(f"stageline: --like: these change nothing that is emulated: {', '.join(line.unused)}\n")
    return line.model


def _check_training(**given: bool) -> None:
    """Raises UsageError for what only a plan for serving can be asked for."""
    flags = {"out": "-o", "explain": "--explain", "device_map": "--device-map"}
    found = [flags[name] for name, is_given in given.items() if is_given]
    if found:
        raise UsageError(f"{', '.join(found)}: not for a training run, which --json prints")


def _show(planned: ModelPlan, lines: list[str], *, as_json: bool) -> None:
    summary, hints, saved = planned.report(), planned.advice(), planned.devices_saved()
    if as_json:
        document = msgspec.to_builtins(summary) | {"notes": hints}
        document |= {"towers": text} if (text := planned.towers()) else {}
        if saved is not None:
            document["devices_fewer"] = saved
        output.print_json(document | {"explanation": lines} if lines else document)
        return
    _print_stages(summary)
    advised = ["", *(f"note: {hint}" for hint in hints)] if hints else []
    fewer = (
        []
        if saved is None
        else [f"--weights         {counted(saved, 'device')} fewer than with the weights as shipped"]
    )
    towers = [f"beside the text   {text}"] if (text := planned.towers()) else []
    output.print_lines(_summary_lines(summary) + towers + fewer + advised + (["", *lines] if lines else []))


def _print_stages(summary: PlanReport) -> None:
    columns = [("stage", False), ("layers", False), ("visits", True), ("weights", True), ("free", True)]
    columns += [(f"requests at {summary.context_tokens:,}", True), ("service", True)]
    mixed = len({row.hardware for row in summary.stages}) > 1
    columns[1:1] = [("device", False)] * mixed
    rows = [
        [
            row.name,
            *[row.hardware] * mixed,
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


def _start_lines(s: PlanReport) -> list[str]:
    """What the engine says when it starts, in its own words; vLLM's for those that have none."""
    start = s.engine_start
    if start is None or not start.max_num_seqs:
        return []
    seqs, tokens, kv = start.max_num_seqs, start.max_num_batched_tokens, start.kv_cache_tokens
    if s.serving.startswith("sglang "):
        text = f"max_total_num_tokens={kv}, chunked_prefill_size={tokens}, max_running_requests={seqs}"
        return [f"at its start      {text}, context_len={start.max_model_len}"]
    said = [f"max_num_seqs={seqs}, max_num_batched_tokens={tokens}", f"GPU KV cache size: {kv:,} tokens"]
    if start.max_concurrency is not None:
        most = f"{start.max_concurrency:.2f}x"
        said.append(f"Maximum concurrency for {start.max_model_len:,} tokens per request: {most}")
    return [f"{title:<18}{text}" for title, text in zip(("at its start", "", ""), said, strict=False)]


def _summary_lines(s: PlanReport) -> list[str]:
    copies = f" x {s.replicas} replicas = {s.total_devices} devices" if s.replicas > 1 else ""
    return [
        f"devices           {s.devices}{copies}, {s.visits} stage visits per token",
        f"weights           {units.bytes_text(s.weight_bytes)}",
        f"requests          {s.total_requests:,} of {s.context_tokens:,} tokens in total; {s.binding_stage} binds",
        *_memory_lines(s),
        f"one token's trip  {units.time_text(s.trip_ns)} (L); busiest stage {units.time_text(s.busiest_ns)} (T); "
        f"network floor {units.time_text(s.network_floor_ns)}",
        *([f"serving engine    {s.serving}"] if s.serving else []),
        *_start_lines(s),
        _in_flight_line(s),
    ]


def _in_flight_line(s: PlanReport) -> str:
    """Microbatches in flight; how many fill a pipeline is a question only where there are several stages."""
    line = f"in flight         {s.credits} credit{'s' * (s.credits != 1)} x microbatch {s.microbatch}"
    if len(s.stages) == 1:
        return line
    rule = f"published rule stages x microbatch = {s.published_in_flight} requests"
    return f"{line}; knee L/T = {s.knee} microbatches; {rule}"
