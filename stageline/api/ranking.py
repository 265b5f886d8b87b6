"""Which trials of a search are worth a look."""

from collections.abc import Sequence

import msgspec

from stageline.api.trials import Trial
from stageline.plan.training import SECONDS_PER_HOUR
from stageline.report.pareto import pareto_front
from stageline.report.slo import Slo

HOPELESS = 0.5  # of the requests that must be good


def with_cost(trial: Trial, price: float | None) -> Trial:
    """$/M output tokens = devices x price / 3600 / (tokens/s) x 1e6."""
    if price is None:
        return trial
    trial = msgspec.structs.replace(trial, cost_per_hour=trial.devices * price)
    rate = token_rate(trial)
    if not rate:
        return trial
    cost = trial.devices * price / SECONDS_PER_HOUR / rate * 1e6
    return msgspec.structs.replace(trial, cost_per_million_tokens=cost)


def with_loss(trial: Trial, lost: Trial) -> Trial:
    """A trial that meets the objective only if that with one replica lost does, and is judged by the worse of both.

    One that was not run with all replicas, because the other misses the objective, has the figures of that.
    """
    return msgspec.structs.replace(
        trial,
        slo_met=trial.slo_met and lost.slo_met,
        slo_margin=min(trial.slo_margin or 0.0, lost.slo_margin or 0.0),
        replicas=lost.replicas + 1,
        attainment_one_lost=lost.attainment,
        only_one_lost=not lost.slo_met,
    )


def token_rate(trial: Trial) -> float:
    """Output tokens per second of the measurement window."""
    return trial.output_tokens_per_s


def brief(trial: Trial) -> bool:
    """Whether requests arrived for so short a time that the measurement window reaches beyond it."""
    return bool(trial.arrivals_s) and (trial.span_s or 0.0) > (trial.arrivals_s or 0.0)


def score(trial: Trial) -> tuple[float, ...]:
    """Which of two trials at one cost is better; greater is.

    With an objective: that it is met, then the share of good requests, then how far the latencies lie below their
    bounds. Without: output tokens per second, then the quicker token.
    """
    if trial.slo_met is None or trial.attainment is None:
        return (token_rate(trial), -trial.tpot_p50_s)
    if trial.slo_met:
        return (1.0, trial.slo_margin or 0.0, token_rate(trial))
    return (0.0, trial.attainment, trial.slo_margin or 0.0)


def hopeless(scored: tuple[float, ...], slo: Slo) -> bool:
    """Whether the best of a quarter of the workload misses the objective so far that no setting will meet it on all.

    A rule of thumb: more than half of the requests that must be good are not, and queues only grow with the length of
    the workload.
    """
    met, attainment, *_ = scored
    return not met and attainment < HOPELESS * float(slo.attainment)


def cheapest(trials: Sequence[Trial]) -> Trial | None:
    """The answer: of the trials that meet the objective the cheapest, by money or else devices, then the best `score`.

    If none meets it, the one that comes nearest. Without an objective, the most tokens per second and device (or per
    money).
    """
    ran = [t for t in trials if t.failure is None and t.finished]
    if not ran:
        return None
    if all(t.slo_met is None for t in ran):
        return max(ran, key=lambda t: (token_rate(t) / expense(t), *score(t)))
    met = [t for t in ran if t.slo_met]
    return max(met, key=lambda t: (-expense(t), *score(t))) if met else max(ran, key=score)


def expense(trial: Trial) -> float:
    """Money per hour if known, else devices."""
    return trial.cost_per_hour or float(trial.devices)


def runners_up(trials: Sequence[Trial], best: Trial) -> list[Trial]:
    """The best trial of every other division on as many devices as the best, best first."""
    seen = {(best.device, best.name)}
    found = []
    same = [t for t in trials if t.devices == best.devices and t.model == best.model and t.failure is None]
    for t in sorted(same, key=score, reverse=True):
        if (t.device, t.name) not in seen:
            seen.add((t.device, t.name))
            found.append(t)
    return found


def other_kind(trials: Sequence[Trial], best: Trial) -> Trial | None:
    """On as many devices as the best, the best trial with two pools where it has one, or the other way round."""
    same = [t for t in trials if t.devices == best.devices and t.model == best.model]
    return cheapest([t for t in same if t.disaggregated != best.disaggregated])


def on_front(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that no other beats in goodput, TTFT, TPOT and number of devices at once; most goodput first."""
    ran = [t for t in trials if t.failure is None and t.finished]
    kept = [t for t, good in zip(ran, pareto_front(ran, _merits), strict=True) if good]
    return sorted(kept, key=lambda t: (-t.goodput_requests_per_s, t.devices, t.tpot_p99_s, t.name))


def best_by_devices(trials: Sequence[Trial]) -> list[Trial]:
    """For every number of devices the trial that would be the answer with these alone."""
    counts = sorted({t.devices for t in trials})
    found = (cheapest([t for t in trials if t.devices == count]) for count in counts)
    return [t for t in found if t is not None]


def _merits(trial: Trial) -> tuple[float, ...]:
    """More is better: goodput, quick first tokens, quick tokens, few devices."""
    return (trial.goodput_requests_per_s, -trial.ttft_p99_s, -trial.tpot_p99_s, -float(trial.devices))
