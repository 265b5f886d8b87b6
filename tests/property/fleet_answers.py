"""What `search` answers about prefill and decode in one pool or two, against the whole grid on random questions."""

import random
from itertools import product
from typing import NamedTuple

import stageline
from stageline.api.fleet_file import parse_transfer
from stageline.api.fleet_space import FleetSpace
from stageline.api.question import Question
from stageline.api.ranking import cheapest, score
from stageline.api.scoreboard import Try
from stageline.api.search_space import Space
from stageline.api.trials import Trial, run_trial
from stageline.api.workload_totals import workload_totals
from stageline.report.slo import parse_slo
from tests.property.answers import CLOSE, OPEN, work

REQUESTS = 180
SIZES = ((4096, 32), (1024, 64), (512, 128))  # prefill-heavy to decode-heavy
LOADS = (0.4, 0.8)  # of the most that a middling division serves
TTFT, TPOT = (0.8, 3.0), (0.3, 1.0)  # of its p99 at that load: two pools trade the one for the other
TRANSFERS = (
    "bandwidth=2GB/s",
    "bandwidth=50GB/s,latency=20us",
    "bandwidth=12GB/s,order=destination-first,streamed=true",
)


class FleetQuestion(NamedTuple):
    """A random question."""

    question: Question
    transfer: str

    def ask(self) -> stageline.SearchResult:
        """Asks it, as users do."""
        q = self.question
        return stageline.search(
            q.models[0], q.device_names[0], devices=q.devices, workload=q.workload, requests=q.requests, slo=q.slo,
            vary=q.vary, disaggregate=self.transfer, headroom=False,
        )  # fmt: skip


def fleet_question(number: int, devices: int) -> FleetQuestion:
    """Question `number`: a load near the limit of a middling division in one pool, with an objective that is drawn
    around its latencies, or a closed loop without an objective.
    """
    draw = random.Random(f"fleets {number}")
    model, device = draw.choice(["llama-3.1-8b", "qwen2.5-7b"]), draw.choice(["h100-sxm", "a100-80g"])
    size, out = draw.choice(SIZES)
    sizes, transfer = f"input={size},output={out}", draw.choice(TRANSFERS)
    middling = stageline.plan_model(model, device, replicas=devices)
    workload, slo = f"closed:users={8 * devices},{sizes}", None
    if draw.random() < OPEN:
        most = stageline.run(middling, f"{workload},requests={REQUESTS}").summary.requests_per_s
        workload = f"poisson:rate={round(most * draw.uniform(*LOADS), 1)},{sizes}"
        seen = stageline.run(middling, f"{workload},requests={REQUESTS}").summary
        pairs = ((seen.ttft_s, TTFT), (seen.tpot_s, TPOT))
        ttft, tpot = (round((p.p99 or 0.0) * draw.uniform(*share) * 1e6) for p, share in pairs)
        slo = f"ttft={ttft}us,tpot={tpot}us"
    return FleetQuestion(
        Question(
            models=(model,), device_names=(device,), devices=(devices,), workload=workload, requests=REQUESTS, slo=slo,
            vary={"max_num_batched_tokens": [1024, 8192]}, disaggregate=parse_transfer(transfer, "transfer"),
        ),
        transfer,
    )  # fmt: skip


def search_finds_the_best_fleet(number: int, devices: int = 6, part: float = 1.0) -> tuple[Trial, Trial]:
    """The search against the grid of both kinds, or a seeded part of its points, on the whole workload.

    Bounds leave nothing out of the grid, and what they would leave out must miss the objective.
    """
    asked = fleet_question(number, devices)
    found = asked.ask()
    points, trials = _grid(asked.question, random.Random(number), part)
    best, wanted = found.best(), cheapest(trials)
    assert best is not None and wanted is not None
    assert points == found.combinations
    if part == 1:
        known = {t.key: t for t in trials}
        assert all(known[t.key] == t for t in found.trials), "a search runs what the grid runs"
        assert work(found.trials) < work(trials)
        assert best.slo_met == wanted.slo_met, (best, wanted)
    if best.slo_met and not wanted.slo_met:
        return best, wanted
    assert best.slo_met == wanted.slo_met, (best, wanted)
    figure = 1 if best.slo_met is not None else 0
    ours, theirs = score(best)[figure], score(wanted)[figure]
    assert ours >= CLOSE * theirs, (
        f"{best.name} {best.settings}: {ours:.4g}; {wanted.name} {wanted.settings}: {theirs:.4g}"
    )
    return best, wanted


def _grid(question: Question, draw: random.Random, part: float) -> tuple[int, list[Trial]]:
    """How many points there are, and the trials of those that were drawn and can run."""
    totals, slo = workload_totals(question.open()), parse_slo(question.slo) if question.slo else None
    plans = Space(question)
    assert question.disaggregate is not None
    count, trials = 0, []
    for space in (plans, FleetSpace(question, plans, question.disaggregate)):
        designs = list(space.designs(question.models[0], question.device_names[0]))
        tries = (Try(d, p) for d in range(len(designs)) for p in product(*map(range, space.sizes())))
        points = list(dict.fromkeys(space.same(t, designs) for t in tries))  # type: ignore[arg-type]
        count += len(points)
        for t in points if part == 1 else draw.sample(points, max(1, int(len(points) * part))):
            made = space.candidate(designs[t.design], t.point, question.requests, totals, None)  # type: ignore[arg-type]
            if isinstance(made, str):
                continue
            trial = run_trial(made)
            trials.append(trial)
            bound = space.candidate(designs[t.design], t.point, question.requests, totals, slo)  # type: ignore[arg-type]
            assert not (isinstance(bound, str) and trial.slo_met), (trial, bound)
    return count, trials
