"""Benchmarks on H100 and B200: rows of the ML.ENERGY leaderboard (vLLM 0.11.1; chat and GPQA).

As the benchmark ran them (its repository, configs/vllm and mlenergy/llm/benchmark.py): all requests at once, so many
running, 8,192 new tokens a step, asynchronous scheduling; ITL is the median over all tokens of the run, throughput that
between the first token of the last request that fits at first and the end of the last one that leaves no slot empty.
Every request has a repetition penalty of 1.1 and top-p 0.95, which vLLM 0.11 applies with kernels of PyTorch, a sort of
the vocabulary among them. No source has their times, so two constants are fitted, never on the model that they are
judged on: device time per step, and per sampled token and entry of the vocabulary.
"""

import csv
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import msgspec

from bench.fidelity.board import Row
from bench.fidelity.typed import CATALOGUE, HERE, NO_HOPS, at_once, call, typed

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
VOCABULARY = {"Llama": 128_256, "Qwen3": 151_936, "gpt-oss": 201_088, "DeepSeek": 129_280}
DEVICES = {"H100": "h100-sxm", "B200": "b200"}
BANDS = ((32, "up to 32"), (128, "33-128"), (512, "129-512"))
STEPS = 8
MOST = 1.3  # batch / ITL / throughput: beyond it a row contradicts itself
EMULATED_REQUESTS = (
    12  # per running sequence at most: GPQA with few sequences would take long, and most is steady by then
)
FITTED_REQUESTS = 8  # per running sequence: most tokens of such a run come at its full batch, few steps have a prefill
ROW_PS = range(200, 801, 10)  # per sampled token and entry of the vocabulary
STEP_US = range(0, 1001, 100)
TARGETS = {("H100", True): (0.08, 0.10), ("B200", True): (0.12, 0.12)}  # ITL, throughput; dense models
EXPERTS_TARGET = (0.15, 0.15)


class Task(NamedTuple):
    """What its requests are like. Only the mean output is published; the rest is assumed."""

    prompt: int  # mean tokens
    prompt_cv: float
    output_cv: float
    requests: int  # of a run of few sequences
    repeats: tuple[tuple[int, int], ...]  # (largest batch, runs through the requests), from the benchmark's sweeps

    def context(self, output: float) -> int:
        """Mean tokens of a running sequence at a random moment: long outputs run longer."""
        return self.prompt + round(output * (1 + self.output_cv**2) / 2)


TASKS = {
    "lm-arena-chat": Task(300, 1.5, 0.7, 1024, ((192, 1), (512, 2))),
    "gpqa": Task(300, 0.5, 0.5, 198, ((128, 1), (256, 2), (384, 3), (512, 4))),
}


class Sampling(NamedTuple):
    """Device time to sample: us per step, ps per token and entry of the vocabulary."""

    step_us: int
    row_ps: int

    def row_us(self, row: "Served") -> float:
        """Per sampled token."""
        return self.row_ps * row.vocabulary / 1e6

    def words(self, row: "Served") -> str:
        """As flags of `stageline plan`."""
        return f" --sampling-step {self.step_us}us --sampling-sequence {self.row_us(row):.1f}us" if any(self) else ""


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
    def vocabulary(self) -> int:
        """Entries of the model's logits."""
        return next(n for name, n in VOCABULARY.items() if self.model.split("/")[1].startswith(name))

    @property
    def requests(self) -> int:
        """Requests of the run."""
        task = TASKS[self.task]
        return task.requests * next(times for most, times in task.repeats if self.batch <= most)

    @property
    def consistent(self) -> bool:
        """Whether batch, ITL and throughput agree."""
        return self.avg_batch / self.median_itl_ms * 1e3 / self.output_tokens_per_s <= MOST

    @property
    def planned(self) -> str:
        """Model, device and division, as words of `stageline plan`."""
        spread = " --enable-expert-parallel" if self.ep > 1 else ""
        model = (DENSE | EXPERTS)[self.model]
        return f"{model} {DEVICES[self.gpu]} --catalog {CATALOGUE} --tp {max(self.tp, self.ep)}{spread}"

    def step(self, data: Path, sampling: Sampling) -> "Emulated":
        """A decode step of the mean batch at the mean context, again and again."""
        context = TASKS[self.task].context(self.avg_output_len)
        plan = (
            f"{self.planned} --max-num-seqs {self.batch} --batched-tokens {self.batch * context} "
            f"--context {context + STEPS} --activations reserve{sampling.words(self)} {NO_HOPS}"
        )
        found = typed(plan, at_once(self.batch, context, STEPS), data=data)
        return Emulated(found.command, found.tpot_ms, self.avg_batch / found.tpot_ms * 1e3)

    def emulated(self, data: Path, sampling: Sampling) -> "Emulated":
        """The whole benchmark; of models with experts a step, since their runs of GPQA would take very long."""
        if not self.dense:
            return self.step(data, sampling)
        task, requests = TASKS[self.task], min(self.requests, EMULATED_REQUESTS * self.batch)
        plan = (
            f"{self.planned} --max-num-seqs {self.batch} --max-num-batched-tokens 8192{sampling.words(self)} {NO_HOPS}"
        )
        lengths = (
            f"input=lognormal({task.prompt},cv={task.prompt_cv}),"
            f"output=lognormal({round(self.avg_output_len)},cv={task.output_cv})"
        )
        return benchmark(plan, f"closed:users={self.batch},requests={requests},{lengths}", self.batch, data)


class Emulated(NamedTuple):
    """What the benchmark reports."""

    command: str
    itl_ms: float
    output_tokens_per_s: float


