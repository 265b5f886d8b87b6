"""Llama-3.1-8B on one RTX PRO 6000: 300 ShareGPT requests at about 10 per second, vLLM 0.19."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt

from bench.fidelity.board import Made, Row
from bench.fidelity.runs import RunOutput, run, vllm
from stageline.api.fitting import MeasuredRun, Serving, fit_attention
from stageline.catalog.loader import Catalog
from stageline.cost.kernel_timings import make_profile
from stageline.cost.profile import Profile
from stageline.engine.types import Request
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.workload.timings import Timings, read_timings

SYSTEM = "Llama-3.1-8B, RTX PRO 6000, vLLM 0.19 (300 ShareGPT requests, 10 per second)"
KERNELS, TIMINGS = "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1", "RTXPRO6000_Llama-3.1-8B_vllm_requests.jsonl"
SERVED = "--max-num-seqs 128 --max-num-batched-tokens 2048"
CALIBRATE = f"stageline calibrate measured/{KERNELS} llama-3.1-8b rtx-pro-6000 {SERVED} -o profile.json"
PLAN = f"stageline plan llama-3.1-8b rtx-pro-6000 --no-async-scheduling --hop-latency 0ns {SERVED}"
REPLAY = f"stageline run plan.json --workload measured/{TIMINGS}"


def means_s(real: Timings) -> tuple[float, float, float]:
    """Measured mean TTFT, TPOT and end-to-end latency."""
    steps = [t.tpot_ns for t in real.times if t.tpot_ns is not None]
    means = (fmean(t.ttft_ns for t in real.times), fmean(steps), fmean(t.e2e_ns for t in real.times))
    return means[0] / 1e9, means[1] / 1e9, means[2] / 1e9


def kernel_profile(data: Path) -> Profile:
    """A profile from kernel timings of the same machine, not yet fitted to requests."""
    texts = [
        (data / "measured" / KERNELS / f"{name}.csv").read_text() for name in ("dense", "attention", "per_sequence")
    ]
    return make_profile(*texts, name="rtx-pro-6000-vllm", model="llama-3.1-8b", device="rtx-pro-6000", source=KERNELS)


def emulate(catalog: Catalog, requests: Sequence[Request], profile: Profile | None) -> RunOutput:
    """Run the same requests on one device."""
    options = PlanOptions(profile=profile, hop_latency_ns=0, hop_bytes_per_s=10**12)
    plan = make_plan(catalog.model("llama-3.1-8b").spec, catalog.device("rtx-pro-6000").device, options).plan
    return run(plan, vllm(plan, max_num_seqs=128, batched_tokens=2048), requests)


def rows(data: Path, out: Path | None) -> list[Row]:
    """Three cases: kernel timings with a fitted scalar, kernel timings alone, and the specification."""
    catalog, kernels = Catalog(), kernel_profile(data)
    real = read_timings((data / "measured" / TIMINGS).read_text(), TIMINGS)
    spec, device = catalog.model("llama-3.1-8b").spec, catalog.device("rtx-pro-6000").device
    fitted = fit_attention(MeasuredRun(spec, device, real, Serving(max_num_seqs=128, batched_tokens=2048)), kernels)
    ttft_s = [t.ttft_ns / 1e9 for t in real.times]
    found: list[Row] = []
    made: tuple[Made, ...] = ("fitted on the row", "tables", "specification")
    fit, plain = f"{CALIBRATE} --requests measured/{TIMINGS}", f"{PLAN} -o plan.json && {REPLAY}"
    profiled = f"{PLAN} --profile ./profile.json -o plan.json && {REPLAY}"
    cases = (
        (f"attention x {fitted.attention_scale:g}", fitted, 0.05, "LLMServingSim -4.0 / -1.0 / -1.8 %"),
        ("kernels as timed", kernels, 0.04, ""),
        ("roofline", None, None, ""),
    )
    commands = (f"{fit} && {profiled}", f"{CALIBRATE} && {profiled}", plain)
    for basis, command, (case, profile, target, peers) in zip(made, commands, cases, strict=True):
        ours = emulate(catalog, real.requests, profile)
        error = fmean(abs(a - b) for a, b in zip(ours.ttft_s(), ttft_s, strict=True))
        note = f"{case}: mean absolute error of a request's TTFT {error:.2f} s"
        for name, unit, measured, emulated in zip(
            ("mean TTFT", "mean TPOT", "mean latency"), ("s", "s", "s"), means_s(real), ours.means_s(), strict=True
        ):
            found.append(
                Row(
                    system=SYSTEM, case=case, metric=name, unit=unit, measured=measured, emulated=emulated,
                    made=basis, target=target, peers=peers, note=note, command=command,
                )
            )  # fmt: skip
        if profile is fitted and out:
            scatter(ttft_s, ours, out / "rtx-pro-6000-ttft.png")
    return found


def scatter(ttft_s: Sequence[float], ours: RunOutput, path: Path) -> None:
    """Plot the TTFT of every request, emulated over measured."""
    figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
    axes.scatter(ttft_s, ours.ttft_s(), s=8)
    top = max(*ttft_s, *ours.ttft_s())
    axes.plot((0, top), (0, top), color="grey", linewidth=0.8)
    axes.set(xlabel="measured TTFT (s)", ylabel="emulated TTFT (s)", title="300 requests, RTX PRO 6000")
    figure.savefig(path, dpi=120)
    plt.close(figure)
