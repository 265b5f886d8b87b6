"""Reads kernel tables: Parquet files of ai-dynamo/aiconfigurator, systems/data. Needs pyarrow, an optional extra."""

import re
from collections.abc import Iterable
from pathlib import Path

from stageline.cost.kernel_rows import Column, KernelTable
from stageline.errors import BadInput, UsageError
from stageline.hardware.device import Device

FILES = (
    "gemm_perf", "moe_perf", "context_attention_perf", "generation_attention_perf", "mla_context_module_perf",
    "mla_generation_module_perf", "gdn_perf", "kda_perf", "nccl_perf", "custom_allreduce_perf",
)  # fmt: skip
SYSTEMS = {
    "a100-80g": "a100_sxm", "h100-sxm": "h100_sxm", "h200": "h200_sxm", "b200": "b200_sxm", "b300": "b300_sxm",
    "rtx-pro-6000": "rtx_pro_6000_server",
}  # fmt: skip
KEPT = ("gb300", "l40s")  # the tables' names are the catalogue's
WORDS = frozenset(
    {"gemm_dtype", "moe_dtype", "kv_cache_dtype", "attn_dtype", "mla_dtype", "gemm_type", "nccl_dtype"}
    | {"allreduce_dtype", "kernel_source", "distribution", "phase", "op_name", "backend", "model", "architecture"}
    | {"model_name", "framework", "version", "device"}
)
TIMES_LAUNCHES = "0.24.0"  # vLLM's block-FP8 GEMMs; another version's table comes first


def is_kernel_folder(folder: Path) -> bool:
    """Whether there are Parquet files below a folder."""
    return next(folder.rglob("*.parquet"), None) is not None


def system_folder(folder: Path, device: Device) -> Path:
    """The device's own folder: the one given, or the one of its name below it. Raises BadInput."""
    name = SYSTEMS.get(device.name, device.name)
    if (folder / name).is_dir():
        return folder / name
    if (folder / "gemm").is_dir() and folder.name not in {*SYSTEMS.values(), *KEPT} - {name}:
        return folder
    known = sorted(p.parent.name for p in folder.glob("*/gemm"))
    way_out = (
        f"it has {', '.join(known)}: give one of them as the folder" if known else "give a folder with gemm/ in it"
    )
    raise BadInput(str(folder), None, f"no kernel tables of {device.name} ({name})", way_out)


def read_tables(folder: Path, framework: str) -> dict[str, tuple[KernelTable, ...]]:
    """The tables of a device's folder by file name: the framework's first, and the newest version of each first.

    Raises BadInput or UsageError.
    """
    found = {}
    for name in FILES:
        paths = sorted(folder.rglob(f"{name}.parquet"), key=lambda p: _order(p, name, framework))
        found[name] = tuple(_read(path, folder) for path in paths)
    if not found["gemm_perf"]:
        raise BadInput(
            str(folder), None, "no gemm_perf.parquet below it", "give the folder of a device's kernel tables"
        )
    return found


def used(tables: dict[str, tuple[KernelTable, ...]]) -> Iterable[str]:
    """The table of each file name that comes first."""
    return (rows[0].place for rows in tables.values() if rows)


def _order(path: Path, name: str, framework: str) -> tuple[bool, bool, tuple[int, ...]]:
    version = path.parent.name
    numbers = tuple(-int(x) for x in re.findall(r"\d+", version))
    return path.parent.parent.name != framework, name == "gemm_perf" and version == TIMES_LAUNCHES, numbers


def _read(path: Path, folder: Path) -> KernelTable:
    try:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415  (an extra)
    except ImportError:
        raise UsageError("kernel tables need pyarrow: pip install 'stageline[calibrate]'") from None
    try:
        table = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(str(path), None, f"not a Parquet table: {first}", "fetch the file again (Git LFS)") from None
    place = str(path.relative_to(folder.parent))
    return KernelTable(place, {name: _column(place, name, table[name].to_pylist()) for name in table.column_names})


def _column(place: str, name: str, values: Column) -> Column:
    kind: type | tuple[type, ...] = str if name in WORDS else (int, float)
    if name not in WORDS and name not in NUMBERS:
        return values
    for row, value in enumerate(values):
        if not isinstance(value, kind):
            raise BadInput(f"{place}: row {row}, column {name}", value, f"not a {'text' if kind is str else 'number'}")
    return values


NUMBERS = frozenset(
    {"m", "n", "k", "latency", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size"}
    | {"moe_ep_size", "batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size"}
    | {"seq_len", "num_k_heads", "num_v_heads", "num_gpus", "message_size"}
)
