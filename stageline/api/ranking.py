"""Which trials of a search are worth a look."""

from collections.abc import Sequence

import msgspec

from stageline.api.trials import Trial
from stageline.plan.training import SECONDS_PER_HOUR
from stageline.report.pareto import pareto_front


def with_cost(trial: Trial, price: float | None) -> Trial:
    """$/M output tokens = devices x price / 3600 / (tokens/s) x 1e6, tokens/s without the drain if there are any."""
    rate = trial.served_output_tokens_per_s or trial.output_tokens_per_s
    if price is None or not rate:
        return trial
    cost = trial.devices * price / SECONDS_PER_HOUR / rate * 1e6
    return msgspec.structs.replace(trial, cost_per_million_tokens=cost)


def on_front(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that no other beats in goodput, TTFT, TPOT and number of devices at once; most goodput first."""
    ran = [t for t in trials if t.failure is None and t.finished]
    kept = [t for t, good in zip(ran, pareto_front(ran, _merits), strict=True) if good]
    return sorted(kept, key=lambda t: (-t.goodput_requests_per_s, t.devices, t.tpot_p99_s, t.name))


def best_by_devices(trials: Sequence[Trial]) -> list[Trial]:
    """For every number of devices the trial with the most goodput, then the least TPOT."""
    best: dict[int, Trial] = {}
    for t in sorted(trials, key=lambda t: (-t.goodput_requests_per_s, t.tpot_p99_s, t.name)):
        if t.failure is None:
            best.setdefault(t.devices, t)
    return [best[n] for n in sorted(best)]


def _merits(trial: Trial) -> tuple[float, ...]:
    """More is better: goodput, quick first tokens, quick tokens, few devices."""
    return (trial.goodput_requests_per_s, -trial.ttft_p99_s, -trial.tpot_p99_s, -float(trial.devices))
