"""`stageline models` and `stageline devices`: the entries of the catalogue."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from stageline import units
from stageline.api.lookup import find_entry, find_model
from stageline.catalog.citation import Citation, source_of
from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.output import AsJson
from stageline.hardware.device import Device
from stageline.model.summary import ModelSummary, summarise

models_app = App(name="models", help="List the catalogue's models, or show one.")
devices_app = App(name="devices", help="List the catalogue's devices, or show one.")

Folders = Annotated[
    tuple[Path, ...],
    Parameter(negative="", show_default=False, help="Directories with your own models/, devices/ and links/."),
]
ModelName = Annotated[str, Parameter(help="Catalogue name, Hugging Face id, or path of a config.json.")]
DeviceName = Annotated[str, Parameter(help="Catalogue name of a device.")]


@models_app.default
def models(*, catalog: Folders = (), json: AsJson = False) -> int:
    """List the catalogue's models."""
    lookup = Catalog(catalog)
    found = [summarise(lookup.model(name).spec) for name in lookup.models()]
    if json:
        output.print_json([_model_row(s) for s in found])
        return 0
    columns = [("model", False), ("layers", True), ("params", True), ("active", True), ("weights", True)]
    columns += [("KV per token", True), ("state per request", True)]
    output.print_table("models", columns, [_model_cells(s) for s in found])
    return 0


@models_app.command(name="show")
def show_model(model: ModelName, /, *, catalog: Folders = (), json: AsJson = False) -> int:
    """Show a model layer by layer."""
    shelf = Catalog(catalog)
    summary, entry = summarise(find_model(model, shelf)), find_entry(model, shelf)
    sources = entry.sources if entry else ()
    if json:
        output.print_json(msgspec.to_builtins(summary) | {"sources": msgspec.to_builtins(sources)})
        return 0
    _print_layers(summary)
    lines = [
        f"parameters  {summary.total_params:,} in total, {summary.active_params:,} active",
        f"weights     {units.bytes_text(summary.weight_bytes)} "
        f"(embedding {units.bytes_text(summary.embedding_bytes)}, head {units.bytes_text(summary.head_bytes)})",
        f"per token   {summary.kv_bytes_per_token:,} B of KV ({summary.kv_type})",
        f"per request {summary.state_bytes_per_request:,} B of state ({summary.state_type})",
    ]
    if summary.window_bytes_per_request:
        lines.append(
            f"windows     {units.bytes_text(summary.window_bytes_per_request)} of a long request's KV; "
            f"{summary.kv_bytes_per_long_token:,} B per token beyond them"
        )
    if summary.left_out:
        lines.append(f"left out    {', '.join(summary.left_out)}")
    output.print_lines(lines + _source_lines(sources))
    return 0


def _model_row(s: ModelSummary) -> dict[str, Any]:
    return {k: v for k, v in msgspec.to_builtins(s).items() if k != "layers"} | {"layers": len(s.layers)}


def _model_cells(s: ModelSummary) -> list[str]:
    sizes = [units.bytes_text(s.weight_bytes), f"{s.kv_bytes_per_token:,} B"]
    state = units.bytes_text(s.state_bytes_per_request) if s.state_bytes_per_request else "-"
    params = [f"{s.total_params / 1e9:,.2f} B", f"{s.active_params / 1e9:,.2f} B"]
    return [s.name, str(len(s.layers)), *params, *sizes, state]


def _print_layers(summary: ModelSummary) -> None:
    columns = [("layer", True), ("kind", False), ("params", True), ("active", True), ("weights", True)]
    columns += [("KV per token", True), ("state", True), ("FLOPs per token", True), ("boundary", True)]
    rows = [
        [
            str(row.index),
            row.kind,
            f"{row.params / 1e6:,.1f} M",
            f"{row.active_params / 1e6:,.1f} M",
            units.bytes_text(row.weight_bytes),
            f"{row.kv_bytes_per_token:,} B",
            units.bytes_text(row.state_bytes),
            f"{row.flops_per_token / 1e9:,.2f} G",
            units.bytes_text(row.boundary_bytes_per_token),
        ]
        for row in summary.layers
    ]
    output.print_table(summary.name, columns, rows)


