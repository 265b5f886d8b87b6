"""Tuning: every setting that can move what binds in a run, tried on the run's own workload."""

import math
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from stageline.api.files import write_file
from stageline.api.moves import MAX_VALUE, Move, Value, moves
from stageline.api.rerunning import (
    RunVariations,
    StoredRun,
    Variation,
    checked_again,
    other_loads,
    run_variations,
    stored_run,
    with_one_window,
)
from stageline.api.scheduling import settle
from stageline.api.searching import MAX_JOBS
from stageline.engine.settings import data_parallel_ranks, plan_scheduling
from stageline.errors import UsageError
from stageline.report.rerun import Rerun, flag
from stageline.report.rundir import PLAN_FILE, TUNE_FILE
from stageline.report.slo import parse_slo
from stageline.report.tuned import NOTABLE, OBJECTIVES, Figures, Measured, Objective, TuneResult, gain, merit, value

BUDGET, MAX_BUDGET = 20, 1000
SHORT_SHARE, LEAST_SHORT = 5, 24  # a short trial has a fifth of the requests, and at least so many
COMBINING = 3  # full trials that are kept for sets of settings
BOTH_WAYS = frozenset({"batched_tokens", "microbatch"})  # a smaller and a larger value before any choice
IDLE = -0.05  # stands for the gain of a setting that changed nothing: other values of it are unlikely to
AT_ONCE = 2  # values of a setting that are tried before the next choice
PER_SETTING = 3  # values of one setting that are tried in full
ROUNDS = 2  # of trials between the best value of a number and its neighbours
FEW_BAD = 0.1  # of the requests: a short trial that loses no more of them may keep the SLO in full
LOSS = -0.1  # of a short trial, from which a full one is not worth it

Watch = Callable[[int, int], None]


def tune(
    directory: str | os.PathLike[str],
    *,
    objective: Objective = "throughput",
    slo: str | None = None,
    budget: int = BUDGET,
    jobs: int = 1,
    save: bool = True,
    trust: Sequence[str] = (),
) -> TuneResult:
    """Try the settings that can move what binds in a run, on the same workload: `stageline tune`.

    `directory` is what `run` wrote with `output`. `budget` counts trials of the whole workload; shorter ones, on its
    first requests, count by their length and choose what is tried in full. Each of `TuneResult.measured` is one setting
    with its measured figures, `best` the best set of settings (None: nothing helps), and `command` makes that run.
    `slo` is needed for the objective "goodput" if the run had none. With `save` the result is kept in the directory
    as tune.json, where reports find it. `trust` names the policies package.module:Class of the run, if it has any: the
    directory may come from somebody else, and they are code to import.

    Raises BadInput for a directory whose run can't be made again, UsageError for arguments that can't be used and for
    a policy that is not trusted.

    >>> import stageline
    >>> plan = stageline.plan_model("llama-3.1-8b", "h100-sxm")
    >>> load = "closed:users=8,requests=16,input=512,output=16"
    >>> _ = stageline.run(plan, load, batched_tokens=64, output=DIRECTORY)
    >>> stageline.tune(DIRECTORY).best.gain > 0.1
    True
    """
    return run_tune(Path(directory), objective, slo, budget, jobs, save=save, trust=trust)