def benchmark(plan: str, workload: str, batch: int, data: Path) -> Emulated:
    """A run, and its figures as the benchmark takes them. Raises RuntimeError with complaints."""
    with tempfile.TemporaryDirectory() as folder:
        call(f"plan {plan.replace(CATALOGUE, str(HERE / CATALOGUE)).replace('DIR', str(data))} -o {folder}/plan.json")
        printed = json.loads(call(f"run {folder}/plan.json --workload '{workload}' -o {folder}/run --json"))
        with (Path(folder) / "run" / "requests.jsonl").open() as lines:
            requests = [r for r in map(json.loads, lines) if r["last_token_ns"] is not None]
    command = f"stageline plan {plan} -o plan.json && stageline run plan.json --workload '{workload}' -o run"
    return Emulated(command, printed["itl_s"]["p50"] * 1e3, steady_tokens_per_s(requests, batch))


def steady_tokens_per_s(requests: list[dict[str, Any]], batch: int) -> float:
    """Output tokens per second from the first token of request number `batch` until as many are left, plus one.

    A request's tokens count as spread evenly from its first to its last.
    """
    begin = sorted(r["first_token_ns"] for r in requests)[batch - 1]
    end = sorted(r["last_token_ns"] for r in requests)[len(requests) - batch - 2]
    tokens = 0.0
    for r in requests:
        first, last = r["first_token_ns"], r["last_token_ns"]
        tokens += begin <= first <= end
        if last > first:
            tokens += (r["output_tokens"] - 1) * max(0, min(end, last) - max(begin, first)) / (last - first)
    return float(tokens / (end - begin) * 1e9)


def rows(data: Path) -> list[Row]:
    """ITL and throughput of every row that does not contradict itself, by device and kind of model."""
    with (data / "measured" / FILE).open(newline="") as lines:
        every = [msgspec.convert(row, Served, strict=False) for row in csv.DictReader(lines)]
    every = [row for row in every if row.model in DENSE | EXPERTS and row.avg_batch <= BANDS[-1][0]]
    known = [(r, r.step(data, Sampling(0, 0)).itl_ms) for r in every if r.dense and r.gpu == "H100" and r.consistent]
    fitted = {m: _fitted([(r, ms) for r, ms in known if r.model != m]) for m in {r.model for r in every}}
    found: list[Row] = []
    for gpu in DEVICES:
        for dense in (True, False):
            found += _group([r for r in every if r.gpu == gpu and r.dense == dense], fitted, data)
    return found


def _fitted(known: Iterable[tuple[Served, float]]) -> Sampling:
    """The constants with the least mean square error of ITL, of rows and their decode steps without sampling."""
    few = [(r, ms) for r, ms in known if r.requests >= FITTED_REQUESTS * r.batch]

    def error(sampling: Sampling) -> float:
        return fmean(
            ((ms + sampling.step_us / 1e3 + r.batch * sampling.row_us(r) / 1e3) / r.median_itl_ms - 1) ** 2
            for r, ms in few
        )

    return min((Sampling(step, row) for step in STEP_US for row in ROW_PS), key=error)


def _group(every: list[Served], fitted: Mapping[str, Sampling], data: Path) -> list[Row]:
    good = [row for row in every if row.consistent]
    gpu, dense = every[0].gpu, every[0].dense
    system = f"ML.ENERGY, {gpu}, {'dense models' if dense else 'models with experts'}"
    found: list[tuple[Served, Row, Row]] = []
    for row in good:
        try:
            ours = row.emulated(data, fitted[row.model])
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
                ("ITL", "ms", row.median_itl_ms, ours.itl_ms),
                ("output", "tok/s", row.output_tokens_per_s, ours.output_tokens_per_s),
            )
        ]  # fmt: skip
        found.append((row, pair[0], pair[1]))
    targets = TARGETS.get((gpu, dense), EXPERTS_TARGET)
    notes = _notes(found, targets, fitted)
    notes.append(
        f"{len(every) - len(good)} rows contradict themselves, {len(good) - len(found)} do not fit as planned."
    )
    pairs = [row for _, itl, rate in found for row in (itl, rate)]
    return [msgspec.structs.replace(row, note=notes[i % len(notes)]) for i, row in enumerate(pairs)]


def _notes(
    found: list[tuple[Served, Row, Row]], targets: tuple[float, float], fitted: Mapping[str, Sampling]
) -> list[str]:
    """Median errors by task and band of batch."""
    notes, low = [], 0
    for most, name in BANDS:
        mine = [(row, itl, rate) for row, itl, rate in found if low < row.avg_batch <= most]
        low = most
        for i, metric in enumerate(("ITL", "output")):
            errors = {row: pair[i].error for row, *pair in mine}
            if errors:
                middle = median(map(abs, errors.values()))
                verdict = "met" if middle <= targets[i] else "missed"
                tasks = {task: [abs(e) for row, e in errors.items() if row.task == task] for task in TASKS}
                apart = ", ".join(f"{task} {median(few):.1%}" for task, few in tasks.items() if few)
                notes.append(
                    f"{metric}, batch {name}: median absolute error {middle:.1%} (target {targets[i]:.0%}: "
                    f"{verdict}), bias {median(errors.values()):+.1%}, {len(errors)} rows; {apart}."
                )
    used = sorted({fitted[row.model] for row, _, _ in found})
    constants = "; ".join(f"{each.step_us} us and {each.row_ps} ps" for each in used)
    notes.append(
        "Sampling, per step and per token and entry of the vocabulary, fitted on dense models on H100 without the "
        f"model in question: {constants}."
    )
    whole = "Whole runs, throughput from run/requests.jsonl as the benchmark takes it"
    how = whole if found[0][0].dense else "Decode steps only"
    notes.append(f"{how}. Prompts of 300 tokens and the spread of lengths are assumed, not published.")
    return notes