def _source_lines(sources: tuple[Citation, ...]) -> list[str]:
    return [f"source      [{s.mark}] {s.where} ({', '.join(s.covers)})" for s in sources]


@devices_app.default
def devices(*, catalog: Folders = (), json: AsJson = False) -> int:
    """List the catalogue's devices and networks."""
    lookup = Catalog(catalog)
    found = [lookup.device(name).device for name in lookup.devices()]
    links = [lookup.link(name) for name in lookup.links()]
    if json:
        networks = [{"name": e.name, "title": e.title} | msgspec.to_builtins(e.network) for e in links]
        output.print_json({"devices": msgspec.to_builtins(found), "links": networks})
        return 0
    columns = [("device", False), ("title", False), ("memory", True), ("bandwidth", True), ("BF16", True)]
    columns += [("scale-out", True), ("latency", True)]
    rows = [
        [
            d.name,
            d.title,
            units.bytes_text(d.memory_bytes),
            f"{d.bandwidth_bytes_per_s / 1e12:,.2f} TB/s",
            f"{d.peak_flops.bf16 / 1e12:,.0f} TFLOP/s",
            f"{d.scale_out.bytes_per_s / 1e9:,.2f} GB/s",
            units.time_text(d.scale_out.latency_ns),
        ]
        for d in found
    ]
    output.print_table("devices", columns, rows)
    link_rows = [
        [e.name, e.title, f"{e.network.bytes_per_s / 1e9:,.2f} GB/s", units.time_text(e.network.latency_ns)]
        for e in links
    ]
    link_columns = [("name", False), ("title", False), ("bandwidth", True), ("latency", True)]
    output.print_table("networks", link_columns, link_rows)
    return 0


@devices_app.command(name="show")
def show_device(device: DeviceName, /, *, catalog: Folders = (), json: AsJson = False) -> int:
    """Show a device, every number with its source."""
    shelf = Catalog(catalog)
    entry = shelf.device(device)
    if json:
        output.print_json(msgspec.to_builtins(entry.device) | {"sources": msgspec.to_builtins(entry.sources)})
        return 0
    rows = [
        [path, f"{value:,}", _mark(path, entry.sources)]
        for path, value in _numbers(msgspec.to_builtins(msgspec.structs.replace(entry.device, costs=None)))
    ]
    output.print_table(entry.device.title, [("field", False), ("value", True), ("mark", False)], rows)
    output.print_lines([*_cost_lines(entry.device, shelf), *_source_lines(entry.sources)])
    return 0


def _cost_lines(device: Device, shelf: Catalog) -> list[str]:
    """Whose kernel constants the device has, and the constants of each kind and format."""
    found = shelf.costs(device)
    if found is None:
        return ["kernels     no constants: one share of the peaks for all kinds and formats"]
    own = found.costs.name == device.name
    whose = (
        "its own" if own else f"those of {found.costs.name}, whose architecture it shares, on its own peaks (assumed)"
    )
    lines = [f"kernels     {whose}"]
    for kind in ("gemm", "prefill", "decode", "moe", "linear"):
        for row in getattr(found.costs, kind):
            values = [f"{k} {v:g}" for k, v in msgspec.structs.asdict(row).items() if k != "format"]
            lines.append(f"{kind:<11} {row.format}: {', '.join(values)}")
    return lines + _source_lines(found.sources)


def _mark(path: str, sources: tuple[Citation, ...]) -> str:
    """The mark of a number's source, which covers all positions of a list."""
    source = source_of(re.sub(r"\[\d+\]", "", path), sources)
    return source.mark if source else "default"


def _numbers(value: Any, path: str = "") -> list[tuple[str, int | float]]:
    """Dotted paths and values of all numbers."""
    if isinstance(value, dict):
        return [row for k, v in value.items() for row in _numbers(v, f"{path}.{k}" if path else k)]
    if isinstance(value, list):
        return [row for i, v in enumerate(value) for row in _numbers(v, f"{path}[{i}]")]
    return [(path, value)] if isinstance(value, (int, float)) else []
