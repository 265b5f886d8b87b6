"""Parses length distributions: the options of a synthetic workload, and `--output-lengths` of the router."""

from array import array
from collections.abc import Callable
from pathlib import Path

from stageline.errors import BadInput
from stageline.units import parse_ratio
from stageline.workload.lengths import (
    ConstantLength,
    Length,
    LognormalLength,
    TraceLength,
    UniformLength,
    checked_tokens,
)
from stageline.workload.reading import accepted_rows
from stageline.workload.registry import open_trace
from stageline.workload.rows import RowCounts
from stageline.workload.spec import SyntheticSpec, parse_call, positive_integer

_LENGTHS = "an integer, uniform(a,b), lognormal(mean,sigma), lognormal(mean,cv=x) or trace(FILE)"


class LengthOptions:
    """The length distributions of one spec. `column` picks prompt tokens (0) or output tokens (1) of a trace."""

    def __init__(self, spec: SyntheticSpec, skip_bad_rows: bool) -> None:
        self._spec = spec
        self._read = _TraceLengths(skip_bad_rows)

    def length(self, name: str, default: str, column: int) -> Length:
        """The distribution that an option describes. Raises BadInput if it describes none."""
        text = self._spec.options.get(name, default)
        return _length(text, self._spec.option(name), lambda file: self._read.column(file, column))

    def max_output(self) -> Length | None:
        """What `max_output=` describes; None if it is not given."""
        return self.length("max_output", "", 1) if "max_output" in self._spec.options else None


def parse_length(text: str, place: str) -> Length:
    """Parses a distribution of output lengths. Raises BadInput."""
    read = _TraceLengths(skip_bad_rows=False)
    return _length(text, place, lambda file: read.column(file, 1))


def _length(text: str, place: str, column: Callable[[str], "array[int]"]) -> Length:
    call = parse_call(text, place)
    if call is None:
        return ConstantLength(checked_tokens(_constant(text, place), place))
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
    raise BadInput(place, text, "not a length distribution", f"give {_LENGTHS}")


def _constant(text: str, place: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadInput(place, text, "not a length", f"give {_LENGTHS}")
    return positive_integer(text, place)


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
        """Prompt tokens (0) or output tokens (1) of all accepted rows."""
        if file not in self._files:
            columns = array("q"), array("q")
            for row in accepted_rows(open_trace(Path(file)), RowCounts(), skip_bad_rows=self._skip):
                columns[0].append(row.prompt_tokens)
                columns[1].append(row.output_tokens)
            if not columns[0]:
                raise BadInput(f"workload {file}", None, "no usable row", "give a trace with at least one request")
            self._files[file] = columns
        return self._files[file][which]
