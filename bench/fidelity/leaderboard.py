"""The ML.ENERGY leaderboard's rows, and the benchmark behind them as commands (vLLM 0.11.1; chat and GPQA).

As the benchmark ran (its repository, configs/vllm and mlenergy/llm/benchmark.py): all requests at once, so many
running, 8,192 new tokens a step, asynchronous scheduling, one tensor rank per GPU, over which experts are spread. ITL
is the median over all tokens of the run, throughput that between the first token of the last request that fits at
first and the end of the last one that leaves no slot empty.
"""

import csv
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

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
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "DIR/configs/meta-llama--Llama-4-Scout-17B-16E-Instruct.json",
    "deepseek-ai/DeepSeek-V3.1": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-v3",
}
DEVICES = {"H100": "h100-sxm", "B200": "b200"}
# That release runs experts in block FP8 in DeepGEMM (vLLM#29346) unless asked otherwise; DeepSeek's environment
# asks for FlashInfer's kernels. No source times DeepGEMM's experts on a B200.
DEEP_GEMM = {"H100": "h100-deepgemm"}
BLOCK_FP8 = "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8"
TOP_K = "Qwen/"  # whose generation_config.json has top_k 20; those of Llama, gpt-oss and DeepSeek have none
POWER_W = {"H100": 700, "B200": 1000}  # limit of a GPU (NVIDIA's data sheets)
LARGEST = 512  # sequences of a step
STEPS = 8
MOST = 1.3  # batch / ITL / throughput: beyond it a row contradicts itself
LONG_TOKENS = 4000  # mean output: a run of longer ones takes long,
STEADY_REQUESTS = 6  # and with so many per running sequence nearly all of it is decode steps of a full batch
EMULATED_REQUESTS = 8  # per running sequence at most
EMULATED_TOKENS = 2_000_000  # output of a run at most


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
    """Device time to sample, in us: per step, and per token."""

    step_us: int
    token_us: int

    @property
    def words(self) -> str:
        """As flags of `stageline plan`."""
        return f" --sampling-step {self.step_us}us --sampling-sequence {self.token_us}us" if any(self) else ""


class Served(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A row of the leaderboard."""

    model: str
    task: str
    gpu: str
    num_gpus: int
    max_num_seqs: int
    tp: int
    ep: int
    avg_batch: float
    avg_output_len: float
    median_itl_ms: float
    output_tokens_per_s: float
    avg_power_w: float  # of all GPUs

    @property
    def dense(self) -> bool:
        """Without routed experts."""
        return self.model in DENSE

    @property
    def top_k(self) -> bool:
        """Whether vLLM samples from the most likely tokens alone, as the model's own defaults say."""
        return self.model.startswith(TOP_K)

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return round(self.avg_batch)

    @property
    def requests(self) -> int:
        """Requests of the run."""
        task = TASKS[self.task]
        return task.requests * next(times for most, times in task.repeats if self.batch <= most)

    @property
    def stepwise(self) -> bool:
        """Whether a run would be long, and either nearly all decode steps of a full batch or beyond all patience."""
        steady, tokens = self.requests >= STEADY_REQUESTS * self.batch, self.requests * self.avg_output_len
        return self.avg_output_len > LONG_TOKENS and (steady or tokens > EMULATED_TOKENS)

    @property
    def consistent(self) -> bool:
        """Whether batch, ITL and throughput agree."""
        return self.avg_batch / self.median_itl_ms * 1e3 / self.output_tokens_per_s <= MOST

    @property
    def idle(self) -> bool:
        """Whether the GPUs draw less than half of their limit."""
        return self.avg_power_w < self.num_gpus * POWER_W[self.gpu] / 2

    @property
    def planned(self) -> str:
        """Model, device and division, as words of `stageline plan`."""
        spread = " --enable-expert-parallel" if self.ep > 1 else ""
        model = (DENSE | EXPERTS)[self.model]
        device = (DEVICES | DEEP_GEMM if self.model == BLOCK_FP8 else DEVICES)[self.gpu]
        return f"{model} {device} --catalog {CATALOGUE} --tp {max(self.tp, self.ep)}{spread}"

    def step(self, data: Path, sampling: Sampling) -> "Emulated":
        """A decode step of the mean batch at the mean context, again and again."""
        context = TASKS[self.task].context(self.avg_output_len)
        plan = (
            f"{self.planned} --max-num-seqs {self.batch} --batched-tokens {self.batch * context} "
            f"--context {context + STEPS} --activations reserve{sampling.words} {NO_HOPS}"
        )
        found = typed(plan, at_once(self.batch, context, STEPS), data=data)
        return Emulated(found.command, found.tpot_ms, self.avg_batch / found.tpot_ms * 1e3)

    def emulated(self, data: Path, sampling: Sampling) -> "Emulated":
        """The whole benchmark, or a step instead."""
        if self.stepwise:
            return self.step(data, sampling)
        task = TASKS[self.task]
        requests = min(self.requests, EMULATED_REQUESTS * self.batch)
        plan = f"{self.planned} --max-num-seqs {self.batch} --max-num-batched-tokens 8192{sampling.words} {NO_HOPS}"
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


def read(data: Path) -> list[Served]:
    """The rows of models that we can plan."""
    with (data / "measured" / FILE).open(newline="") as lines:
        every = [msgspec.convert(row, Served, strict=False) for row in csv.DictReader(lines)]
    return [row for row in every if row.model in DENSE | EXPERTS and row.avg_batch <= LARGEST]
