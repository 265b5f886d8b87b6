"""Llama-3.1-8B on one RTX PRO 6000: 300 ShareGPT requests at about 10 per second, vLLM 0.19."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
import msgspec

from bench.fidelity.board import Row
from bench.fidelity.runs import Outcome, request, run, vllm
from stageline.catalog.loader import Catalog
from stageline.cost.kernels import make_profile
from stageline.cost.profile import Profile
from stageline.engine.types import Request
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions

SYSTEM = "Llama-3.1-8B, RTX PRO 6000, vLLM 0.19 (300 ShareGPT requests, 10 per second)"
KERNELS, TIMINGS = "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1", "RTXPRO6000_Llama-3.1-8B_vllm_requests.jsonl"
FITTED = "kernel timings + one scalar"


class Timings(msgspec.Struct, frozen=True):
    """The measured run: requests, and seconds per request in the same order."""

    requests: list[Request]
    ttft_s: list[float]
    tpot_s: list[float]
    e2e_s: list[float]

    def means_s(self) -> tuple[float, float, float]:
        """Mean TTFT, TPOT, latency."""
        return fmean(self.ttft_s), fmean(self.tpot_s), fmean(self.e2e_s)


def timings(data: Path) -> Timings:
    """Read the measured run; times count from the moment a request is queued."""
    rows = [json.loads(line) for line in (data / "measured" / TIMINGS).read_text().splitlines()]
    rows.sort(key=lambda row: row["queued_ts"])
    start = rows[0]["queued_ts"]
    return Timings(
        [
            request(i, round((r["queued_ts"] - start) * 1e9), r["input_toks"], r["output_toks"])
            for i, r in enumerate(rows)
        ],
        [r["first_token_ts"] - r["queued_ts"] for r in rows],
        [(r["last_token_ts"] - r["first_token_ts"]) / (r["output_toks"] - 1) for r in rows if r["output_toks"] > 1],
        [r["last_token_ts"] - r["queued_ts"] for r in rows],
    )


def kernel_profile(data: Path) -> Profile:
    """The profile of the same machine, not fitted yet."""
    texts = [
        (data / "measured" / KERNELS / f"{name}.csv").read_text() for name in ("dense", "attention", "per_sequence")
    ]
    return make_profile(*texts, name="rtx-pro-6000-vllm", model="llama-3.1-8b", device="rtx-pro-6000", source=KERNELS)


def emulate(shelf: Catalog, requests: Sequence[Request], profile: Profile | None) -> Outcome:
    """The same requests through a plan of one device."""
    options = PlanOptions(profile=profile, hop_latency_ns=0, hop_bytes_per_s=10**12)
    plan = make_plan(shelf.model("llama-3.1-8b").spec, shelf.device("rtx-pro-6000").device, options).plan
    return run(plan, vllm(plan, max_num_seqs=128, batched_tokens=2048), requests)


def fit(shelf: Catalog, real: Timings, profile: Profile) -> Profile:
    """The scale of attention with which the mean latency agrees, by bisection: it grows with the scale."""
    low, high, goal = 0.8, 1.6, fmean(real.e2e_s)
    for _ in range(7):
        middle = (low + high) / 2
        found = msgspec.structs.replace(profile, attention_scale=middle)
        if fmean(emulate(shelf, real.requests, found).e2e_s()) < goal:
            low = middle
        else:
            high = middle
    return msgspec.structs.replace(profile, attention_scale=round((low + high) / 2, 3))


def rows(data: Path, out: Path | None) -> list[Row]:
    """Fitted, kernels alone, and from the specification."""
    shelf, real, kernels = Catalog(), timings(data), kernel_profile(data)
    fitted = fit(shelf, real, kernels)
    found: list[Row] = []
    cases = (
        (f"attention x {fitted.attention_scale:g}", FITTED, fitted, 0.05, "LLMServingSim -4.0 / -1.0 / -1.8 %"),
        ("kernels as timed", "kernel timings", kernels, None, ""),
        ("roofline", "specification", None, None, ""),
    )
    for case, basis, profile, target, peers in cases:
        ours = emulate(shelf, real.requests, profile)
        error = fmean(abs(a - b) for a, b in zip(ours.ttft_s(), real.ttft_s, strict=True))
        note = f"{case}: mean absolute error of a request's TTFT {error:.2f} s"
        for name, unit, measured, emulated in zip(
            ("mean TTFT", "mean TPOT", "mean latency"), ("s", "s", "s"), real.means_s(), ours.means_s(), strict=True
        ):
            found.append(
                Row(
                    system=SYSTEM, case=case, metric=name, unit=unit, measured=measured, emulated=emulated,
                    basis=basis, target=target, peers=peers, note=note,
                )
            )  # fmt: skip
        if profile is fitted and out:
            scatter(real, ours, out / "rtx-pro-6000-ttft.png")
    return found


def scatter(real: Timings, ours: Outcome, path: Path) -> None:
    """TTFT of every request, measured against emulated."""
    figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
    axes.scatter(real.ttft_s, ours.ttft_s(), s=8)
    top = max(*real.ttft_s, *ours.ttft_s())
    axes.plot((0, top), (0, top), color="grey", linewidth=0.8)
    axes.set(xlabel="measured TTFT (s)", ylabel="emulated TTFT (s)", title="300 requests, RTX PRO 6000")
    figure.savefig(path, dpi=120)
    plt.close(figure)
