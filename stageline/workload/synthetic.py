"""From a parsed spec to a source: arrival processes, closed loops and length distributions."""

from array import array
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path

from stageline.engine.types import Request
from stageline.errors import BadInput, UsageError
from stageline.units import parse_duration_ns, parse_ratio
from stageline.workload.arrivals import constant_times, gamma_times, poisson_times
from stageline.workload.lengths import (
    ConstantLength,
    Length,
    Lengths,
    LognormalLength,
    TraceLength,
    UniformLength,
    checked_tokens,
)
from stageline.workload.options import Options
from stageline.workload.order import checked_ns, scaled_ns
from stageline.workload.reading import rows_of
from stageline.workload.registry import open_trace
from stageline.workload.rows import RowCounts
from stageline.workload.sources import ClosedLoop, StreamSource, Workload
from stageline.workload.spec import Spec, parse_call, positive_integer

DEFAULT_REQUESTS = 1000
DEFAULT_INPUT, DEFAULT_OUTPUT = "1024", "128"
_LENGTHS = "an integer, uniform(a,b), lognormal(mean,sigma), lognormal(mean,cv=x) or trace(FILE)"
_MAX_CV = 20  # beyond it, gaps of a gamma process underflow to zero


def synthetic(spec: Spec, options: Options) -> Workload:
    """The source of a spec."""
    if spec.kind == "closed":
        return _closed(spec, options)
    times = _times(spec, options.seed)
    if "trace" in spec.options:
        return _timed_trace(spec, options, times)
    count = _count(spec, options, DEFAULT_REQUESTS)
    counts = RowCounts()
    stream = _lengths(spec, options).stream(0)

    def requests() -> Iterator[Request]:
        for index, time_ns in enumerate(islice(times, count)):
            prompt, output = stream(index)
            counts.accepted += 1
            arrival_ns = scaled_ns(checked_ns(time_ns, spec.place("rate"), index), options.rate_scale)
            yield Request(
                index=index,
                arrival_ns=checked_ns(arrival_ns, "--rate-scale", index),
                prompt_tokens=prompt,
                output_tokens=output,
                max_output_tokens=output,
            )

    return StreamSource(requests(), description=spec.text, counts=counts, fraction=lambda: counts.accepted / count)


def _count(spec: Spec, options: Options, default: int) -> int:
    stated = spec.integer("requests", options.requests or default)
    return min(stated or default, options.requests or stated or default)


def _closed(spec: Spec, options: Options) -> ClosedLoop:
    if options.rate_scale != 1:
        raise UsageError(
            "--rate-scale has no meaning for a closed loop, whose rate is its users'; change users= or think="
        )
    return ClosedLoop(
        users=positive_integer(spec.required("users"), spec.place("users")),
        think_ns=parse_duration_ns(spec.options.get("think", "0"), spec.place("think")),
        requests=_count(spec, options, DEFAULT_REQUESTS),
        lengths=_lengths(spec, options).at,
        description=spec.text,
    )


def _times(spec: Spec, seed: int) -> Iterator[int]:
    rate = parse_ratio(spec.required("rate"), spec.place("rate"))
    if spec.kind == "constant":
        return constant_times(rate)
    if spec.kind == "poisson":
        return poisson_times(rate, seed)
    cv = parse_ratio(spec.required("cv"), spec.place("cv"))
    if not Fraction(1, 100) <= cv <= _MAX_CV:
        raise BadInput(
            spec.place("cv"), spec.options["cv"], f"not between 0.01 and {_MAX_CV}", "use constant: below it"
        )
    return gamma_times(rate, cv, seed)


def _timed_trace(spec: Spec, options: Options, times: Iterator[int]) -> StreamSource:
    """The rows of a trace in file order, with the times of an arrival process."""
    limit = _count(spec, options, 1 << 60)
    trace = open_trace(Path(spec.options["trace"]))
    counts = RowCounts()
    rows = rows_of(trace, counts, skip_bad_rows=options.skip_bad_rows, limit=limit)

    def requests() -> Iterator[Request]:
        for index, (row, time_ns) in enumerate(zip(rows, times, strict=False)):
            arrival_ns = scaled_ns(checked_ns(time_ns, spec.place("rate"), index), options.rate_scale)
            yield row.request(index, checked_ns(arrival_ns, "--rate-scale", index))

    return StreamSource(
        requests(),
        description=spec.text,
        counts=counts,
        fraction=lambda: max(trace.file.fraction(), counts.accepted / limit),
        hash_block_tokens=trace.hash_block_tokens,
    )


def _lengths(spec: Spec, options: Options) -> Lengths:
    read = _TraceLengths(options.skip_bad_rows)
    prompt = _length(spec.options.get("input", DEFAULT_INPUT), spec.place("input"), lambda f: read.column(f, 0))
    output = _length(spec.options.get("output", DEFAULT_OUTPUT), spec.place("output"), lambda f: read.column(f, 1))
    return Lengths(options.seed, prompt, output)


def parse_length(text: str, place: str) -> Length:
    """A distribution of output lengths as a user writes it. BadInput says what is wrong with it."""
    read = _TraceLengths(skip_bad_rows=False)
    return _length(text, place, lambda file: read.column(file, 1))


def _length(text: str, place: str, column: Callable[[str], "array[int]"]) -> Length:
    call = parse_call(text, place)
    if call is None:
        return ConstantLength(checked_tokens(positive_integer(text, place), place))
    name, arguments = call
    if name == "uniform" and len(arguments) == 2:
        low, high = (checked_tokens(positive_integer(a, place), place) for a in arguments)
        if low > high:
            raise BadInput(place, text, "the first bound is above the second", "write uniform(low,high)")
        return UniformLength(low, high)
    if name == "lognormal" and len(arguments) == 2:
        return _lognormal(arguments[0].removeprefix("mean="), arguments[1], place)
    if name == "trace" and len(arguments) == 1:
        return TraceLength(column(arguments[0]))
    raise BadInput(place, text, "no length distribution", f"give {_LENGTHS}")


def _lognormal(mean: str, spread: str, place: str) -> LognormalLength:
    name, equals, value = spread.partition("=")
    if not equals:
        name, value = "sigma", spread
    if name not in ("sigma", "cv"):
        raise BadInput(place, spread, "neither sigma nor cv", f"give {_LENGTHS}")
    spread_ratio = parse_ratio(value, place)
    if spread_ratio > 10:
        raise BadInput(place, value, f"{name} above 10", "give a smaller spread")
    exact_mean = parse_ratio(mean, place)
    return LognormalLength(exact_mean, **{name: spread_ratio})


class _TraceLengths:
    """Prompt and output tokens of traces, each file read once."""

    def __init__(self, skip_bad_rows: bool) -> None:
        self._skip = skip_bad_rows
        self._files: dict[str, tuple[array[int], array[int]]] = {}

    def column(self, file: str, which: int) -> "array[int]":
        """Column 0: prompt tokens, 1: output tokens, of all accepted rows."""
        if file not in self._files:
            columns = array("q"), array("q")
            for row in rows_of(open_trace(Path(file)), RowCounts(), skip_bad_rows=self._skip):
                columns[0].append(row.prompt_tokens)
                columns[1].append(row.output_tokens)
            if not columns[0]:
                raise BadInput(f"workload {file}", None, "no usable row", "give a trace with at least one request")
            self._files[file] = columns
        return self._files[file][which]
