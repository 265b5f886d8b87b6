"""The formulas of `stageline.hardware.costs` over table rows: us for constants x, in the order of the fields."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench.costs.tables import Floats, Rows
from stageline.hardware.device import Device
from stageline.model.formats import WEIGHT_FORMATS, WeightFormat

NO_WINDOW = 1e18


def _weights(fmt: str) -> WeightFormat:
    """The format; mxfp4-w4a8 keeps its weights as mxfp4 does, and its FLOPs count on the fp8 peak."""
    return WEIGHT_FORMATS["mxfp4"]._replace(precision="fp8") if fmt == "mxfp4-w4a8" else WEIGHT_FORMATS[fmt]


class Form(NamedTuple):
    """A formula and where its fit begins."""

    predict: Callable[[Floats], Floats]
    start: tuple[float, ...]


def gemm(rows: Rows, device: Device, fmt: str) -> Form:
    """See GemmCost: fixed us, bandwidth, flops, unhidden, activations."""
    m, n, k = (rows.columns[name] for name in "mnk")
    weights = n * k * float(_weights(fmt).bits) / 8 / device.bandwidth_bytes_per_s * 1e6
    flops = 2 * m * n * k / device.peak_flops.at(_weights(fmt).precision) * 1e6
    traffic = 2 * m * (n + k) / device.bandwidth_bytes_per_s * 1e6

    def predict(x: Floats) -> Floats:
        read, work = weights / x[1], flops / x[2]
        us: Floats = x[0] + np.maximum(read, work) + x[3] * np.minimum(read, work) + x[4] * traffic
        return us

    return Form(predict, (4.0, 0.85, 0.7, 0.1, 0.3))


def attention(rows: Rows, device: Device, fmt: str, *, decode: bool) -> Form:
    """See AttentionCost: fixed us, bandwidth, flops, query, span us, head us."""
    c = rows.columns
    batch, heads, kv_heads, width = (c[n] for n in ("batch_size", "num_heads", "num_key_value_heads", "head_dim"))
    window = np.where(c["window_size"] > 0, c["window_size"], NO_WINDOW)
    new, cached = (np.ones_like(batch), c["step"]) if decode else (c["isl"], c["step"])
    pairs = np.minimum(batch * (new * cached + new * (new + 1) / 2), batch * new * window)
    kv = batch * np.minimum(cached + new, window + new)
    work = 4 * heads * width * pairs / device.peak_flops.bf16 * 1e6
    read = 2 * kv_heads * width * kv * (1 if fmt == "fp8" else 2) / device.bandwidth_bytes_per_s * 1e6
    query = batch * new * heads * width * 4 / device.bandwidth_bytes_per_s * 1e6
    span, rows_of_heads = kv / batch, batch * (kv_heads if decode else heads)

    def predict(x: Floats) -> Floats:
        busy = np.maximum(read / x[1], work / x[2]) if decode else read / x[1] + work / x[2]
        us: Floats = x[0] + busy + x[3] * query + x[4] * span + x[5] * rows_of_heads
        return us

    return Form(predict, (10.0, 0.9, 0.5, 1.0, 5e-4, 1e-2) if decode else (10.0, 0.7, 0.65, 1.0, 3e-3, 1e-3))


def experts(rows: Rows, device: Device, fmt: str) -> Form:
    """See MoeCost: fixed us, bandwidth, flops, unhidden, activations, expert us."""
    c = rows.columns
    tokens, hidden, k, count, ranks = (
        c[n] for n in ("num_tokens", "hidden_size", "topk", "num_experts", "moe_ep_size")
    )
    width = c["inter_size"] / c["moe_tp_size"]
    one = 3 * hidden * width
    distinct = count * (1 - ((count - k) / count) ** tokens) / ranks
    size = float(_weights(fmt).bits) / 8
    reading = distinct * one * size / device.bandwidth_bytes_per_s * 1e6
    copies = tokens * k / ranks
    work_flops = 2 * copies * one / device.peak_flops.at(_weights(fmt).precision) * 1e6
    traffic = copies * (2 * hidden + 3 * width) * 2 / device.bandwidth_bytes_per_s * 1e6

    def predict(x: Floats) -> Floats:
        read, work = reading / x[1] + x[5] * distinct, work_flops / x[2]
        us: Floats = x[0] + np.maximum(read, work) + x[3] * np.minimum(read, work) + x[4] * traffic
        return us

    return Form(predict, (30.0, 0.8, 0.5, 0.5, 1.0, 0.05))


def linear(rows: Rows, *, prefill: bool) -> Form:
    """One kernel of LinearCost: fixed us, head us, and in prefill token us and span us."""
    c = rows.columns
    sequences, heads = c["batch_size"], c["num_v_heads"]
    per_head, per_token = sequences * heads, sequences * c["seq_len"] * heads

    def predict(x: Floats) -> Floats:
        us: Floats = x[0] + x[1] * per_head
        if prefill:
            us = us + x[2] * per_token + x[3] * c["seq_len"]
        return us

    return Form(predict, (5.0, 1e-3, 1e-3, 1e-3) if prefill else (5.0, 1e-2))
