"""Fitting constants to a measured run: the same requests through the in-process engine until the times agree."""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from stageline.cost.efficiencies import Efficiencies
from stageline.cost.profile import Profile, Residual
from stageline.engine import inprocess
from stageline.engine.settings import Scheduling
from stageline.engine.types import RequestRecord
from stageline.errors import BadInput
from stageline.hardware.device import Device
from stageline.model.spec import ModelSpec
from stageline.plan.build import make_plan
from stageline.plan.options import PlanOptions
from stageline.report.request_times import times_of
from stageline.workload.rows import RowCounts
from stageline.workload.timings import MeasuredTimes, Timings
from stageline.workload.workloads import IteratedWorkload

SCALES = (0.8, 1.6)  # the range in which the attention scale is searched
HALVINGS = 7
MAX_RUNS = 80
MIN_SHARE = 0.02
Point = tuple[float, float, float]  # share of FLOP/s, share of bandwidth, us per step


class Serving(NamedTuple):
    """The settings of the serving engine that was measured."""

    max_num_seqs: int
    batched_tokens: int
    tensor_parallel: int = 1


class MeasuredRun(NamedTuple):
    """A measured run and what it ran on."""

    spec: ModelSpec
    device: Device
    timings: Timings
    serving: Serving


class Records:
    """An observer that keeps every record, by request."""

    def __init__(self) -> None:
        self.rows: dict[int, RequestRecord] = {}

    def token(self, index: int, now_ns: int, since_ns: int | None) -> None:
        """See Observer; single tokens are not kept."""

    def request(self, record: RequestRecord) -> None:
        """See Observer."""
        self.rows[record.index] = record


def emulate(
    m: MeasuredRun, profile: Profile | None = None, efficiencies: Efficiencies | None = None
) -> list[MeasuredTimes]:
    """Times of the same requests in the same order, scheduled as vLLM does, without a network.

    Raises BadInput when a request does not fit.
    """
    options = PlanOptions(
        profile=profile, efficiencies=efficiencies, tensor_parallel=m.serving.tensor_parallel,
        devices=m.serving.tensor_parallel, hop_latency_ns=0, hop_bytes_per_s=10**12,
    )  # fmt: skip
    plan = make_plan(m.spec, m.device, options).plan
    scheduling = Scheduling(
        credits=1, max_running=m.serving.max_num_seqs, microbatch=m.serving.max_num_seqs,
        batched_tokens=m.serving.batched_tokens, batching="greedy", kv="grow",
    )  # fmt: skip
    seen = Records()
    workload = IteratedWorkload(iter(m.timings.requests), description="", counts=RowCounts(), fraction=lambda: 0.0)
    inprocess.run(plan, scheduling, workload, seed=0, observer=seen)
    return [_times(seen.rows[i]) for i in range(len(m.timings.requests))]


def _times(record: RequestRecord) -> MeasuredTimes:
    found = times_of(record)
    if found is None:
        reason = f"{record.prompt_tokens} + {record.output_tokens} tokens are {record.outcome} in the emulation"
        raise BadInput(f"measured request {record.index}", None, reason, "calibrate with the device that served it")
    return MeasuredTimes(found.ttft_ns, found.tpot_ns, found.e2e_ns)


def fit_attention(m: MeasuredRun, profile: Profile) -> Profile:
    """The profile with the scale of attention that gives the measured mean latency, by bisection."""
    goal = statistics.fmean(t.e2e_ns for t in m.timings.times)
    low, high = SCALES
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        tried = emulate(m, msgspec.structs.replace(profile, attention_scale=middle))
        if statistics.fmean(t.e2e_ns for t in tried) < goal:
            low = middle
        else:
            high = middle
    fitted = msgspec.structs.replace(profile, attention_scale=round((low + high) / 2, 3))
    found = residuals(m.timings, emulate(m, fitted))
    return msgspec.structs.replace(fitted, residuals=(*profile.residuals, *found))


