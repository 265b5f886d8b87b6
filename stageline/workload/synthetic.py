"""From a parsed spec to a workload: arrival processes, closed loops and length distributions."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path

from stageline.engine.types import Request
from stageline.errors import BadInput, UsageError
from stageline.units import parse_duration_ns, parse_ratio
from stageline.workload.arrivals import constant_times, gamma_times, poisson_times
from stageline.workload.closed_trace import ClosedTrace
from stageline.workload.conversations import Conversations, RateStage, staged_times
from stageline.workload.length_text import LengthOptions
from stageline.workload.lengths import RequestLengths
from stageline.workload.options import WorkloadOptions
from stageline.workload.order import checked_ns, scaled_ns
from stageline.workload.reading import accepted_rows
from stageline.workload.registry import open_trace
from stageline.workload.rows import RowCounts
from stageline.workload.spec import SyntheticSpec, positive_integer
from stageline.workload.workloads import ClosedLoop, DescribedWorkload, IteratedWorkload

DEFAULT_REQUESTS = 1000
DEFAULT_INPUT, DEFAULT_OUTPUT = "1024", "128"
DEFAULT_SYSTEM, DEFAULT_QUESTION = "1024", "256"
DEFAULT_TURNS = 5
DEFAULT_BLOCK = 16
_MAX_CV = 20  # above it, gaps of a gamma process underflow to zero


def synthetic(spec: SyntheticSpec, options: WorkloadOptions) -> DescribedWorkload:
    """The workload of a spec."""
    if spec.kind == "closed":
        return _closed(spec, options)
    if spec.kind == "sessions":
        return _conversations(spec, options)
    times = _times(spec, options.seed)
    if "trace" in spec.options:
        return _timed_trace(spec, options, times)
    count = _count(spec, options, DEFAULT_REQUESTS)
    counts = RowCounts()
    stream, models = _lengths(spec, options).stream(0), spec.models()

    def requests() -> Iterator[Request]:
        for index, time_ns in enumerate(islice(times, count)):
            prompt, output, most = stream(index)
            counts.accepted += 1
            arrival_ns = scaled_ns(checked_ns(time_ns, spec.option("rate"), index), options.rate_scale)
            yield Request(
                index=index,
                arrival_ns=checked_ns(arrival_ns, "--rate-scale", index),
                prompt_tokens=prompt,
                output_tokens=output,
                max_output_tokens=most,
                model=models[index % len(models)],
            )

    return IteratedWorkload(requests(), description=spec.text, counts=counts, fraction=lambda: counts.accepted / count)


def _count(spec: SyntheticSpec, options: WorkloadOptions, default: int) -> int:
    stated = spec.integer("requests", options.requests or default)
    return min(stated or default, options.requests or stated or default)


def _closed(spec: SyntheticSpec, options: WorkloadOptions) -> ClosedLoop | ClosedTrace:
    if options.rate_scale != 1:
        raise UsageError(
            "--rate-scale does not apply to a closed loop, whose users set the rate; change users= or think="
        )
    users = positive_integer(spec.required("users"), spec.option("users"))
    think_ns = parse_duration_ns(spec.options.get("think", "0"), spec.option("think"))
    if "trace" in spec.options:
        limit, counts = _count(spec, options, 1 << 60), RowCounts()
        trace = open_trace(Path(spec.options["trace"]))
        rows = accepted_rows(trace, counts, skip_bad_rows=options.skip_bad_rows, limit=limit)
        return ClosedTrace(trace, rows, counts, users=users, think_ns=think_ns, limit=limit, description=spec.text)
    return ClosedLoop(
        users=users,
        think_ns=think_ns,
        requests=_count(spec, options, DEFAULT_REQUESTS),
        lengths=_lengths(spec, options).at,
        description=spec.text,
        models=spec.models(),
    )


def _conversations(spec: SyntheticSpec, options: WorkloadOptions) -> IteratedWorkload:
    """`sessions:`, open-loop arrivals of users who hold conversations; see `conversations`."""
    stages = _rate_stages(spec)
    ends = "seconds" in spec.options
    count = _count(spec, options, 1 << 60 if ends else DEFAULT_REQUESTS)
    read = LengthOptions(spec, options.skip_bad_rows)
    system, question = read.length("system", DEFAULT_SYSTEM, 0), read.length("question", DEFAULT_QUESTION, 0)
    conversations = Conversations(
        seed=options.seed,
        system_prompts=spec.integer("system_prompts", 1) or 1,
        users=spec.integer("users", 8) or 8,
        turns=spec.integer("turns", DEFAULT_TURNS) or DEFAULT_TURNS,
        block_tokens=spec.integer("block", DEFAULT_BLOCK) or DEFAULT_BLOCK,
        system=system,
        lengths=RequestLengths(options.seed, question, read.length("output", DEFAULT_OUTPUT, 1), read.max_output()),
        models=spec.models(),
    )
    counts = RowCounts()

    def requests() -> Iterator[Request]:
        for index, time_ns in enumerate(islice(staged_times(stages, options.seed), count)):
            counts.accepted += 1
            arrival_ns = scaled_ns(checked_ns(time_ns, spec.option("rate"), index), options.rate_scale)
            yield conversations.request(index, checked_ns(arrival_ns, "--rate-scale", index), spec.option("turns"))

    expected = min(count, sum((s.expected for s in stages), Fraction(0)) if ends else count)
    return IteratedWorkload(
        requests(),
        description=spec.text,
        counts=counts,
        fraction=lambda: min(1.0, counts.accepted / max(1.0, float(expected))),
        hash_block_tokens=conversations.block_tokens,
    )


def _rate_stages(spec: SyntheticSpec) -> list[RateStage]:
    """`rate=2.5+6,seconds=600`: each rate in turn for that long; without seconds one rate without end."""
    rates = [parse_ratio(text, spec.option("rate")) for text in spec.required("rate").split("+")]
    if "seconds" not in spec.options:
        if len(rates) > 1:
            reason = "several rates without durations"
            raise BadInput(spec.option("rate"), spec.options["rate"], reason, "give seconds= too, like seconds=600")
        return [RateStage(rates[0], None)]
    seconds = [parse_ratio(text, spec.option("seconds")) for text in spec.options["seconds"].split("+")]
    if len(seconds) == 1:
        seconds *= len(rates)
    if len(seconds) != len(rates):
        reason = f"{len(seconds)} durations for {len(rates)} rates"
        raise BadInput(spec.option("seconds"), spec.options["seconds"], reason, "give one for all, or one per rate")
    return [RateStage(rate, duration) for rate, duration in zip(rates, seconds, strict=True)]


def _times(spec: SyntheticSpec, seed: int) -> Iterator[int]:
    rate = parse_ratio(spec.required("rate"), spec.option("rate"))
    if spec.kind == "constant":
        return constant_times(rate)
    if spec.kind == "poisson":
        return poisson_times(rate, seed)
    cv = parse_ratio(spec.required("cv"), spec.option("cv"))
    if not Fraction(1, 100) <= cv <= _MAX_CV:
        raise BadInput(
            spec.option("cv"), spec.options["cv"], f"not between 0.01 and {_MAX_CV}", "use constant: below it"
        )
    return gamma_times(rate, cv, seed)


def _timed_trace(spec: SyntheticSpec, options: WorkloadOptions, times: Iterator[int]) -> IteratedWorkload:
    """The rows of a trace in file order, with the times of an arrival process."""
    limit = _count(spec, options, 1 << 60)
    trace = open_trace(Path(spec.options["trace"]))
    counts = RowCounts()
    rows = accepted_rows(trace, counts, skip_bad_rows=options.skip_bad_rows, limit=limit)

    def requests() -> Iterator[Request]:
        for index, (row, time_ns) in enumerate(zip(rows, times, strict=False)):
            arrival_ns = scaled_ns(checked_ns(time_ns, spec.option("rate"), index), options.rate_scale)
            yield row.request(index, checked_ns(arrival_ns, "--rate-scale", index))

    return IteratedWorkload(
        requests(),
        description=spec.text,
        counts=counts,
        fraction=lambda: max(trace.file.fraction(), counts.accepted / limit),
        hash_block_tokens=trace.hash_block_tokens,
    )


def _lengths(spec: SyntheticSpec, options: WorkloadOptions) -> RequestLengths:
    read = LengthOptions(spec, options.skip_bad_rows)
    prompt, output = read.length("input", DEFAULT_INPUT, 0), read.length("output", DEFAULT_OUTPUT, 1)
    return RequestLengths(options.seed, prompt, output, read.max_output())
