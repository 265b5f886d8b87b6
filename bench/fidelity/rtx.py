"""Llama-3.1-8B on one RTX PRO 6000: 300 ShareGPT requests at about 10 per second, vLLM 0.19."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt
import msgspec

from bench.fidelity.board import Made, Row
from bench.fidelity.typed import call
from stageline.workload.timings import Timings, read_timings

SYSTEM = "Llama-3.1-8B, RTX PRO 6000, vLLM 0.19 (300 ShareGPT requests, 10 per second)"
KERNELS, TIMINGS = "kernels_RTXPRO6000_Llama-3.1-8B_bf16_tp1", "RTXPRO6000_Llama-3.1-8B_vllm_requests.jsonl"
ELSEWHERE = "500us"  # of small kernels that no graph holds: what the dense rows of ML.ENERGY on H100 leave per step
SERVED = "--max-num-seqs 128 --max-num-batched-tokens 2048"
PLAN = f"plan llama-3.1-8b rtx-pro-6000 --no-async-scheduling --no-enable-prefix-caching {SERVED} -o plan.json"
REPLAY = f"run plan.json --workload DIR/measured/{TIMINGS}"
CALIBRATE = f"calibrate DIR/measured/{KERNELS} llama-3.1-8b rtx-pro-6000 {SERVED} -o profile.json"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A way to make the plan: the commands before `run`, and what its rows are made from."""

    name: str
    made: Made
    commands: tuple[str, ...]
    target: float | None = None
    peers: str = ""


CASES = (
    Case(
        name="attention scaled to the requests", made="fitted on the row", target=0.05,
        commands=(f"{CALIBRATE} --requests DIR/measured/{TIMINGS}", f"{PLAN} --profile ./profile.json"),
    ),
    Case(
        name="kernels as timed", made="tables", commands=(CALIBRATE, f"{PLAN} --profile ./profile.json"),
        peers="LLMServingSim -4.0 / -1.0 / -1.8 %",
    ),
    Case(
        name=f"kernels as timed, {ELSEWHERE} a step", made="fitted elsewhere", target=0.04,
        commands=(CALIBRATE, f"{PLAN} --profile ./profile.json --sampling-step {ELSEWHERE}"),
        peers="LLMServingSim -4.0 / -1.0 / -1.8 %",
    ),
    Case(name="roofline, synchronous", made="specification", commands=(PLAN,)),
    Case(
        name="roofline, asynchronous", made="specification", commands=(PLAN.replace(" --no-async-scheduling", ""),)
    ),
)  # fmt: skip


def means_s(real: Timings) -> tuple[float, float, float]:
    """Measured mean TTFT, TPOT and end-to-end latency."""
    steps = [t.tpot_ns for t in real.times if t.tpot_ns is not None]
    means = (fmean(t.ttft_ns for t in real.times), fmean(steps), fmean(t.e2e_ns for t in real.times))
    return means[0] / 1e9, means[1] / 1e9, means[2] / 1e9


def replay(case: Case, data: Path) -> tuple[tuple[float, float, float], list[float]]:
    """Mean TTFT, TPOT and latency in s, and the TTFT of every request in order of arrival."""
    with tempfile.TemporaryDirectory() as folder:

        def typed(words: str) -> str:
            for name in ("plan.json", "profile.json"):
                words = words.replace(f"./{name}", name).replace(name, f"{folder}/{name}")
            return call(words.replace("DIR", str(data)))

        for command in case.commands:
            typed(command)
        found = json.loads(typed(f"{REPLAY} --json -o {folder}/run"))
        lines = Path(folder, "run", "requests.jsonl").read_text().splitlines()
    records = sorted(map(json.loads, lines), key=lambda row: row["index"])
    means = tuple(found[name]["mean"] for name in ("ttft_s", "tpot_s", "e2e_s"))
    return means, [(row["first_token_ns"] - row["arrival_ns"]) / 1e9 for row in records]


def rows(data: Path, out: Path | None) -> list[Row]:
    """Kernel timings, alone and with a fitted constant; the specification, synchronous and asynchronous."""
    real = read_timings((data / "measured" / TIMINGS).read_text(), TIMINGS)
    ttft_s = [t.ttft_ns / 1e9 for t in real.times]
    found: list[Row] = []
    for case in CASES:
        means, ours_s = replay(case, data)
        error = fmean(abs(a - b) for a, b in zip(ours_s, ttft_s, strict=True))
        command = " && ".join(f"stageline {words}" for words in (*case.commands, REPLAY))
        found += [
            Row(
                system=SYSTEM, case=case.name, metric=metric, unit="s", measured=measured, emulated=emulated,
                made=case.made, target=case.target, peers=case.peers, command=command,
                note=f"{case.name}: mean absolute error of a request's TTFT {error:.2f} s",
            )
            for metric, measured, emulated in zip(
                ("mean TTFT", "mean TPOT", "mean latency"), means_s(real), means, strict=True
            )
        ]  # fmt: skip
        if case.made == "fitted on the row" and out:
            scatter(ttft_s, ours_s, out / "rtx-pro-6000-ttft.png")
    return found


def scatter(measured_s: Sequence[float], emulated_s: Sequence[float], path: Path) -> None:
    """Plot the TTFT of every request, emulated over measured."""
    figure, axes = plt.subplots(figsize=(5, 5), layout="constrained")
    axes.scatter(measured_s, emulated_s, s=8)
    top = max(*measured_s, *emulated_s)
    axes.plot((0, top), (0, top), color="grey", linewidth=0.8)
    axes.set(xlabel="measured TTFT (s)", ylabel="emulated TTFT (s)", title="300 requests, RTX PRO 6000")
    figure.savefig(path, dpi=120)
    plt.close(figure)
