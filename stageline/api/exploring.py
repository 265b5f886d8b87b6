"""The course of a search: what costs least first, each cost by halving, then the room that the answer leaves."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from stageline.api.halving import Distinct, Halving, lengths
from stageline.api.launch_text import LaunchTexts
from stageline.api.launching import Answer, launch_texts
from stageline.api.question import Question
from stageline.api.ranking import cheapest, hopeless, score, with_cost, with_loss
from stageline.api.resuming import CountedRuns, Runs
from stageline.api.robustness import Robustness, robustness
from stageline.api.scoreboard import Measured, Score, Try
from stageline.api.search_space import Design, Skipped, Space
from stageline.api.trials import Candidate, Trial
from stageline.api.workload_totals import workload_totals
from stageline.plan.replicas import with_replicas
from stageline.report.slo import Slo, parse_slo

LEAST_SHORT = 64  # requests of the shortest trial
RESIDENCES = 2  # a short trial lasts about so many stays of a request
REQUEST_WORK = 6  # running a request takes about 90 us of a core, a microbatch 15 us
USERS = 2  # a short trial of a closed loop has at least so many requests of every user
_HOPELESS = (
    "all settings but those of one full trial: the best on a quarter of the workload misses the objective by far "
    "(--every-count tries them)"
)


class Explored(NamedTuple):
    """See `SearchResult`."""

    trials: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]
    combinations: int
    short_trials: int
    robustness: Robustness | None
    launch: LaunchTexts | None


def explore(question: Question, runs: Runs) -> Explored:
    """Everything that a search runs. Raises BadInput or UsageError."""
    explorer = _Explorer(question, CountedRuns(runs))
    for model in question.models:
        explorer.of_model(model)
    trials = explorer.trials()
    best = cheapest(trials)
    room, launch = None, None
    if best is not None:
        answer = explorer.answer(best)
        launch = launch_texts(answer, question.catalog_dirs)
        if explorer.has_room(best):
            room = robustness(answer.candidate, explorer.run, runs.width)
    counts = explorer.combinations, explorer.short_trials
    return Explored(trials, tuple(explorer.skipped), *counts, room, launch)


class _Explorer:
    """One search under way: the trials in full, in the order of models, costs, designs and points."""

    def __init__(self, question: Question, run: CountedRuns) -> None:
        self._q, self._space, self.run = question, Space(question), run
        self._totals = totals = workload_totals(question.open())
        self._slo: Slo | None = parse_slo(question.slo) if question.slo else None
        least = max(LEAST_SHORT, USERS * totals.users)
        self._n = lengths(totals.count, least, totals.arrivals_within(RESIDENCES * self._residence_ns()))
        self._full: list[tuple[tuple[int, ...], Trial, Candidate, Design, Try]] = []
        self._groups = self.combinations = self.short_trials = 0

    @property
    def skipped(self) -> Iterable[Skipped]:
        """What was left out, in the order found."""
        return self._space.skipped

    def has_room(self, best: Trial) -> bool:
        """Whether it makes sense to ask for the largest load that the answer serves."""
        open_loop = best.offered_requests_per_s is not None and not self._totals.reactive
        return self._q.headroom and bool(best.slo_met) and open_loop

    def of_model(self, model: str) -> None:
        """The designs of one model, those that cost least first; costlier ones only if none of them is enough."""
        designs = [d for name in self._q.device_names for d in self._space.designs(model, name)]
        self.combinations += sum(map(self._space.combinations, designs))
        costs = sorted({self._cost(d) for d in designs})
        for number, cost in enumerate(costs):
            self._explore([d for d in designs if self._cost(d) == cost], last=number + 1 == len(costs))
            met = any(t.slo_met for _, t, _, d, _ in self._full if d.model == model)
            if met and not self._q.every_count and number + 1 < len(costs):
                cheaper = "less money meets" if self._q.limits.prices else "fewer meet"
                reason = f"{cheaper} the objective (--every-count goes on)"
                self._leave([d for d in designs if self._cost(d) > cost], reason)
                return

    def trials(self) -> tuple[Trial, ...]:
        """All trials in full."""
        return tuple(trial for _, trial, *_ in sorted(self._full, key=lambda row: row[0]))

    def answer(self, trial: Trial) -> Answer:
        """What a trial ran, as it was asked for."""
        _, _, candidate, design, t = next(row for row in self._full if row[1] == trial)
        keywords, price = self._space.keywords_at(design, t.point), self._q.limits.price(design.device)
        return Answer(design.model, design.device, design.shape, keywords, candidate, price)

    def _residence_ns(self) -> int:
        """How long a mean request may stay by the objective; 0 without one."""
        if self._slo is None or not self._totals.count:
            return 0
        mean = sum(self._totals.outputs) // self._totals.count
        return self._slo.e2e_ns or (self._slo.ttft_ns or 0) + mean * (self._slo.tpot_ns or 0)

    def _cost(self, design: Design) -> float:
        money = self._q.limits.cost(design.device, design.shape.devices)
        return float(design.shape.devices) if money is None else money

    def _leave(self, designs: Iterable[Design], reason: str) -> None:
        for name in dict.fromkeys(self._space.size(d) for d in sorted(designs, key=self._cost)):
            self._space.skipped[Skipped(name, reason)] = None

    def _explore(self, designs: Sequence[Design], *, last: bool) -> None:
        """The designs of one cost; where there is a higher one, no more work than worth it goes to a hopeless one."""
        self._groups += 1

        def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
            return self._measure(designs, tries, requests)

        def same(t: Try) -> Try:
            return self._space.same(t, designs)

        kinds = [designs.index(next(d for d in designs if d[:3] == design[:3])) for design in designs]

        def give_up(best: Score) -> bool:
            if last or self._q.every_count or self._slo is None or not hopeless(best, self._slo):
                return False
            self._leave(designs, _HOPELESS)
            return True

        distinct = Distinct(same, sum(map(self._space.combinations, designs)))
        Halving(kinds, self._space.settings_sizes(), self._n, measure, distinct).run(
            everything=self._q.exhaustive, hopeless=give_up
        )

    def _measure(self, designs: Sequence[Design], tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        runnable: list[tuple[Try, Candidate]] = []
        full = requests == self._n.full
        for t in tries:
            limit = self._q.requests if full else requests
            made = self._space.candidate(designs[t.design], t.point, limit, self._totals, self._slo)
            if isinstance(made, str):
                self._space.skipped[Skipped(self._space.named(designs[t.design]), made)] = None
            else:
                runnable.append((t, made))
        trials = self.run([c for _, c in runnable])
        if full and self._q.survive_loss:
            runnable, trials = self._whole(runnable, trials)
        if not full:
            self.short_trials += len(trials)
            return {t: measured(trial) for (t, _), trial in zip(runnable, trials, strict=True) if trial.failure is None}
        found = {}
        for (t, candidate), plain in zip(runnable, trials, strict=True):
            trial = with_cost(plain, self._q.limits.price(candidate.device))
            self._full.append(((self._groups, t.design, *t.point), trial, candidate, designs[t.design], t))
            if trial.failure is None:
                found[t] = measured(trial)
        return found

    def _whole(
        self, runnable: Sequence[tuple[Try, Candidate]], lost: Sequence[Trial]
    ) -> tuple[list[tuple[Try, Candidate]], list[Trial]]:
        """The same with all replicas: run where the objective is met with one lost, which is what both must do."""
        whole = [(t, msgspec.structs.replace(c, plan=with_replicas(c.plan, c.plan.replicas + 1))) for t, c in runnable]
        ran = iter(self.run([c for (_, c), trial in zip(whole, lost, strict=True) if trial.slo_met]))
        return whole, [with_loss(next(ran) if trial.slo_met else trial, trial) for trial in lost]


def measured(trial: Trial) -> Measured:
    """The score of a trial, and its work in microbatches."""
    return Measured(score(trial), trial.microbatches + REQUEST_WORK * trial.requests)
