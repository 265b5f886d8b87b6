"""Decode on H100 and B200: rows of the ML.ENERGY leaderboard (vLLM; chat and GPQA).

One constant is fitted, the host's time per sequence and step, and never on the model that it is judged on.
"""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

import msgspec

from bench.fidelity.board import Row
from bench.fidelity.typed import CATALOGUE, NO_HOPS, Typed, at_once, typed

FILE = "mlenergy_v3.csv"
DENSE = {  # models of the leaderboard, and ours
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.1-70b",
    "Qwen/Qwen3-8B": "qwen3-8b",
    "Qwen/Qwen3-14B": "qwen3-14b",
    "Qwen/Qwen3-32B": "qwen3-32b",
}
EXPERTS = {
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3-30b-a3b",
    "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8": "DIR/configs/Qwen--Qwen3-235B-A22B-FP8.json",
    "openai/gpt-oss-20b": "DIR/configs/openai--gpt-oss-20b.json",
    "deepseek-ai/DeepSeek-V3.1": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-v3",
}
DEVICES = {"H100": "h100-sxm", "B200": "b200"}
PROMPTS = {"lm-arena-chat": 100, "gpqa": 300}  # tokens; not published, assumed
BANDS = ((32, "up to 32"), (128, "33-128"), (512, "129-512"))
STEPS = 8
MOST = 1.3  # batch / ITL / throughput: beyond it a row contradicts itself
HOST_US = range(0, 121, 5)
TARGETS = {("H100", True): (0.08, 0.10), ("B200", True): (0.12, 0.12)}  # ITL, throughput; dense models
EXPERTS_TARGET = (0.15, 0.15)


class Served(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A row of the leaderboard."""

    model: str
    task: str
    gpu: str
    num_gpus: int
    tp: int
    ep: int
    avg_batch: float
    avg_output_len: float
    median_itl_ms: float
    output_tokens_per_s: float

    @property
    def dense(self) -> bool:
        """Without routed experts."""
        return self.model in DENSE

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return round(self.avg_batch)

    @property
    def consistent(self) -> bool:
        """Whether batch, ITL and throughput agree."""
        return self.avg_batch / self.median_itl_ms * 1e3 / self.output_tokens_per_s <= MOST

    def emulated(self, data: Path, host_us: int) -> Typed:
        """A decode step of the mean batch at the mean context."""
        context = PROMPTS[self.task] + round(self.avg_output_len / 2)
        spread = " --enable-expert-parallel" if self.ep > 1 else ""
        plan = (
            f"{(DENSE | EXPERTS)[self.model]} {DEVICES[self.gpu]} --catalog {CATALOGUE} --tp {max(self.tp, self.ep)}"
            f"{spread} --no-async-scheduling --max-num-seqs {self.batch} --batched-tokens {self.batch * context} "
            f"--context {context + STEPS} --activations reserve --host-sequence {host_us}us {NO_HOPS}"
        )
        return typed(plan, at_once(self.batch, context, STEPS), data=data)


def rows(data: Path) -> list[Row]:
    """ITL and throughput of every row that does not contradict itself, by device and kind of model."""
    with (data / "measured" / FILE).open(newline="") as lines:
        every = [msgspec.convert(row, Served, strict=False) for row in csv.DictReader(lines)]
    every = [row for row in every if row.model in DENSE | EXPERTS and row.avg_batch <= BANDS[-1][0]]
    host_us = {model: _fitted([r for r in every if r.model != model], data) for model in {r.model for r in every}}
    found: list[Row] = []
    for gpu in DEVICES:
        for dense in (True, False):
            found += _group([r for r in every if r.gpu == gpu and r.dense == dense], host_us, data)
    return found


def _fitted(every: Iterable[Served], data: Path) -> int:
    """The host's time per sequence with the least median error over the dense models on H100 among these rows."""
    known = [(r, r.emulated(data, 0).tpot_ms) for r in every if r.dense and r.gpu == "H100" and r.consistent]

    def error(host_us: int) -> float:
        return median(abs((bare + r.batch * host_us / 1e3) / r.median_itl_ms - 1) for r, bare in known)

    return min(HOST_US, key=error)


def _group(every: list[Served], host_us: Mapping[str, int], data: Path) -> list[Row]:
    good = [row for row in every if row.consistent]
    gpu, dense = every[0].gpu, every[0].dense
    system = f"ML.ENERGY, {gpu}, {'dense models' if dense else 'models with experts'}"
    found: list[tuple[Served, Row, Row]] = []
    for row in good:
        try:
            ours = row.emulated(data, host_us[row.model])
        except RuntimeError:  # it does not fit as we plan it
            continue
        shape = f"EP{row.ep}" if row.ep > 1 else f"TP{row.tp}"
        case = f"{row.model.split('/')[1]}, {row.task}, {shape}, batch {row.batch}"
        pair = [
            Row(
                system=system, case=case, metric=metric, unit=unit, measured=real, emulated=emulated,
                made="fitted on this family", command=ours.command,
            )
            for metric, unit, real, emulated in (
                ("ITL", "ms", row.median_itl_ms, ours.tpot_ms),
                ("output", "tok/s", row.output_tokens_per_s, row.avg_batch / ours.tpot_ms * 1e3),
            )
        ]  # fmt: skip
        found.append((row, pair[0], pair[1]))
    targets = TARGETS.get((gpu, dense), EXPERTS_TARGET)
    notes = _notes(found, targets, host_us)
    notes.append(
        f"{len(every) - len(good)} rows contradict themselves, {len(good) - len(found)} do not fit as planned."
    )
    pairs = [row for _, itl, rate in found for row in (itl, rate)]
    return [msgspec.structs.replace(row, note=notes[i % len(notes)]) for i, row in enumerate(pairs)]


def _notes(found: list[tuple[Served, Row, Row]], targets: tuple[float, float], host_us: Mapping[str, int]) -> list[str]:
    """Median errors by band of batch."""
    notes, low = [], 0
    for most, name in BANDS:
        mine = [(itl, rate) for row, itl, rate in found if low < row.avg_batch <= most]
        low = most
        for i, metric in enumerate(("ITL", "output")):
            errors = [pair[i].error for pair in mine]
            if errors:
                middle = median(map(abs, errors))
                verdict = "met" if middle <= targets[i] else "missed"
                notes.append(
                    f"{metric}, batch {name}: median absolute error {middle:.1%} (target {targets[i]:.0%}: {verdict}), "
                    f"bias {median(errors):+.1%}, {len(errors)} rows."
                )
    used = sorted({host_us[row.model] for row, _, _ in found})
    notes.append(
        f"Host time per sequence and step, fitted without the model in question: {', '.join(map(str, used))} us. "
        f"Prompts of {PROMPTS['lm-arena-chat']} and {PROMPTS['gpqa']} tokens (not published); decode steps only."
    )
    return notes
