"""Reads the kernel tables of ai-dynamo/aiconfigurator, and leaves out rows that do not time the kernel."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import parquet

from bench.costs.loads import EXPONENTS, busiest_rank
from stageline.cost.expert_formats import expert_formats
from stageline.cost.gemm_shapes import TABLE_FORMATS as FORMATS

Floats = npt.NDArray[np.float64]
Table = dict[str, npt.NDArray[Any]]

HEADS_APART = ("vllm_flash_attn_fa2", "vllm_flash_attn")  # FlashAttention 2; the latter on A100 alone
LAUNCH_BOUND = 3.0  # times the bf16 row of the same shape


class System(NamedTuple):
    """A device of the tables: its folder, its name in the catalogue, its L2 cache, and the versions of its tables.

    Cache sizes are those of NVIDIA's architecture papers and data sheets. `exponential_flops`: dense bf16 FLOPs in the
    time of one exponential, by what an SM does in a clock: 4,096 and 16 on Hopper (FlashAttention-3 paper), 2,048 and
    16 on Ampere, 8,192 and 16 on Blackwell, with 32 on Blackwell Ultra, 1,024 and 16 on Ada and workstation Blackwell.
    """

    folder: str
    device: str
    cache_mib: int
    exponential_flops: int
    gemm: str = "0.24.0"
    vllm: str = "0.24.0"
    nccl: str = "2.29.2"
    custom: tuple[str, ...] = ("vllm/0.24.0",)
    kda: str = "0.5.16"


SYSTEMS = (
    System("a100_sxm", "a100-80g", 40, 128, "0.14.0", "0.14.0", "2.27.3", ("vllm/0.14.0",), ""),
    System("h100_sxm", "h100-sxm", 50, 256, gemm="0.19.0"),
    System("h200_sxm", "h200", 50, 256),
    System("l40s", "l40s", 96, 64, nccl="2.27.3", custom=()),
    System("b200_sxm", "b200", 126, 512),
    System("b300_sxm", "b300", 126, 256, custom=("vllm/0.24.0", "sglang/0.5.14")),
    System("gb300", "gb300", 126, 256),
    System("rtx_pro_6000_server", "rtx-pro-6000", 128, 64),
)


class Rows(NamedTuple):
    """Rows of one format: columns as doubles, us, and the tokens that choose the size band."""

    columns: dict[str, Floats]
    us: Floats
    tokens: Floats


def read(path: Path) -> Table:
    """All columns of a table."""
    table = parquet.read_table(path)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def rows(table: Table, chosen: npt.NDArray[np.bool_], names: tuple[str, ...], tokens: Floats) -> Rows:
    """The chosen rows with these columns."""
    columns = {name: table[name][chosen].astype(float) for name in names}
    return Rows(columns, table["latency"][chosen].astype(float) * 1e3, tokens[chosen])


def gemms(folder: Path, system: System) -> tuple[dict[str, Rows], dict[str, int]]:
    """GEMMs with n, k >= 1,024 by format, and how many rows of each format time the launch instead.

    Those are rows above three times the bf16 row of the same shape, and all of block FP8 in the 0.24.0 tables.
    """
    table = read(folder / "gemm" / "vllm" / system.gemm / "gemm_perf.parquet")
    big = (table["n"] >= 1024) & (table["k"] >= 1024)
    shape = list(zip(table["m"].tolist(), table["n"].tolist(), table["k"].tolist(), strict=True))
    rows_of = zip(shape, table["latency"].tolist(), table["gemm_dtype"], strict=True)
    wide = {s: latency for s, latency, dtype in rows_of if dtype == "bfloat16"}
    limit = LAUNCH_BOUND * np.array([wide.get(s, np.inf) for s in shape])
    found, launches = {}, {}
    for dtype in sorted(set(table["gemm_dtype"])):
        chosen = big & (table["gemm_dtype"] == dtype)
        late = table["latency"] > limit
        if dtype == "fp8_block" and system.gemm == "0.24.0":
            late = np.ones(len(late), dtype=bool)
        launches[FORMATS[dtype]] = int((chosen & late).sum())
        if (chosen & ~late).any():
            found[FORMATS[dtype]] = rows(table, chosen & ~late, ("m", "n", "k"), table["m"].astype(float))
    return found, launches


def attention(folder: Path, system: System, phase: str) -> dict[str, Rows]:
    """Attention of a phase ("context" or "generation") by KV format; `apart` where FlashAttention 2 has a window."""
    table = read(folder / "attention" / "vllm" / system.vllm / f"{phase}_attention_perf.parquet")
    table.setdefault("window_size", np.zeros(len(table["latency"])))
    tokens = table["batch_size"].astype(float) * table["isl"].astype(float)
    table["apart"] = (table["window_size"] > 0) & np.isin(table["kernel_source"], HEADS_APART)
    names = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step", "window_size", "apart")
    kinds = sorted(set(table["kv_cache_dtype"]))
    return {FORMATS[kind]: rows(table, table["kv_cache_dtype"] == kind, names, tokens) for kind in kinds}


def heads_apart(folder: Path, system: System, fmt: str) -> bool:
    """Whether decode attention over this KV format runs in FlashAttention 2."""
    table = read(folder / "attention" / "vllm" / system.vllm / "generation_attention_perf.parquet")
    own = np.array([FORMATS[kind] == fmt for kind in table["kv_cache_dtype"]])
    return bool(np.isin(table["kernel_source"][own], HEADS_APART).any())


def experts(folder: Path, system: System) -> dict[str, Rows]:
    """Routed experts by format, all distributions together; `distinct` and `copies` are the loads."""
    table = read(folder / "moe" / "vllm" / system.vllm / "moe_perf.parquet")
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    shapes = zip(*(table[n].tolist() for n in ("num_tokens", "topk", "num_experts", "moe_ep_size")), strict=True)
    loads = [
        busiest_rank(*shape, EXPONENTS[spread]) for shape, spread in zip(shapes, table["distribution"], strict=True)
    ]
    table["distinct"], table["copies"] = (np.array([load[i] for load in loads]) for i in (0, 1))
    tokens = table["num_tokens"].astype(float)
    sources = list(zip(table["moe_dtype"], table["kernel_source"], strict=True))
    formats = expert_formats(sources)
    return {
        fmt: rows(table, np.array([fmt in formats[s] for s in sources]), (*names, "distinct", "copies"), tokens)
        for fmt in sorted({fmt for found in formats.values() for fmt in found})
    }


def linear(folder: Path, system: System) -> dict[tuple[str, str], Rows]:
    """Kernels of linear attention by (kind, kernel): conv and scan of context, and all of generation."""
    found = {}
    paths = {"gated-delta": folder / "linear_attention" / "vllm" / system.vllm / "gdn_perf.parquet"}
    if system.kda:
        paths["kda"] = folder / "kda" / "sglang" / system.kda / "kda_perf.parquet"
    for kind, path in paths.items():
        if not path.exists():
            continue
        table = read(path)
        conv = np.array(["conv1d" in source for source in table["kernel_source"]])
        context = table["phase"] == "context"
        for name, part in (("conv", conv & context), ("scan", ~conv & context)):
            tokens = table["num_tokens"].astype(float)
            found[kind, f"context {name}"] = rows(table, part, ("batch_size", "seq_len", "num_v_heads"), tokens)
        found[kind, "generation"] = _generation(table)
    return found


def _generation(table: Table) -> Rows:
    """Decode by sequences and heads: convolution and scan, or the one kernel that does both."""
    best: dict[tuple[int, int], dict[str, float]] = {}
    columns = (table[name].tolist() for name in ("phase", "kernel_source", "batch_size", "num_v_heads", "latency"))
    for phase, source, batch, heads, ms in zip(*columns, strict=True):
        if phase == "generation":
            whole = "fused_decode" in source or "fused_kda_decode" in source
            kernel = "whole" if whole else "conv" if "conv1d" in source else "scan"
            times = best.setdefault((int(batch), int(heads)), {})
            times[kernel] = min(times.get(kernel, np.inf), ms * 1e3)
    us = [min(t.get("whole", np.inf), t.get("conv", np.inf) + t.get("scan", np.inf)) for t in best.values()]
    known = np.isfinite(us)
    batch, heads = np.array(list(best), dtype=float)[known].T
    return Rows({"batch_size": batch, "num_v_heads": heads}, np.array(us)[known], batch)


def collective(folder: Path, system: System, operation: str, devices: int) -> tuple[Floats, Floats]:
    """(bytes, us) of a collective over `devices`, ascending; an all-reduce takes the fastest of NCCL and custom."""
    table = read(folder / "comm" / "nccl" / system.nccl / "nccl_perf.parquet")
    chosen = (table["op_name"] == operation) & (table["num_gpus"] == devices) & (table["nccl_dtype"] == "half")
    half = (table["message_size"][chosen] * 2).tolist()
    best = dict(zip(half, (table["latency"][chosen] * 1e3).tolist(), strict=True))
    for custom in system.custom if operation == "all_reduce" else ():
        table = read(folder / "comm" / custom / "custom_allreduce_perf.parquet")
        graph = np.array([not str(source).endswith("eager") for source in table["kernel_source"]])
        chosen = graph & (table["num_gpus"] == devices)
        for size, us in zip(table["message_size"][chosen] * 2, table["latency"][chosen] * 1e3, strict=True):
            best[int(size)] = min(best.get(int(size), np.inf), float(us))
    sizes = sorted(best)
    return np.array(sizes, dtype=float), np.array([best[size] for size in sizes])
