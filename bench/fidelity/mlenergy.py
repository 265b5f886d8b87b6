"""Decode on H100 and B200: rows of the ML.ENERGY leaderboard (vLLM; chat and GPQA)."""

import csv
from pathlib import Path
from statistics import median

from bench.fidelity.board import Row
from bench.fidelity.typed import CATALOGUE, NO_HOPS, at_once, typed

FILE = "mlenergy_v3.csv"
MODELS = {  # dense models of the leaderboard, and ours
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.1-70b",
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3-14B": "qwen3-14b",
    "Qwen/Qwen3-32B": "qwen3-32b",
}
DEVICES = {"H100": "h100-sxm", "B200": "b200"}
PROMPTS = {"lm-arena-chat": 100, "gpqa": 300}  # tokens; not published, assumed
BANDS = ((32, "<= 32"), (128, "33-128"), (512, "129-512"))
STEPS = 8
MOST = 1.3  # batch / ITL / throughput: beyond it a row contradicts itself
ITL_TARGET, RATE_TARGET, B200_TARGET = 0.08, 0.10, 0.12
HOST_US = tuple(range(0, 101, 10))  # per sequence and step, for leave-one-model-out


def rows(data: Path) -> list[Row]:
    """By device, task and band of batch: the median error of ITL and of throughput, as rows of medians' ratios."""
    with (data / "measured" / FILE).open(newline="") as lines:
        every = [row for row in csv.DictReader(lines) if row["model"] in MODELS and row["gpu"] in DEVICES]
    return [row for gpu in DEVICES for row in _of_device([r for r in every if r["gpu"] == gpu], gpu)]


def _of_device(every: list[dict[str, str]], gpu: str) -> list[Row]:
    good = [r for r in every if _batch(r) / float(r["median_itl_ms"]) * 1e3 / float(r["output_tokens_per_s"]) <= MOST]
    found: list[Row] = []
    for row in good:
        itl, command = itl_ms(row, None)
        found.append(
            Row(
                system=f"ML.ENERGY, {gpu}", case=_case(row), metric="ITL", unit="ms",
                measured=float(row["median_itl_ms"]), emulated=itl, made="fitted on this family", command=command,
                note=_note(good, len(every) - len(good), gpu),
            )
        )  # fmt: skip
    return found


def _note(good: list[dict[str, str]], left_out: int, gpu: str) -> str:
    errors = {_case(row): (itl_ms(row, None)[0] / float(row["median_itl_ms"]) - 1, _batch(row)) for row in good}
    low, bands = 0, []
    for most, name in BANDS:
        mine = [error for error, batch in errors.values() if low < batch <= most]
        if mine:
            bands.append(f"batch {name}: {median(map(abs, mine)):.1%} (bias {median(mine):+.1%}, {len(mine)} rows)")
        low = most
    target = ITL_TARGET if gpu == "H100" else B200_TARGET
    text = f"Median absolute errors of ITL, target {target:.0%}: {'; '.join(bands)}."
    return f"{text} {left_out} rows contradict themselves."


def itl_ms(row: dict[str, str], host_us: int | None) -> tuple[float, str]:
    """A decode step of the mean batch at the mean context, and its command. None: the engine's host time."""
    batch = round(_batch(row))
    context = PROMPTS[row["task"]] + round(float(row["avg_output_len"]) / 2)
    host = "" if host_us is None else f" --host-sequence {host_us}us"
    plan = (
        f"{MODELS[row['model']]} {DEVICES[row['gpu']]} --catalog {CATALOGUE} --tp {row['tp']} --no-async-scheduling "
        f"--max-num-seqs {batch} --batched-tokens {max(batch * context, batch)} --context {context + STEPS} "
        f"--activations reserve{host} {NO_HOPS}"
    )
    found = typed(plan, at_once(batch, context, STEPS))
    return found.tpot_ms, found.command


def _batch(row: dict[str, str]) -> float:
    return float(row["avg_batch"])


def _case(row: dict[str, str]) -> str:
    return f"{row['model'].split('/')[1]}, {row['task']}, TP{row['tp']}, batch {_batch(row):.0f}"
