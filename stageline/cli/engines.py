"""`stageline engines`: the serving engines of the catalogue."""

from typing import Annotated

from cyclopts import App, Parameter

from stageline.catalog.engine_file import EngineLimits
from stageline.catalog.loader import Catalog
from stageline.cli import output
from stageline.cli.catalogue import Folders
from stageline.cli.output import AsJson

engines_app = App(name="engines", help="List the catalogue's serving engines, or show one.")
EngineName = Annotated[str, Parameter(help="Catalogue name of a serving engine.")]
_NOT_SHOWN = ("name", "title", "limits", "left_out", "default_for")


@engines_app.default
def engines(*, catalog: Folders = (), json: AsJson = False) -> int:
    """List the catalogue's serving engines."""
    shelf = Catalog(catalog)
    found = [shelf.engine(name).engine for name in shelf.engines()]
    if json:
        output.print_json(found)
        return 0
    columns = [("engine", False), ("release", False), ("default on", False), ("batches", False), ("KV", False)]
    rows = [[e.name, e.release, ", ".join(e.default_for) or "-", e.batching, e.kv] for e in found]
    output.print_table("serving engines", columns, rows)
    return 0


@engines_app.command(name="show")
def show_engine(engine: EngineName, /, *, catalog: Folders = (), json: AsJson = False) -> int:
    """Show a serving engine: its settings, its limits by device, and where they are from."""
    entry = Catalog(catalog).engine(engine)
    if json:
        output.print_json(entry)
        return 0
    found = entry.engine
    fields = [name for name in found.__struct_fields__ if name not in _NOT_SHOWN]
    width = max(len(name) for name in fields)
    lines = [found.title, *(f"{name:<{width}}  {_text(getattr(found, name))}" for name in fields)]
    lines += [_limits_line(row) for row in found.limits]
    lines += [f"left out: {text}" for text in found.left_out]
    lines += [f"[{source.mark}] {', '.join(source.covers)}: {source.where}" for source in entry.sources]
    output.print_lines(lines)
    return 0


def _text(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _limits_line(row: EngineLimits) -> str:
    least = f"at least {row.min_memory_bytes / 2**30:.0f} GiB" if row.min_memory_bytes else ""
    where = ", ".join([*row.devices, *row.kinds, *([least] if least else [])]) or "other devices"
    running = f"{row.max_num_seqs:,} running" if row.max_num_seqs else "as many running as memory holds"
    return f"{where}: {running} and {row.max_num_batched_tokens:,} new tokens a step, per data-parallel rank"