def run_tune(
    directory: Path,
    objective: Objective,
    slo: str | None,
    budget: int,
    jobs: int,
    *,
    save: bool = True,
    trust: Sequence[str] = (),
    watch: Watch = lambda done, total: None,
) -> TuneResult:
    """As `tune`; `watch` is told how many trials are done, and of how many."""
    _check(objective, budget, jobs)
    stored = with_one_window(stored_run(directory))
    _check_named(stored, trust)
    if slo is not None:
        stored = msgspec.structs.replace(stored, rerun=msgspec.structs.replace(stored.rerun, slo=parse_slo(slo).flag()))
    if objective == "goodput" and not stored.rerun.slo:
        raise UsageError("--objective goodput needs an objective per request: give --slo ttft=2s,tpot=50ms")
    before = checked_again(stored)
    if value(before, objective) is None:
        none = "output token was served" if objective == "cost" else "request had two tokens"
        raise UsageError(f"--objective {objective}: the run has none, as no {none}: give another one")
    result = _Tuner(stored, objective, before, budget, partial(run_variations, jobs=jobs), watch).result()
    if save:
        write_file(directory / TUNE_FILE, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    return result


def _check(objective: Objective, budget: int, jobs: int) -> None:
    if objective not in OBJECTIVES:
        raise UsageError(f"--objective {objective}: known are {', '.join(OBJECTIVES)}")
    if not 2 <= budget <= MAX_BUDGET:
        raise UsageError(f"--budget {budget}: must lie between 2 and {MAX_BUDGET:,} trials")
    if not 1 <= jobs <= MAX_JOBS:
        raise UsageError(f"--jobs {jobs}: must lie between 1 and {MAX_JOBS}")


def _check_named(stored: StoredRun, trust: Sequence[str]) -> None:
    """Raises UsageError for code that only the directory names."""
    for policy in stored.rerun.scheduling.users_classes:
        if policy not in trust:
            raise UsageError(
                f"the run in {stored.directory} was made with the policy {policy}, which is code to import: give "
                f"--trust {policy} if it is yours"
            )


class _Tried(NamedTuple):
    """Moves that were made together, and what came of it."""

    moves: tuple[Move, ...]
    gain: float
    figures: Figures
    merit: float


class _Tuner:
    """One tuning. `_left` is what remains of the budget, in requests, so that no part of it is lost by rounding."""

    def __init__(
        self, stored: StoredRun, objective: Objective, before: Figures, budget: int, run: RunVariations, watch: Watch
    ) -> None:
        self._stored, self._objective, self._before, self._run, self._watch = stored, objective, before, run, watch
        self._left = (budget - 1) * stored.requests  # the run itself, made again, is the first trial
        self._short_trials, self._full_trials, self._left_out = 0, 1, dict[str, str]()

    def result(self) -> TuneResult:
        """Runs every trial."""
        found = moves(self._stored.plan, self._stored.rerun.scheduling, self._stored.summary, self._stored.stages)
        tried = self._between(self._singles(found))
        single = sorted(tried, key=lambda t: (-t.merit, t.moves))
        best = self._combine([t for t in single if t.gain >= NOTABLE])
        load = self._other_loads(() if best is None else best.moves)
        return TuneResult(
            run_digest=self._stored.summary.digest or "",
            objective=self._objective,
            before=self._before,
            measured=tuple(self._measured(t) for t in single),
            best=None if best is None else self._measured(best),
            command=self._command(() if best is None else best.moves),
            short_trials=self._short_trials,
            full_trials=self._full_trials,
            left_out=self._left_out,
            load=load,
        )

    def _singles(self, found: Sequence[Move]) -> list[_Tried]:
        """Moves in full: those that short trials chose, or one setting after the other where short ones say little."""
        total = self._stored.requests
        full = max(1, self._left // total - COMBINING)
        short = max(LEAST_SHORT, total // SHORT_SHARE)
        if len(found) <= full or 2 * short > total or full < 2:
            return self._following(found, full)
        affordable = (self._left - (COMBINING + 2) * total) // short - 1
        ranked = self._short(found[: max(0, affordable)], short)
        chosen = _spread(ranked, max(1, self._left // total - COMBINING)) or list(found[:full])
        return self._full([(move,) for move in chosen])

    def _between(self, tried: list[_Tried]) -> list[_Tried]:
        """Tries the numbers around the best value, twice: what is best may lie between values, or beyond the last."""
        for _ in range(ROUNDS):
            numbers = [t for t in tried if type(t.moves[0].value) is int and t.gain >= NOTABLE]
            count = min(2, self._left // self._stored.requests - 1)
            if not numbers or count < 1:
                break
            best = max(numbers, key=lambda t: t.merit).moves[0]
            known = {t.moves[0].value for t in tried if t.moves[0].setting == best.setting}
            steps = around(int(best.value), {int(v) for v in known} | self._today(best.setting))
            tried = tried + self._full([(Move(best.setting, step),) for step in steps[:count]])
        return tried

    def _today(self, setting: str) -> set[int]:
        """The run's own value of a number, if it has one."""
        scheduling = self._stored.rerun.scheduling
        if setting == "max_num_seqs":
            return {(scheduling.max_running or 0) // data_parallel_ranks(self._stored.plan)}
        own = getattr(scheduling, setting)
        value = getattr(self._stored.plan.defaults, setting, None) if own is None else own
        return set() if value is None else {value}

    def _following(self, found: Sequence[Move], count: int) -> list[_Tried]:
        """The first value of every setting, then more values of those that gained most."""
        queues: dict[str, list[Move]] = {}
        for move in found:
            queues.setdefault(move.setting, []).append(move)
        step = [queue.pop(0) for queue in queues.values()]
        step += [queue.pop(0) for name, queue in queues.items() if name in BOTH_WAYS and queue]
        step = step[:count]
        tried: list[_Tried] = []
        while step:
            tried += self._full([(move,) for move in step])
            count -= len(step)
            best: dict[str, float] = {}
            for t in tried:
                worth = IDLE if t.figures == self._before else t.gain
                best[t.moves[0].setting] = max(worth, best.get(t.moves[0].setting, worth))
            open_queues = [name for name, queue in queues.items() if queue]
            if not open_queues:
                break
            name = max(open_queues, key=lambda n: best.get(n, IDLE))
            step = queues[name][: min(AT_ONCE, count)]
            del queues[name][: len(step)]
        return tried

    def _short(self, found: Sequence[Move], requests: int) -> list[_Tried]:
        """Tries moves on the first requests; their gains are against the run on as many."""
        sets = [(), *((move,) for move in found)]
        figures = self._try(sets, requests)
        self._short_trials += len(sets)
        base = figures[0]
        if base is None:
            return []
        pairs = zip(sets[1:], figures[1:], strict=True)
        of = f" on the first {requests:,} requests"
        return [t for made, after in pairs if after is not None and (t := self._judge(made, base, after, of))]

    def _full(self, sets: Sequence[tuple[Move, ...]]) -> list[_Tried]:
        """Tries sets of moves on the whole workload."""
        figures = self._try(sets, None)
        self._full_trials += len(sets)
        pairs = zip(sets, figures, strict=True)
        return [t for made, after in pairs if after is not None and (t := self._judge(made, self._before, after))]

    def _try(self, sets: Sequence[tuple[Move, ...]], requests: int | None) -> list[Figures | None]:
        stored = self._stored
        variations = [
            Variation(plan=stored.plan, rerun=stored.rerun, changes=self._changes(made), requests=requests)
            for made in sets
        ]
        self._left -= len(sets) * (requests or stored.requests)
        figures: list[Figures | None] = []
        for made, found in zip(sets, self._run(variations), strict=True):
            if isinstance(found, str):
                self._left_out[self._words(made)] = found
            figures.append(None if isinstance(found, str) else found)
            self._watch(len(figures), len(sets))
        return figures

    def _judge(self, made: tuple[Move, ...], before: Figures, after: Figures, of: str = "") -> _Tried | None:
        """None for a trial that finishes fewer requests, or misses an SLO that was met: it is no gain."""
        found = gain(before, after, self._objective)
        if found is None or after.finished < before.finished:
            return None
        lost = (before.attainment or 0.0) - (after.attainment or 0.0)
        if after.breaks(before) and self._before.slo_met and (not of or lost > FEW_BAD):
            self._left_out[self._words(made)] = f"misses the SLO{of}, which was met: {after.attainment:.1%} are good"
            return None
        return _Tried(made, found, after, merit(after, self._objective))

    def _combine(self, helped: Sequence[_Tried]) -> _Tried | None:
        """Adds one setting after the other to the best, as long as each is a gain of its own."""
        if not helped:
            return None
        best = helped[0]
        for other in _one_per_setting(helped[1:]):
            if self._left < self._stored.requests:
                break
            if other.moves[0].limit in {m.limit for m in best.moves}:
                continue
            for more in self._full([(*best.moves, *other.moves)]):
                if (gain(best.figures, more.figures, self._objective) or 0.0) >= NOTABLE / 2:
                    best = more
        return best

    def _other_loads(self, made: tuple[Move, ...]) -> tuple[Measured, ...]:
        """Another replica, less load and one replica less, with the best settings, as far as the budget reaches.

        They are no settings of this run: they change what is paid or served, and nothing is combined with them.
        """
        stored, found = self._stored, []
        for flags, plan, rerun in other_loads(stored):
            if self._left < stored.requests:
                self._left_out[flags] = "the budget is spent"
                continue
            self._left -= stored.requests
            self._full_trials += 1
            (after,) = self._run([Variation(plan=plan, rerun=rerun, changes=self._changes(made))])
            if isinstance(after, str):
                self._left_out[flags] = after
                continue
            told = _told(gain(self._before, after, self._objective))
            more = shlex.split(flags) if plan.replicas != stored.plan.replicas else []
            command = shlex.join([*shlex.split(self._command(made, rerun)), *more])
            found.append(Measured(flags=flags, gain=told, figures=after, command=command))
        return tuple(found)

    def _changes(self, made: Iterable[Move]) -> dict[str, Value]:
        """What `settle` takes. The size of microbatches does not follow --max-running, as it does --max-num-seqs."""
        changes: dict[str, Value] = {m.setting: m.value for m in made}
        size = self._stored.rerun.scheduling.microbatch
        return {"microbatch": size, **changes} if "max_running" in changes and size else changes

    def _words(self, made: Iterable[Move]) -> str:
        """The flags that make these moves, whatever flags of the same limits the run had."""
        changes, own = self._changes(made), self._stored.rerun.scheduling
        base = plan_scheduling(self._stored.plan)
        if "max_num_seqs" in changes and (own.microbatch, own.max_running) != (base.microbatch, base.max_running):
            settled = settle(own, changes, self._stored.plan, own=True)
            changes |= {"max_running": settled.max_running or 0, "microbatch": settled.microbatch or 0}
            del changes["max_num_seqs"]
        return " ".join(word for name, value in changes.items() for word in flag(name, value))

    def _measured(self, tried: _Tried) -> Measured:
        return Measured(flags=self._words(tried.moves), gain=_told(tried.gain), figures=tried.figures)

    def _command(self, made: Iterable[Move], rerun: Rerun | None = None) -> str:
        """The command of the run with other settings; of `rerun` if that is another load."""
        stored = self._stored
        slo = parse_slo(stored.rerun.slo) if stored.rerun.slo else None
        changed = settle(stored.rerun.scheduling, self._changes(made), stored.plan, slo=slo, own=True)
        return (rerun or stored.rerun).command(str(stored.directory / PLAN_FILE), plan_scheduling(stored.plan), changed)


def _told(found: float | None) -> float | None:
    """A gain as `Measured` has it."""
    return 0.0 if found is None else None if math.isinf(found) else found


def around(best: int, known: set[int]) -> list[int]:
    """The numbers half-way from the best one to its neighbours among those that are known, if they are new.

    Where it has no neighbour, nothing says that it is best: half of it, or twice as much, is tried first.
    """
    below, above = max((v for v in known if v < best), default=None), min((v for v in known if v > best), default=None)
    beyond = ([best // 2] if below is None else []) + ([best * 2] if above is None else [])
    between = [(v + best) // 2 for v in (below, above) if v is not None]
    return [v for v in (*beyond, *between) if v not in known and v != best and 1 <= v <= MAX_VALUE]


def _one_per_setting(tried: Iterable[_Tried]) -> list[_Tried]:
    best: dict[str, _Tried] = {}
    for t in tried:
        best.setdefault(t.moves[0].setting, t)
    return list(best.values())


def _spread(tried: Sequence[_Tried], count: int) -> list[Move]:
    """The best value of every setting first, then the next best, without those that lose much."""
    ranked = sorted((t for t in tried if t.gain > LOSS), key=lambda t: -t.merit)
    places: dict[str, int] = {}
    order: list[tuple[int, float, Move]] = []
    for t in ranked:
        place = places[t.moves[0].setting] = places.get(t.moves[0].setting, -1) + 1
        if place < PER_SETTING:
            order.append((0 if t.gain >= NOTABLE else 1 + place, -t.merit, t.moves[0]))
    return [move for _, _, move in sorted(order, key=lambda o: o[:2])][:count]
