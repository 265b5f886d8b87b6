"""Fitting constants to a measured run: the same requests through the in-process engine until the times agree."""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from stageline.api.least_error import Point, least
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
GROUPS, MIN_GROUP = 8, 4  # of requests, whose TTFTs are averaged


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
    found = residuals(m.timings.times, emulate(m, fitted))
    return msgspec.structs.replace(fitted, residuals=(*profile.residuals, *found))


def fit_efficiencies(
    m: MeasuredRun, name: str, source: str, progress: Callable[[], None] = lambda: None
) -> Efficiencies:
    """The shares and host times with the least error over the first half of the requests, by a pattern search.

    It begins from the catalogue's shares. The second half is the backtest. Every trial emulates all requests, because
    those of one half were served among those of the other.
    """
    half = len(m.timings.times) // 2

    def tried(point: Point) -> float:
        progress()
        found = emulate(m, efficiencies=_fit(m, name, source, point))[:half]
        front_ns = front_end_ns(m.timings.times[:half], found)
        return smoothed_distance(m.timings, [later(t, front_ns) for t in found])

    start = Point(m.device.share.flops, m.device.share.bandwidth, 0.0, 0.0)
    found = least(tried, start, _weights_us(m))
    fit = _fit(m, name, source, found.point)
    bare = emulate(m, efficiencies=fit)
    front_ns = front_end_ns(m.timings.times[:half], bare[:half])
    times = [later(t, front_ns) for t in bare]
    return msgspec.structs.replace(
        fit,
        front_end_ns=front_ns,
        least=_fit(m, name, source, found.low).constants(),
        most=_fit(m, name, source, found.high).constants(),
        residuals=residuals(m.timings.times[:half], times[:half]),
        backtest=residuals(m.timings.times[half:], times[half:]),
    )


def _fit(m: MeasuredRun, name: str, source: str, point: Point) -> Efficiencies:
    return Efficiencies(
        name=name, model=m.spec.name, device=m.device.name, flops_share=round(point.flops, 4),
        bandwidth_share=round(point.bandwidth, 4), step_ns=round(point.step_us * 1000),
        sequence_ns=round(point.sequence_us * 1000), source=source, tensor_parallel=m.serving.tensor_parallel,
    )  # fmt: skip


def _weights_us(m: MeasuredRun) -> float:
    """Time to read the weights that every step reads, at the full bandwidth; an upper bound with routed experts."""
    size = (m.spec.weight_bytes() - m.spec.embedding_bytes()) / m.serving.tensor_parallel
    return size * 1e6 / m.device.bandwidth_bytes_per_s


def front_end_ns(real: Sequence[MeasuredTimes], ours: Sequence[MeasuredTimes]) -> int:
    """What first tokens come later on average than the scheduler alone explains, at least 0."""
    return max(0, round(statistics.fmean(a.ttft_ns - b.ttft_ns for a, b in zip(real, ours, strict=True))))


def later(times: MeasuredTimes, front_ns: int) -> MeasuredTimes:
    """As a client sees them, behind a front end."""
    return MeasuredTimes(times.ttft_ns + front_ns, times.tpot_ns, times.e2e_ns + front_ns)


def distance(measured: Sequence[MeasuredTimes], emulated: Sequence[MeasuredTimes]) -> float:
    """Sum of the mean absolute errors of TTFT, TPOT and latency, each over its measured mean."""
    return sum(_relative(ours, real) for _, real, ours in _columns(measured, emulated))


def smoothed_distance(timings: Timings, emulated: Sequence[MeasuredTimes]) -> float:
    """As `distance`, of the first requests, with the TTFT of groups of requests with prompts of similar lengths.

    A prompt waits for the end of the step that it arrives in. Where in a step it arrives is chance as soon as one step
    took another time, so single TTFTs scatter by a step, whatever the constants are.
    """
    real = timings.times[: len(emulated)]
    order = sorted(range(len(emulated)), key=lambda i: timings.requests[i].prompt_tokens)
    size = max(MIN_GROUP, -(-len(order) // GROUPS))
    first = wrong = 0
    for at in range(0, len(order), size):
        group = order[at : at + size]
        wrong += abs(sum(emulated[i].ttft_ns - real[i].ttft_ns for i in group))
        first += sum(real[i].ttft_ns for i in group)
    rest = _columns(real, emulated)[1:]
    return wrong / (first or 1) + sum(_relative(ours, theirs) for _, theirs, ours in rest)


def _relative(ours: Sequence[int], real: Sequence[int]) -> float:
    return sum(abs(a - b) for a, b in zip(ours, real, strict=True)) / (sum(real) or 1)


def residuals(measured: Sequence[MeasuredTimes], emulated: Sequence[MeasuredTimes]) -> tuple[Residual, ...]:
    """By metric, the relative errors of requests and of the mean; metrics that were measured as 0 are left out."""
    found = []
    for name, real, ours in _columns(measured, emulated):
        errors = [a / b - 1 for a, b in zip(ours, real, strict=True) if b]
        if not errors:
            continue  # all tokens came in one read of the socket
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
