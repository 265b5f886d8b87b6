"""The text of a length distribution, as an option of a synthetic workload, and what it stands for."""

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
from stageline.workload.reading import rows_of
from stageline.workload.registry import open_trace
from stageline.workload.rows import RowCounts
from stageline.workload.spec import Spec, parse_call, positive_integer

_LENGTHS = "an integer, uniform(a,b), lognormal(mean,sigma), lognormal(mean,cv=x) or trace(FILE)"


class LengthOptions:
    """The lengths of one spec. `column`: 0, the prompts of a trace, or 1, its outputs."""

    def __init__(self, spec: Spec, skip_bad_rows: bool) -> None:
        self._spec = spec
        self._read = _TraceLengths(skip_bad_rows)

    def named(self, name: str, default: str, column: int) -> Length:
        """The length that an option gives. BadInput when it gives none."""
        text = self._spec.options.get(name, default)
        return _length(text, self._spec.place(name), lambda file: self._read.column(file, column))


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
