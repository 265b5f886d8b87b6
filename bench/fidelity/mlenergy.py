"""Benchmarks on H100 and B200: rows of the ML.ENERGY leaderboard, emulated as whole runs.

Every request has temperature 0.8 and top-p 0.95 (the benchmark's mlenergy/llm/benchmark.py), and models of Qwen3 also
top-k 20, which vLLM takes from their generation_config.json. vLLM 0.11 applies them with kernels of PyTorch, a sort of
the vocabulary among them. No source has their times, so three constants are fitted to dense models on H100, never to
the model that they are judged on: device time per step, and per sampled token with and without top-k.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench.fidelity import leaderboard
from bench.fidelity.board import Row
from bench.fidelity.leaderboard import DEVICES, TASKS, Emulated, Sampling, Served

BANDS = ((32, "up to 32"), (128, "33-128"), (leaderboard.LARGEST, "129-512"))
FITTED_REQUESTS = 8  # per running sequence: most tokens of such a run come at its full batch, few steps have a prefill
TOKEN_US = range(20, 101)  # per sampled token
STEP_US = range(0, 1001, 100)
TARGETS = {("H100", True): (0.08, 0.10), ("B200", True): (0.12, 0.12)}  # ITL, throughput; dense models
EXPERTS_TARGET = (0.15, 0.15)
H100S_PER_B200 = 2  # no more bandwidth (6.7 against 8 TB/s) and no more compute (1,979 against 2,250 TFLOPS in bf16)
PROCESSES = 2


def rows(data: Path) -> list[Row]:
    """ITL and throughput of every row that does not contradict itself, by device and kind of model."""
    every = leaderboard.read(data)
    with ProcessPoolExecutor(PROCESSES) as pool:
        known = [row for row in every if row.dense and row.gpu == "H100" and row.consistent]
        steps = list(zip(known, pool.map(partial(_step_ms, data=data), known), strict=True))
        constants = {
            row.model: fitted((other, ms) for other, ms in steps if other.model != row.model)[row.top_k]
            for row in {row.model: row for row in every}.values()
        }
        good = [row for row in every if row.consistent]
        runs = pool.map(_emulated, good, [data] * len(good), [constants[row.model] for row in good])
        found = {row: run for row, run in zip(good, runs, strict=True) if run}
    waiting = not_bound(good)
    groups = [
        [row for row in every if (row.gpu, row.dense) == (gpu, dense)] for gpu in DEVICES for dense in (True, False)
    ]
    return [row for group in groups for row in _group(group, found, constants, waiting)]


def _step_ms(row: Served, data: Path) -> float:
    """Without sampling."""
    return row.step(data, Sampling(0, 0)).itl_ms


def _emulated(row: Served, data: Path, sampling: Sampling) -> Emulated | None:
    """None if it does not fit as we plan it."""
    try:
        return row.emulated(data, sampling)
    except RuntimeError:
        return None


def not_bound(every: Iterable[Served]) -> set[Served]:
    """Rows whose devices wait for what no specification of theirs says: shown, and not counted.

    Their GPUs draw less than half of their limit, or those of B200 take longer than H100s of no more bandwidth and
    compute took for the same model, task and batch.
    """
    every = list(every)
    h100 = [row for row in every if row.gpu == "H100"]
    return {
        row for row in every if row.idle or (row.gpu == "B200" and any(_less_and_faster(less, row) for less in h100))
    }


def _less_and_faster(less: Served, row: Served) -> bool:
    same = (less.model, less.task, less.max_num_seqs) == (row.model, row.task, row.max_num_seqs)
    return same and less.num_gpus <= H100S_PER_B200 * row.num_gpus and less.median_itl_ms < row.median_itl_ms


def fitted(known: Iterable[tuple[Served, float]]) -> dict[bool, Sampling]:
    """The constants with and without top-k that have the least square error of ITL, with one time per step.

    `known`: rows and their decode steps without sampling.
    """
    few = [(r, ms) for r, ms in known if r.requests >= FITTED_REQUESTS * r.batch]
    kinds = {r.top_k for r, _ in few}

    def best(step: int, *, top_k: bool) -> tuple[float, int]:
        mine = [(r, ms + step / 1e3) for r, ms in few if r.top_k == top_k]
        return min(
            (sum(((ms + r.batch * token / 1e3) / r.median_itl_ms - 1) ** 2 for r, ms in mine), token)
            for token in TOKEN_US
        )

    found = [(step, {kind: best(step, top_k=kind) for kind in kinds}) for step in STEP_US]
    step, tokens = min(found, key=lambda each: sum(error for error, _ in each[1].values()))
    return {kind: Sampling(step, token) for kind, (_, token) in tokens.items()}


def _group(
    every: list[Served], emulated: Mapping[Served, Emulated], constants: Mapping[str, Sampling], waiting: set[Served]
) -> list[Row]:
    """Rows of one device and kind of model; those that their devices do not bind come last, and are not counted."""
    system = f"ML.ENERGY, {every[0].gpu}, {'dense models' if every[0].dense else 'models with experts'}"
    good = [row for row in every if row.consistent]
    fits = {row: _pair(row, emulated[row], system) for row in good if row in emulated}
    counted = {row: pair for row, pair in fits.items() if row not in waiting}
    apart = [pair for row, pair in fits.items() if row in waiting]
    notes = _notes(counted, TARGETS.get((every[0].gpu, every[0].dense), EXPERTS_TARGET), constants)
    notes.append(f"{len(every) - len(good)} rows contradict themselves, {len(good) - len(fits)} do not fit as planned.")
    if apart:
        notes += [_apart_note(apart), _all_note(list(fits.values()))]
    pairs = [row for pair in [*counted.values(), *apart] for row in pair]
    return [msgspec.structs.replace(row, note=notes[i % len(notes)]) for i, row in enumerate(pairs)]


def case(row: Served) -> str:
    """Model, task, division and batch."""
    shape = f"EP{row.ep}" if row.ep > 1 else f"TP{row.tp}"
    return f"{row.model.split('/')[1]}, {row.task}, {shape}, batch {row.batch}"


def _pair(row: Served, ours: Emulated, system: str) -> tuple[Row, Row]:
    """ITL and throughput."""
    itl = Row(
        system=system, case=case(row), metric="ITL", unit="ms", measured=row.median_itl_ms, emulated=ours.itl_ms,
        made="fitted on this family", command=ours.command,
    )  # fmt: skip
    rate = msgspec.structs.replace(
        itl, metric="output", unit="tok/s", measured=row.output_tokens_per_s, emulated=ours.output_tokens_per_s
    )
    return itl, rate


def _apart_note(apart: list[tuple[Row, Row]]) -> str:
    names = "; ".join(f"{itl.case} ({itl.measured:.0f} ms, emulated {itl.emulated:.0f})" for itl, _ in apart)
    return (
        f"Not counted, {len(apart)} rows that their devices do not bind: GPUs drew less than half of their limit, or "
        f"took longer than H100s with no more bandwidth and compute in total: {names}."
    )


def _all_note(pairs: list[tuple[Row, Row]]) -> str:
    itl, rate = (median(abs(pair[i].error) for pair in pairs) for i in (0, 1))
    return f"With them, over all batches: median absolute error {itl:.1%} ITL, {rate:.1%} output."


def _notes(
    found: Mapping[Served, tuple[Row, Row]], targets: tuple[float, float], constants: Mapping[str, Sampling]
) -> list[str]:
    """Median errors by task and band of batch."""
    notes, low = [], 0
    for most, name in BANDS:
        mine = {row: pair for row, pair in found.items() if low < row.avg_batch <= most}
        low = most
        for i, metric in enumerate(("ITL", "output")):
            errors = {row: pair[i].error for row, pair in mine.items()}
            if errors:
                middle = median(map(abs, errors.values()))
                verdict = "met" if middle <= targets[i] else "missed"
                tasks = {task: [abs(e) for row, e in errors.items() if row.task == task] for task in TASKS}
                apart = ", ".join(f"{task} {median(few):.1%}" for task, few in tasks.items() if few)
                notes.append(
                    f"{metric}, batch {name}: median absolute error {middle:.1%} (target {targets[i]:.0%}: "
                    f"{verdict}), bias {median(errors.values()):+.1%}, {len(errors)} rows; {apart}."
                )
    notes.append(_models_note(found))
    used = "; ".join(f"{each.step_us} and {each.token_us} us" for each in sorted({constants[r.model] for r in found}))
    notes.append(
        "Sampling, per step and per token, fitted on dense models on H100 without the model in question, and to those "
        f"with top-k if it has top-k: {used}."
    )
    notes.append(
        "Whole runs, throughput from run/requests.jsonl as the benchmark takes it; where outputs are longer than "
        f"{leaderboard.LONG_TOKENS:,} tokens, decode steps if a run has {leaderboard.STEADY_REQUESTS} requests or more "
        f"per running sequence, or more than {leaderboard.EMULATED_TOKENS:,} tokens. Prompts of 300 tokens and the "
        "spread of lengths are assumed, not published."
    )
    return notes


def _models_note(found: Mapping[Served, tuple[Row, Row]]) -> str:
    """What is left, model by model."""
    parts = []
    for model in dict.fromkeys(row.model for row in found):
        mine = [pair for row, pair in found.items() if row.model == model]
        itl, rate = (median(pair[i].error for pair in mine) for i in (0, 1))
        parts.append(f"{model.split('/')[1]} {itl:+.0%} and {rate:+.0%} ({len(mine)})")
    return f"Bias of ITL and output by model (rows): {'; '.join(parts)}."
