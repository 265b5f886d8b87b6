"""Trials of a search as a test needs them."""

from typing import Any

from stageline.api.trials import Trial


def make_trial(name: str, **fields: Any) -> Trial:
    """A trial in which all requests were served, but for the given fields."""
    plain = {
        "key": name, "model": "model", "device": "device", "devices": 1, "stages": 1, "credits": 1, "microbatch": 1,
        "finished": 10, "output_tokens_per_s": 1.0, "goodput_requests_per_s": 1.0, "attainment": 1.0, "slo_met": None,
        "ttft_p50_s": 0.1, "ttft_p99_s": 0.2, "tpot_p50_s": 0.01, "tpot_p99_s": 0.02, "bubble_ratio": 0.0,
        "binding": "stage-0",
    }  # fmt: skip
    return Trial(name=name, **{**plain, **fields})
