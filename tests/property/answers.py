"""What `search` and `tune` answer, against brute force on random questions."""

import random
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import stageline
from stageline.api.exploring import measured
from stageline.api.question import Question
from stageline.api.ranking import cheapest, score
from stageline.api.scoreboard import Try
from stageline.api.search_space import Space
from stageline.api.trials import Trial, run_trial
from stageline.api.workload_totals import workload_totals
from stageline.report.slo import parse_slo

CLOSE = 0.99  # what a search may lose of the grid's best: its margin, or its tokens per second
SHARE = 0.1  # of the grid's CPU that a search may take
LEAST_POINTS = 300
REQUESTS = 800
OPEN = 0.7  # of the questions have arrivals at a rate, and an objective
USERS = (24, 48, 96)
LOADS = (0.5, 0.9)  # of the most that a middling division serves
BOUNDS = (0.6, 1.2)  # of its p99 at that load
MEANT = 0.5  # of the requests are good at the grid's best: where hardly any is, a question asks nothing


class SearchQuestion(NamedTuple):
    """A random question; `vary` has four flags."""

    model: str
    device: str
    devices: int
    workload: str
    requests: int
    slo: str | None
    vary: dict[str, list[Any]]

    def ask(self, **more: Any) -> stageline.SearchResult:
        """Asks it."""
        return stageline.search(
            self.model, self.device, devices=self.devices, workload=self.workload, requests=self.requests,
            slo=self.slo, vary=self.vary, **more,
        )  # fmt: skip


def search_question(number: int) -> SearchQuestion:
    """Question `number`: a load near the limit of the devices, or without an objective.

    A closed loop tells the limit of a middling division; its latencies at the drawn share of that load are what the
    objective is drawn from, so that good settings keep it and bad ones do not, whatever the devices can do.
    """
    draw = random.Random(number)
    model, device = draw.choice(["llama-3.1-8b", "qwen2.5-7b"]), draw.choice(["h100-sxm", "a100-80g"])
    size, out = draw.choice([(512, 32), (1024, 32), (2048, 16)])
    sizes = f"input={size},output={out}"
    middling = stageline.plan_model(model, device, tensor_parallel=2, replicas=2)
    workload, slo = f"closed:users={draw.choice(USERS)},{sizes}", None
    if draw.random() < OPEN:
        most = stageline.run(middling, f"{workload},requests={REQUESTS}").summary.requests_per_s
        rate = round(most * draw.uniform(*LOADS), 1)
        workload = draw.choice([f"poisson:rate={rate},{sizes}", f"gamma:rate={rate},cv=2,{sizes}"])
        seen = stageline.run(middling, f"{workload},requests={REQUESTS}").summary
        ttft, tpot = (round((p.p99 or 0.0) * draw.uniform(*BOUNDS) * 1e6) for p in (seen.ttft_s, seen.tpot_s))
        slo = f"ttft={ttft}us,tpot={tpot}us"
    return SearchQuestion(
        model=model,
        device=device,
        devices=4,
        workload=workload,
        requests=REQUESTS,
        slo=slo,
        vary={
            "batched_tokens": [256, 512, 1024, 2048, 8192],
            "balance": ["round-robin", "least-loaded"],
            "max_num_seqs": [8, 32, 128, 512],
            "kv": ["grow", "reserve"],
        },
    )


class Grid(NamedTuple):
    """Points of a question's grid on the whole workload, none of them left out by a bound."""

    points: int  # of the whole grid
    trials: list[Trial]
    forbidden: set[str]  # keys of what a bound would leave out
    spent_s: float  # CPU


def search_finds_the_grids_best(number: int, part: float = 1.0) -> tuple[Trial, Trial, float]:
    """The search against the grid, or a seeded part of its points; both in this process.

    The work of both is counted in microbatches and requests; against the whole grid CPU is measured, too.
    """
    asked = search_question(number)
    with tempfile.TemporaryDirectory() as directory:
        kept = Path(directory, "trials.jsonl")
        started = time.process_time()
        found = asked.ask(headroom=False, resume=kept)
        spent_s = time.process_time() - started
        ran = [msgspec.json.decode(line, type=Trial) for line in kept.read_bytes().splitlines()]
    grid = run_grid(asked, random.Random(number), part)
    best, wanted = found.best(), cheapest(grid.trials)
    assert best is not None and wanted is not None
    assert grid.points == found.combinations >= LEAST_POINTS
    assert part < 1 or wanted.attainment is None or wanted.attainment >= MEANT, wanted
    _as_good(best, wanted, whole=part == 1)
    assert not [t for t in grid.trials if t.slo_met and t.key in grid.forbidden], (
        "a bound leaves out what meets the objective"
    )
    whole = len(grid.trials) / grid.points
    share = work(ran) / work(grid.trials) * whole
    assert share <= SHARE, f"{share:.1%} of the work of {grid.points} points"
    if part == 1:
        share = spent_s / grid.spent_s
        assert share <= SHARE, f"{share:.1%} of the CPU of {grid.points} points"
    return best, wanted, share


def run_grid(asked: SearchQuestion, draw: random.Random, part: float) -> Grid:
    """Runs the points."""
    question = Question(
        models=(asked.model,), device_names=(asked.device,), devices=(asked.devices,), workload=asked.workload,
        requests=asked.requests, slo=asked.slo, vary=asked.vary,
    )  # fmt: skip
    started = time.process_time()
    space, totals = Space(question), workload_totals(question.open())
    designs = list(space.designs(asked.model, asked.device))
    settings = list(product(*map(range, space.sizes())))
    points = list(dict.fromkeys(space.same(Try(d, p), designs) for d in range(len(designs)) for p in settings))
    slo = parse_slo(asked.slo) if asked.slo else None
    trials, forbidden = [], set[str]()
    for number, point in points if part == 1 else draw.sample(points, int(len(points) * part)):
        design = designs[number]
        candidate = space.candidate(design, point, asked.requests, totals, None)
        assert not isinstance(candidate, str), candidate
        trials.append(run_trial(candidate))
        if isinstance(space.candidate(design, point, asked.requests, totals, slo), str):
            forbidden.add(candidate.key())
    return Grid(len(points), trials, forbidden, time.process_time() - started)


def work(trials: Sequence[Trial]) -> float:
    """Of all trials, as a search counts it."""
    return sum(measured(trial).work for trial in trials)


def _as_good(best: Trial, wanted: Trial, *, whole: bool) -> None:
    """What is best of a part of the grid may be worse, but no better."""
    if not whole and best.slo_met and not wanted.slo_met:
        return
    assert best.slo_met == wanted.slo_met, (best, wanted)
    assert best.devices == wanted.devices
    figure = 1 if best.slo_met is not None else 0
    ours, theirs = score(best)[figure], score(wanted)[figure]
    assert ours >= CLOSE * theirs, (
        f"{best.name} {best.settings}: {ours:.4g}; {wanted.name} {wanted.settings}: {theirs:.4g}"
    )
