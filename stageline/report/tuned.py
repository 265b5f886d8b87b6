"""tune.json: what `stageline tune` tried on a run, and what each trial did to its figures."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from stageline.report.measure import NOTHING
from stageline.report.rundir import TUNE_FILE
from stageline.report.summary import Summary
from stageline.units import NS_PER_S, figure_text, format_duration

Objective = Literal["throughput", "ttft", "tpot", "goodput", "cost"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
MORE: frozenset[Objective] = frozenset({"throughput", "goodput"})  # of these more is better, of the others less
S_PER_HOUR = 3600
NOTABLE = 0.01  # relative change from which a trial counts as a gain or as a price


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial is judged by. Latencies in emulated seconds, None when nothing was measured."""

    digest: str
    finished: int
    output_tokens_per_s: float
    ttft_p50_s: float | None
    tpot_p50_s: float | None
    goodput_requests_per_s: float | None  # None: no objective
    preemptions: int
    devices: int = 0  # of all replicas; 0: not known
    attainment: float | None = None  # None: no objective
    slo_met: bool | None = None

    @property
    def cost_device_hours(self) -> float | None:
        """Device hours per million output tokens; None: no tokens, or devices that are not known."""
        if not self.devices or not self.output_tokens_per_s:
            return None
        return self.devices * 1e6 / self.output_tokens_per_s / S_PER_HOUR

    def breaks(self, before: "Figures") -> bool:
        """Whether it misses an objective that was met."""
        return bool(before.slo_met) and self.slo_met is False


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried on the whole workload. `gain` is that of the objective, 0.1 for a tenth better.

    None: something from nothing, such as goodput where there was none, which has no ratio.
    """

    flags: str
    gain: float | None
    figures: Figures
    command: str = ""  # that makes the run; empty: that of `TuneResult`, with these flags

    @property
    def helps(self) -> bool:
        """Whether it gained enough to be told."""
        return self.gain is None or self.gain >= NOTABLE


class TuneResult(msgspec.Struct, frozen=True, kw_only=True):
    """`measured` are single settings, most gain first; `best` is the best set of them, None: nothing helps."""

    run_digest: str
    objective: Objective
    before: Figures
    measured: tuple[Measured, ...]
    best: Measured | None
    command: str  # that makes the best run, or the run itself when nothing helps
    short_trials: int  # on the workload's first requests
    full_trials: int
    left_out: Mapping[str, str]  # flags that could not be tried, and why
    load: tuple[Measured, ...] = ()  # other loads and numbers of replicas: what is served or paid changes with them

    def helped(self) -> list[Measured]:
        """Single settings that helped; of those that give the very same run, the first."""
        by_run = {m.figures.digest: m for m in reversed(self.measured) if m.helps}
        return sorted(by_run.values(), key=lambda m: -merit(m.figures, self.objective))

    def advice(self) -> list[str]:
        """One line per setting that helped; ends in the best set of settings, if it is more than one."""
        helped = self.helped()
        lines = [f"{m.flags}: {effect(self.before, m.figures, self.objective)}" for m in helped]
        if self.best is not None and self.best.flags not in {m.flags for m in helped}:
            lines.insert(0, f"{self.best.flags}: {effect(self.before, self.best.figures, self.objective)}")
        return lines


def figures_of(summary: Summary, devices: int = 0) -> Figures:
    """The figures of a complete run on so many devices. Rates are those of its measurement window."""
    rates = summary.measured or NOTHING
    return Figures(
        digest=summary.digest or "",
        finished=summary.requests["finished"],
        output_tokens_per_s=rates.served_output_tokens_per_s,
        ttft_p50_s=summary.ttft_s.p50,
        tpot_p50_s=summary.tpot_s.p50,
        goodput_requests_per_s=None if summary.slo is None else summary.slo.goodput_requests_per_s,
        preemptions=summary.preemptions,
        devices=devices,
        attainment=None if summary.slo is None else summary.slo.attainment,
        slo_met=None if summary.slo is None else summary.slo.met,
    )


def value(figures: Figures, objective: Objective) -> float | None:
    """The figure that an objective is about."""
    if objective == "throughput":
        return figures.output_tokens_per_s
    if objective == "goodput":
        return figures.goodput_requests_per_s
    if objective == "cost":
        return figures.cost_device_hours
    return figures.ttft_p50_s if objective == "ttft" else figures.tpot_p50_s


def merit(figures: Figures, objective: Objective) -> float:
    """The figure that an objective is about, more being better; least of all where it was not measured."""
    found = value(figures, objective)
    if found is None:
        return -math.inf
    return found if objective in MORE else -found


def gain(before: Figures, after: Figures, objective: Objective) -> float | None:
    """How much better, relative to before: tokens more, or time less. None where either was not measured.

    Infinite where there was nothing before: whoever compares such gains compares the figures' `merit`.
    """
    old, new = value(before, objective), value(after, objective)
    if old is None or new is None:
        return None
    if not old:
        return math.inf if new > old and objective in MORE else 0.0
    return new / old - 1 if objective in MORE else 1 - new / old


def effect(before: Figures, after: Figures, first: Objective) -> str:
    """Every figure that moved, the objective's first: `throughput 8,111 → 9,281 tok/s (+14 %), TTFT p50 ...`.

    Cost only says more than throughput if it is the objective, or if the devices differ.
    """
    told = [o for o in OBJECTIVES if o != "cost" or before.devices != after.devices]
    order = (first, *(o for o in told if o != first))
    parts = [text for objective in order if (text := _moved(before, after, objective))]
    if after.attainment != before.attainment and after.attainment is not None and before.attainment is not None:
        verdict = "; SLO missed" if after.breaks(before) else ""
        parts.append(f"good {before.attainment:.1%} → {after.attainment:.1%}{verdict}")
    if after.finished != before.finished:
        parts.append(f"finished {before.finished:,} → {after.finished:,}")
    if after.preemptions != before.preemptions:
        parts.append(f"preemptions {before.preemptions:,} → {after.preemptions:,}")
    return ", ".join(parts) or "changes nothing"


def _percent(change: float) -> str:
    """A change of a few percent with a decimal: from half a percent on it counts."""
    return f"{change:+.0f}" if abs(change) >= 9.95 else f"{change:+.1f}"


def _moved(before: Figures, after: Figures, objective: Objective) -> str:
    old, new = value(before, objective), value(after, objective)
    if old is None or new is None or (old and abs(new / old - 1) < NOTABLE / 2) or old == new:
        return ""
    change = f" ({_percent(100 * (new / old - 1))} %)" if old else ""
    if objective == "throughput":
        return f"throughput {old:,.0f} → {new:,.0f} tok/s{change}"
    if objective == "goodput":
        return f"goodput {old:,.2f} → {new:,.2f} requests/s{change}"
    if objective == "cost":
        return f"cost {figure_text(old)} → {figure_text(new)} device hours/M tokens{change}"
    return f"{objective.upper()} p50 {format_duration(old * NS_PER_S)} → {format_duration(new * NS_PER_S)}{change}"


def read_tune(directory: Path, run_digest: str | None) -> TuneResult | None:
    """tune.json of this very run; None if there is none, or one of another run or version."""
    try:
        found = msgspec.json.decode((directory / TUNE_FILE).read_bytes(), type=TuneResult)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None
    return found if found.run_digest == run_digest else None