def fit_efficiencies(
    m: MeasuredRun, name: str, source: str, progress: Callable[[], None] = lambda: None
) -> Efficiencies:
    """The shares and the time per step with the least error, by a pattern search from the catalogue's shares."""

    def made(point: Point) -> Efficiencies:
        flops, bandwidth, step_us = point
        return Efficiencies(
            name=name, model=m.spec.name, device=m.device.name, flops_share=round(flops, 4),
            bandwidth_share=round(bandwidth, 4), step_ns=round(step_us * 1000), source=source,
            tensor_parallel=m.serving.tensor_parallel,
        )  # fmt: skip

    def error(point: Point) -> float:
        progress()
        return distance(m.timings, emulate(m, efficiencies=made(point)))

    start = (m.device.share.flops, m.device.share.bandwidth, 0.0)
    best = made(_pattern(error, start))
    return msgspec.structs.replace(best, residuals=residuals(m.timings, emulate(m, efficiencies=best)))


def _pattern(error: Callable[[Point], float], start: Point) -> Point:
    """Try each coordinate one step up, else down; halve the steps when nothing improves, until 3 % and 200 us."""
    best, least, runs = start, error(start), 1
    factor, step_us = 1.25, 1600.0
    while runs < MAX_RUNS and step_us >= 200:
        before = least
        for axis in range(3):
            for sign in (1, -1):
                tried = _moved(best, axis, sign, factor, step_us)
                runs += 1
                if tried != best and (found := error(tried)) < least:
                    best, least = tried, found
                    break
        if least == before:
            factor, step_us = factor**0.5, step_us / 2
    return best


def _moved(point: Point, axis: int, sign: int, factor: float, step_us: float) -> Point:
    """One step along an axis, clamped to valid shares and times."""
    flops, bandwidth, step = point
    if axis == 0:
        return _share(flops * factor**sign), bandwidth, step
    if axis == 1:
        return flops, _share(bandwidth * factor**sign), step
    return flops, bandwidth, max(0.0, step + sign * step_us)


def _share(value: float) -> float:
    return min(1.0, max(MIN_SHARE, value))


def distance(timings: Timings, emulated: Sequence[MeasuredTimes]) -> float:
    """Sum of the mean absolute errors of TTFT, TPOT and latency, each over its measured mean."""
    total = 0.0
    for _, real, ours in _columns(timings.times, emulated):
        total += sum(abs(a - b) for a, b in zip(ours, real, strict=True)) / (sum(real) or 1)
    return total


def residuals(timings: Timings, emulated: Sequence[MeasuredTimes]) -> tuple[Residual, ...]:
    """By metric, the relative errors of requests and of the mean."""
    found = []
    for name, real, ours in _columns(timings.times, emulated):
        errors = [a / b - 1 for a, b in zip(ours, real, strict=True) if b]
        ranked = sorted(abs(e) for e in errors)
        found.append(
            Residual(
                of=name,
                points=len(errors),
                median=statistics.median(errors),
                p90_absolute=ranked[-(-9 * len(ranked) // 10) - 1],
                mean=statistics.fmean(ours) / statistics.fmean(real) - 1,
            )
        )
    return tuple(found)


def _columns(real: Sequence[MeasuredTimes], ours: Sequence[MeasuredTimes]) -> list[tuple[str, list[int], list[int]]]:
    """(metric, measured, emulated) with TPOT of requests of several tokens only."""
    pairs = list(zip(real, ours, strict=True))
    steps = [(a.tpot_ns, b.tpot_ns) for a, b in pairs if a.tpot_ns is not None and b.tpot_ns is not None]
    found = [("TTFT", [a.ttft_ns for a, _ in pairs], [b.ttft_ns for _, b in pairs])]
    if steps:
        found.append(("TPOT", [a for a, _ in steps], [b for _, b in steps]))
    return [*found, ("latency", [a.e2e_ns for a, _ in pairs], [b.e2e_ns for _, b in pairs])]
