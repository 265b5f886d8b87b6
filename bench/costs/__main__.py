"""python -m bench.costs DATA: fits the kernel constants of all devices; DATA holds aiconfigurator's system folders.

Writes stageline/catalog/costs/*.toml and docs/costs.md.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.costs import forms, tables, text
from bench.costs.fit import Residuals, envelope, fit, residuals
from bench.costs.forms import Form
from bench.costs.tables import SYSTEMS, Rows, System
from stageline.catalog.loader import Catalog
from stageline.hardware.costs import DecodeCost, GemmCost, KernelCosts, LinearCost, MoeCost, PrefillCost
from stageline.hardware.device import Device
from stageline.hardware.networks import MeasuredCollective

ROOT = Path(__file__).resolve().parents[2]
GROUPS = (2, 4, 8)
FEWEST_SIZES = 12


class Fitted(NamedTuple):
    """Constants of one device, the residuals of each, and the rows that were left out, by format."""

    costs: KernelCosts
    residuals: dict[tuple[str, str], Residuals]  # (kind, format)
    launches: dict[str, int]


def evaluate(form: Form, rows: Rows) -> tuple[list[float], Residuals]:
    """The constants of a form as they are written, and what they leave."""
    x = [text.rounded(value) for value in fit(form, rows)]
    return x, residuals(form.predict(np.array(x)), rows)


def fit_system(data: Path, system: System, device: Device) -> Fitted:
    """All kinds and formats of one device."""
    folder, left, on = data / system.folder, {}, forms.given(system, device)
    gemm, prefill, decode, moe = [], [], [], []
    found, launches = tables.gemms(folder, system)
    for fmt, rows in found.items():
        x, left["GEMM", fmt] = evaluate(forms.gemm(rows, device, fmt), rows)
        gemm.append(_gemm(fmt, x))
    for fmt, rows in tables.attention(folder, system, "context").items():
        x, left["prefill attention", fmt] = evaluate(forms.prefill(rows, device, fmt, on), rows)
        prefill.append(_prefill(fmt, x))
    for fmt, rows in tables.attention(folder, system, "generation").items():
        x, left["decode attention", fmt] = evaluate(forms.decode(rows, device, fmt, on), rows)
        decode.append(_decode(fmt, x, heads_apart=tables.heads_apart(folder, system, fmt)))
    for fmt, rows in tables.experts(folder, system).items():
        x, left["MoE", fmt] = evaluate(forms.experts(rows, device, fmt), rows)
        moe.append(_moe(fmt, x))
    costs = KernelCosts(
        name=device.name, score_fs=text.rounded(on.score_fs), cache_bytes=on.cache_bytes,
        gemm=tuple(gemm), prefill=tuple(prefill), decode=tuple(decode), moe=tuple(moe),
        linear=_linear(folder, system, left), all_reduce=_collectives(folder, system, "all_reduce"),
        reduce_scatter=_collectives(folder, system, "reduce_scatter"),
        all_gather=_collectives(folder, system, "all_gather"),
    )  # fmt: skip
    return Fitted(costs, left, launches)


def _ns(us: float) -> float:
    return text.rounded(us * 1e3)


def _gemm(fmt: str, x: list[float]) -> GemmCost:
    shares = {"bandwidth": x[1], "flops": x[2], "unhidden": x[3]}
    return GemmCost(format=fmt, fixed_ns=_ns(x[0]), inputs=x[4], outputs=x[5], **shares)


def _prefill(fmt: str, x: list[float]) -> PrefillCost:
    shares = {"bandwidth": x[1], "flops": x[2], "query": x[3]}
    return PrefillCost(format=fmt, fixed_ns=_ns(x[0]), depth_ns=_ns(x[4]), block_ns=_ns(x[5]), **shares)


def _decode(fmt: str, x: list[float], *, heads_apart: bool) -> DecodeCost:
    shares = {"bandwidth": x[1], "cache_bandwidth": x[2], "query": x[3]}
    times = {"fixed_ns": _ns(x[0]), "span_ns": _ns(x[4]), "head_ns": _ns(x[5])}
    return DecodeCost(format=fmt, heads_apart=heads_apart, **times, **shares)


def _moe(fmt: str, x: list[float]) -> MoeCost:
    names = {"fixed_ns": _ns(x[0]), "bandwidth": x[1], "flops": x[2], "unhidden": x[3]}
    return MoeCost(format=fmt, activations=x[4], expert_ns=_ns(x[5]), **names)


def _linear(folder: Path, system: System, left: dict[tuple[str, str], Residuals]) -> tuple[LinearCost, ...]:
    parts: dict[str, dict[str, list[float]]] = {}
    for (kind, kernel), rows in tables.linear(folder, system).items():
        x, left[f"linear {kernel}", kind] = evaluate(forms.linear(rows, prefill="context" in kernel), rows)
        parts.setdefault(kind, {})[kernel] = x
    return tuple(_linear_cost(kind, kernels) for kind, kernels in parts.items())


def _linear_cost(kind: str, kernels: dict[str, list[float]]) -> LinearCost:
    """Of prefill the convolution's and the scan's constants, added."""
    decode = kernels["generation"]
    prefill = np.add(kernels["context conv"], kernels["context scan"]).tolist()
    return LinearCost(
        format=kind, decode_fixed_ns=_ns(decode[0]), decode_head_ns=_ns(decode[1]), fixed_ns=_ns(prefill[0]),
        head_ns=_ns(prefill[1]), token_ns=_ns(prefill[2]), span_ns=_ns(prefill[3]),
    )  # fmt: skip


def _collectives(folder: Path, system: System, operation: str) -> tuple[MeasuredCollective, ...]:
    ways = []
    for devices in GROUPS:
        sizes, us = tables.collective(folder, system, operation, devices)
        if len(sizes) >= FEWEST_SIZES:
            for latency, per_byte in envelope(sizes, us):
                rate = min(round(1e6 / per_byte / 1e7) * 10**7, 1 << 60)
                ways.append(
                    MeasuredCollective(devices=devices, latency_ns=round(latency * 1e3), bytes_per_s=max(rate, 10**7))
                )
    return tuple(ways)


def main(data: Path) -> None:
    """Fit every system whose device is in the catalogue."""
    catalog = Catalog()
    found = []
    for system in SYSTEMS:
        fitted = fit_system(data, system, catalog.device(system.device).device)
        found.append((system, fitted.costs, fitted.residuals, fitted.launches))
        target = ROOT / "stageline" / "catalog" / "costs" / f"{system.device}.toml"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text.toml(fitted.costs, system))
        print(f"{system.device}: {len(fitted.residuals)} fits", file=sys.stderr)
    (ROOT / "docs" / "costs.md").write_text(text.page(found, Catalog()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
