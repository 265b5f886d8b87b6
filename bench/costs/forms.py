"""The formulas of `stageline.hardware.costs` over table rows: us for constants x, in the order of the fields."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench.costs.tables import Floats, Rows, System
from stageline.hardware.costs import QUERY_TILE, WINDOW_TILE
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
    """See GemmCost: fixed us, bandwidth, flops, unhidden, inputs, outputs."""
    m, n, k = (rows.columns[name] for name in ("m", "n", "k"))
    weights = n * k * float(_weights(fmt).bits) / 8 / device.bandwidth_bytes_per_s * 1e6
    flops = 2 * m * n * k / device.peak_flops.at(_weights(fmt).precision) * 1e6
    inputs, outputs = (2 * m * x / device.bandwidth_bytes_per_s * 1e6 for x in (k, n))

    def predict(x: Floats) -> Floats:
        read, work = weights / x[1], flops / x[2]
        us: Floats = x[0] + np.maximum(read, work) + x[3] * np.minimum(read, work) + x[4] * inputs + x[5] * outputs
        return us

    return Form(predict, (4.0, 0.85, 0.7, 0.1, 0.3, 0.3))


class _Attention(NamedTuple):
    """What both phases count, us at the device's peaks."""

    kv_bytes: Floats
    read: Floats
    query: Floats
    pairs: Floats
    new: Floats
    context: Floats  # mean KV tokens


def _attention(rows: Rows, device: Device, fmt: str, *, decode: bool) -> _Attention:
    c = rows.columns
    batch, heads, kv_heads, width = (c[n] for n in ("batch_size", "num_heads", "num_key_value_heads", "head_dim"))
    window = np.where(c["window_size"] > 0, c["window_size"], NO_WINDOW)
    new, cached = (np.ones_like(batch), c["step"]) if decode else (c["isl"], c["step"])
    computed = window if decode else window + WINDOW_TILE
    pairs = np.minimum(batch * (new * cached + new * (new + 1) / 2), batch * new * computed)
    kv = batch * np.minimum(cached + new, window + new)
    kv_bytes = 2 * kv_heads * width * kv * (1 if fmt == "fp8" else 2)
    query = batch * new * heads * width * 4 / device.bandwidth_bytes_per_s * 1e6
    return _Attention(kv_bytes, kv_bytes / device.bandwidth_bytes_per_s * 1e6, query, pairs, batch * new, kv / batch)


class Given(NamedTuple):
    """What a device's data sheet gives, and no fit: bytes of the last cache, fs of one exponential."""

    cache_bytes: int
    score_fs: float


def given(system: System, device: Device) -> Given:
    """See `System`."""
    return Given(system.cache_mib << 20, system.exponential_flops / device.peak_flops.bf16 * 1e15)


def prefill(rows: Rows, device: Device, fmt: str, on: Given) -> Form:
    """See PrefillCost: fixed us, bandwidth, flops, query, depth us, block us."""
    a, heads, width = _attention(rows, device, fmt, decode=False), rows.columns["num_heads"], rows.columns["head_dim"]
    work, scores = 4 * heads * width * a.pairs / device.peak_flops.bf16 * 1e6, on.score_fs * heads * a.pairs * 1e-9
    spilt = np.where(a.query * device.bandwidth_bytes_per_s / 1e6 > on.cache_bytes, a.query, 0.0)
    depth, blocks = a.pairs / a.new, heads * (a.new / QUERY_TILE + rows.columns["batch_size"] / 2)

    def predict(x: Floats) -> Floats:
        us: Floats = x[0] + a.read / x[1] + work / x[2] + scores + x[3] * spilt + x[4] * depth + x[5] * blocks
        return us

    return Form(predict, (10.0, 0.7, 0.65, 1.0, 1e-2, 1e-2))


def decode(rows: Rows, device: Device, fmt: str, on: Given) -> Form:
    """See DecodeCost: fixed us, bandwidth, cache bandwidth, query, span us, head us."""
    a, c = _attention(rows, device, fmt, decode=True), rows.columns
    cached = a.kv_bytes <= on.cache_bytes
    calls = c["batch_size"] * np.where(c["apart"] > 0, c["num_heads"], c["num_key_value_heads"])

    def predict(x: Floats) -> Floats:
        read = a.read / np.where(cached, x[2], x[1])
        us: Floats = x[0] + read + x[3] * a.query + x[4] * a.context + x[5] * calls
        return us

    return Form(predict, (10.0, 0.9, 2.0, 1.0, 5e-4, 1e-2))


def experts(rows: Rows, device: Device, fmt: str) -> Form:
    """See MoeCost: fixed us, bandwidth, flops, unhidden, activations, expert us."""
    c = rows.columns
    hidden, width = c["hidden_size"], c["inter_size"] / c["moe_tp_size"]
    one, size = 3 * hidden * width, float(_weights(fmt).bits) / 8
    reading = c["distinct"] * one * size / device.bandwidth_bytes_per_s * 1e6
    work_flops = 2 * c["copies"] * one / device.peak_flops.at(_weights(fmt).precision) * 1e6
    rows_of_experts = c["num_tokens"] * c["topk"]
    traffic = rows_of_experts * (2 * hidden + 3 * width) * 2 / device.bandwidth_bytes_per_s * 1e6

    def predict(x: Floats) -> Floats:
        read, work = reading / x[1] + x[5] * c["distinct"], work_flops / x[2]
        us: Floats = x[0] + np.maximum(read, work) + x[3] * np.minimum(read, work) + x[4] * traffic
        return us

    return Form(predict, (30.0, 0.8, 0.5, 0.5, 0.5, 0.05))


def linear(rows: Rows, *, prefill: bool) -> Form:
    """One kernel of LinearCost: fixed us, head us, and in prefill token us and span us."""
    c = rows.columns
    sequences, heads = c["batch_size"], c["num_v_heads"]
    per_head = sequences * heads

    def predict(x: Floats) -> Floats:
        us: Floats = x[0] + x[1] * per_head
        if prefill:
            us = us + x[2] * per_head * c["seq_len"] + x[3] * c["seq_len"]
        return us

    return Form(predict, (5.0, 1e-3, 1e-3, 1e-3) if prefill else (5.0, 1e-2))
