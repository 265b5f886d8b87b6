"""Times of a node's collectives from kernel tables, by bytes."""

import math
from collections.abc import Iterable

from stageline.cost.kernel_rows import KernelTable
from stageline.cost.measured import curve_ns
from stageline.cost.measured_entries import Curve

ELEMENT_BYTES = {"half": 2, "bfloat16": 2, "int8": 1}  # message sizes are elements
Sizes = dict[int, float]  # bytes -> ns


def nccl_sizes(tables: Iterable[KernelTable], operation: str, ranks: int) -> Sizes:
    """A collective over that many ranks, in half precision, by the first table that has it. Raises BadInput."""
    for table in tables:
        found: Sizes = {}
        rows = table.rows("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
        for number, (name, dtype, devices, size, ms) in enumerate(rows):
            if name == operation and dtype == "half" and devices == ranks:
                found[int(size) * 2] = table.latency_ns(number, ms)
        if len(found) > 1:
            return found
    return {}


def custom_sizes(tables: Iterable[KernelTable], ranks: int) -> Sizes:
    """A serving engine's own all-reduce, captured in a graph. Raises BadInput."""
    for table in tables:
        found: Sizes = {}
        rows = table.rows("kernel_source", "allreduce_dtype", "num_gpus", "message_size", "latency")
        for number, (source, dtype, devices, size, ms) in enumerate(rows):
            if devices == ranks and not str(source).endswith("eager"):
                at = int(size) * ELEMENT_BYTES.get(str(dtype), 2)
                found[at] = min(table.latency_ns(number, ms), found.get(at, math.inf))
        if len(found) > 1:
            return found
    return {}


def fastest(a: Sizes, b: Sizes) -> Sizes:
    """The faster of two at each size."""
    return {size: min(x.get(size, math.inf) for x in (a, b)) for size in sorted(a.keys() | b.keys())}


def by_tokens(sizes: Sizes, token_bytes: float) -> Curve:
    """The collective of tokens x token_bytes, at the tokens of every measured size and at 1."""
    at = sorted(sizes)
    raw = Curve(at=tuple(at), ns=tuple(sizes[x] for x in at))
    tokens = sorted({1, *(t for x in at if (t := round(x / token_bytes)) > 1)})
    ns = [curve_ns(raw, round(t * token_bytes)) for t in tokens]
    if len(tokens) == 1:
        tokens, ns = [1, 2], [ns[0], ns[0]]
    ns[-1] = max(ns[-1], ns[-2])
    return Curve(at=tuple(tokens), ns=tuple(ns))
