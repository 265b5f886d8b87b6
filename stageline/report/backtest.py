"""How far the profile of a plan was off on requests that it was not fitted to: the error bars of a run.

`stageline calibrate` measures it, the plan keeps it in its `info`, and every run of the plan shows it.
"""

from collections.abc import Sequence

from stageline.cost.profile import Residual

Facts = dict[str, str | int | float | bool]

PREFIX = "backtest_"
FIELDS = {"TTFT": "ttft_s", "TPOT": "tpot_s", "latency": "e2e_s"}  # what calibrate calls them, and the summary


def backtest_facts(found: Sequence[Residual]) -> Facts:
    """For a plan's `info`: by field of the summary, the absolute relative error of the mean."""
    return {f"{PREFIX}{FIELDS[r.of]}": round(abs(r.mean), 4) for r in found if r.mean is not None and r.of in FIELDS}


def backtest_text(plan: Facts, field: str) -> str:
    """The error of a latency's mean in percent, like "4 %"; "" without a backtest."""
    error = plan.get(f"{PREFIX}{field}")
    if not isinstance(error, float):
        return ""
    return f"{100 * error:,.0f} %" if error >= 0.0995 else f"{100 * error:.2g} %"
