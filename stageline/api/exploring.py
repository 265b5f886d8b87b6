"""The course of a search: what costs least first, each cost by halving, then the room that the answer leaves."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from stageline.api.fleet_space import FleetSpace
from stageline.api.fleet_text import FleetAnswer
from stageline.api.halving import Distinct, Halving, Lengths, lengths
from stageline.api.launch_text import LaunchTexts
from stageline.api.launching import Answer
from stageline.api.question import Question
from stageline.api.ranking import cheapest, hopeless, other_kind, score, with_cost, with_loss
from stageline.api.resuming import CountedRuns, Runs
from stageline.api.robustness import Alternative, Robustness, robustness, room
from stageline.api.scoreboard import Measure, Measured, Score, Try
from stageline.api.search_space import Skipped, Space
from stageline.api.trials import Candidate, Trial
from stageline.api.variations import Point
from stageline.api.workload_totals import WorkloadTotals, workload_totals
from stageline.plan.replicas import with_replicas
from stageline.plan.schema import Plan
from stageline.report.slo import Slo, parse_slo

LEAST_SHORT = 64  # requests of the shortest trial
RESIDENCES = 2  # a short trial lasts about so many stays of a request
REQUEST_WORK = 6  # running a request takes about 90 us of a core, a microbatch 15 us
USERS = 2  # a short trial of a closed loop has at least so many requests of every user
_HOPELESS = (
    "all settings but those of one full trial: the best on a quarter of the workload misses the objective by far "
    "(--every-count tries them)"
)


D = TypeVar("D")


class DesignSpace(Protocol[D]):
    """What is explored: designs of one kind, and what each runs at a point of its axes."""

    def designs(self, model: str, device: str) -> Iterator[D]: ...
    def cost(self, design: D) -> float: ...
    def kind(self, design: D) -> object: ...
    def named(self, design: D) -> str: ...
    def size(self, design: D) -> str: ...
    def sizes(self) -> list[int]: ...
    def combinations(self, design: D) -> int: ...
    def same(self, t: Try, designs: Sequence[D]) -> Try: ...
    def candidate(
        self, design: D, point: Point, requests: int | None, totals: WorkloadTotals, slo: Slo | None
    ) -> Candidate | str: ...
    def answer(self, design: D, point: Point, candidate: Candidate) -> Answer | FleetAnswer: ...


class Group(Generic[D]):
    """Designs of one space at one cost, which are told apart by one halving."""

    def __init__(self, model: str, space: DesignSpace[D], designs: Sequence[D]) -> None:
        self.model, self.space, self.designs = model, space, designs
        self.combinations = sum(map(space.combinations, designs))

    def halving(self, n: Lengths, measure: Measure) -> Halving:
        """The halving of these designs."""
        first: dict[object, int] = {}
        kinds = [first.setdefault(self.space.kind(design), number) for number, design in enumerate(self.designs)]
        distinct = Distinct(lambda t: self.space.same(t, self.designs), self.combinations)
        return Halving(kinds, self.space.sizes(), n, measure, distinct)


class FullTrial(NamedTuple):
    """A trial of the whole workload, and what it ran."""

    order: tuple[int, ...]
    trial: Trial
    candidate: Candidate
    group: Group[Any]
    tried: Try


class Explored(NamedTuple):
    """See `SearchResult`."""

    trials: tuple[Trial, ...]
    skipped: tuple[Skipped, ...]
    combinations: int
    short_trials: int
    robustness: Robustness | None
    launch: LaunchTexts | None
    alternative: Alternative | None


def explore(question: Question, runs: Runs) -> Explored:
    """Everything that a search runs. Raises BadInput or UsageError."""
    explorer = _Explorer(question, CountedRuns(runs))
    for model in question.models:
        explorer.of_model(model)
    trials = explorer.trials()
    best = cheapest(trials)
    found, launch, other = None, None, None
    if best is not None:
        answer = explorer.answer(best)
        launch = answer.texts(question.catalog_dirs)
        if explorer.has_room(best):
            found = robustness(answer.candidate, explorer.run, runs.width)
            other = explorer.alternative(best, runs.width)
    counts = explorer.combinations, explorer.short_trials
    return Explored(trials, tuple(explorer.skipped), *counts, found, launch, other)


class _Explorer:
    """One search under way: the trials in full, in the order of models, costs, designs and points."""

    def __init__(self, question: Question, run: CountedRuns) -> None:
        self._q, self._space, self.run = question, Space(question), run
        self._totals = totals = workload_totals(question.open())
        self._slo: Slo | None = parse_slo(question.slo) if question.slo else None
        least = max(LEAST_SHORT, USERS * totals.users)
        self._n = lengths(totals.count, least, totals.arrivals_within(RESIDENCES * self._residence_ns()))
        self._spaces: list[DesignSpace[Any]] = [self._space]
        if question.disaggregate is not None:
            self._spaces.append(FleetSpace(question, self._space, question.disaggregate))
        self._full: list[FullTrial] = []
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
        groups = self._by_cost(model)
        self.combinations += sum(group.combinations for same in groups for group in same)
        for number, same in enumerate(groups):
            for group in same:
                self._explore(group, last=number + 1 == len(groups))
            met = any(row.trial.slo_met for row in self._full if row.group.model == model)
            if met and not self._q.every_count and number + 1 < len(groups):
                cheaper = "less money meets" if self._q.limits.prices else "fewer meet"
                reason = f"{cheaper} the objective (--every-count goes on)"
                for group in (group for more in groups[number + 1 :] for group in more):
                    self._leave(group, reason)
                return

    def _by_cost(self, model: str) -> list[list[Group[Any]]]:
        """The designs of a model in groups of one cost, the least first; of one cost a group for each space."""
        found: dict[float, list[Group[Any]]] = {}
        for space in self._spaces:
            by_cost: dict[float, list[Any]] = {}
            for design in (d for name in self._q.device_names for d in space.designs(model, name)):
                by_cost.setdefault(space.cost(design), []).append(design)
            for cost, designs in by_cost.items():
                found.setdefault(cost, []).append(Group(model, space, designs))
        return [found[cost] for cost in sorted(found)]

    def trials(self) -> tuple[Trial, ...]:
        """All trials in full."""
        return tuple(row.trial for row in sorted(self._full, key=lambda row: row.order))

    def answer(self, trial: Trial) -> Answer | FleetAnswer:
        """What a trial ran, as it was asked for."""
        row = self._row(trial)
        return row.group.space.answer(row.group.designs[row.tried.design], row.tried.point, row.candidate)

    def alternative(self, best: Trial, width: int) -> Alternative | None:
        """The best trial of the other kind on as many devices, and its room; None: there is none."""
        found = other_kind(self.trials(), best)
        if found is None:
            return None
        return Alternative(trial=found, room=room(self._row(found).candidate, self.run, width))

    def _row(self, trial: Trial) -> FullTrial:
        return next(row for row in self._full if row.trial == trial)

    def _residence_ns(self) -> int:
        """How long a mean request may stay by the objective; 0 without one."""
        if self._slo is None or not self._totals.count:
            return 0
        mean = sum(self._totals.outputs) // self._totals.count
        return self._slo.e2e_ns or (self._slo.ttft_ns or 0) + mean * (self._slo.tpot_ns or 0)

    def _leave(self, group: Group[Any], reason: str) -> None:
        for name in dict.fromkeys(map(group.space.size, group.designs)):
            self._space.leave(name, reason)

    def _explore(self, group: Group[Any], *, last: bool) -> None:
        """The designs of one cost; where there is a higher one, no more work than worth it goes to a hopeless one."""
        self._groups += 1

        def measure(tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
            return self._measure(group, tries, requests)

        def give_up(best: Score) -> bool:
            if last or self._q.every_count or self._slo is None or not hopeless(best, self._slo):
                return False
            self._leave(group, _HOPELESS)
            return True

        group.halving(self._n, measure).run(everything=self._q.exhaustive, hopeless=give_up)

    def _measure(self, group: Group[Any], tries: Sequence[Try], requests: int) -> dict[Try, Measured]:
        designs, space = group.designs, group.space
        runnable: list[tuple[Try, Candidate]] = []
        full = requests == self._n.full
        for t in tries:
            limit = self._q.requests if full else requests
            made = space.candidate(designs[t.design], t.point, limit, self._totals, self._slo)
            if isinstance(made, str):
                self._space.leave(space.named(designs[t.design]), made)
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
            self._full.append(FullTrial((self._groups, t.design, *t.point), trial, candidate, group, t))
            if trial.failure is None:
                found[t] = measured(trial)
        return found

    def _whole(
        self, runnable: Sequence[tuple[Try, Candidate]], lost: Sequence[Trial]
    ) -> tuple[list[tuple[Try, Candidate]], list[Trial]]:
        """The same with all replicas: run where the objective is met with one lost, which is what both must do."""
        whole = [(t, msgspec.structs.replace(c, plan=_one_more(c.one_plan()))) for t, c in runnable]
        ran = iter(self.run([c for (_, c), trial in zip(whole, lost, strict=True) if trial.slo_met]))
        return whole, [with_loss(next(ran) if trial.slo_met else trial, trial) for trial in lost]


def _one_more(plan: Plan) -> Plan:
    return with_replicas(plan, plan.replicas + 1)


def measured(trial: Trial) -> Measured:
    """The score of a trial, and its work in microbatches."""
    return Measured(score(trial), trial.microbatches + REQUEST_WORK * trial.requests)
