"""The measurement window of a run: where throughput, goodput, attainment and cost are taken.

`run`, `sweep`, `search` and `tune` all take their rates from here. Without flags the window is the arrivals' span.
Where that is shorter than FILLED median requests, it goes on for as long as those take, or until the last completion:
rates in less time would be those of a pipeline that still fills. So there is no step where arrivals become brief.

Served are completions in (from, to], offered are arrivals after the one that begins the window, each over the window's
length. Attainment is that of the requests that arrived in it. Latencies are of all requests, and the stages' window
(rule 7) stays the run's.

`auto` begins where the system is stationary. The arrivals' span is cut into PIECES of equal length, and in each the
mean number of requests that queue and of those that run is taken. The window begins with the first piece, at most half
way, from which on both numbers hold still: their means over the first and over the second half of what remains differ
by at most TOLERANCE of the mean over both, or by one request.
"""

import re
from array import array
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stageline.engine.types import RequestRecord
from stageline.errors import BadInput, UsageError
from stageline.units import NS_PER_S, format_duration, parse_duration_ns

FILLED = 5  # median requests, one after the other, that must fit into the window
PIECES, TOLERANCE = 20, 0.1
FEWEST = 2 * PIECES  # requests, below which nothing can be called stationary
MAX_DIGITS = 9
_PLACE = "--measure-window"
Floats = NDArray[np.float64]


class MeasureWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a run is measured. Times in ns since the first arrival; `to_ns` 0: until the last arrival."""

    kind: Literal["arrivals", "all", "auto", "fixed"] = "arrivals"
    warmup_requests: int = 0
    from_ns: int = 0
    to_ns: int = 0
    warmup: str = ""  # as it was asked for
    text: str = ""


ARRIVALS = MeasureWindow()


class MeasuredRates(msgspec.Struct, frozen=True, kw_only=True):
    """`measured` of summary.json. Times in emulated seconds since the first arrival."""

    window: str  # in words
    from_s: float
    to_s: float
    span_s: float
    offered_requests_per_s: float | None  # arrivals in the window / its length; None: a closed loop, or all at once
    served_requests_per_s: float  # completions in it / its length
    served_output_tokens_per_s: float  # tokens of the requests that completed in it / its length
    goodput_requests_per_s: float | None = None  # completions in it that met the objective; None: there is none
    stationary: bool | None = None  # whether `auto` found where the system is; None: it was not asked
    remark: str = ""  # why the window is not the one that was asked for
    arrivals_s: float | None = None  # from the first arrival to the last; None: an older version


NOTHING = MeasuredRates(
    window="no time passed",
    from_s=0.0,
    to_s=0.0,
    span_s=0.0,
    offered_requests_per_s=None,
    served_requests_per_s=0.0,
    served_output_tokens_per_s=0.0,
    arrivals_s=0.0,
)  # of a run in which nothing was served


class Judged(NamedTuple):
    """Requests that arrived in the window, and how many of them met the objective."""

    good: int
    requests: int


class _Window(NamedTuple):
    """Absolute times in ns. `words` and `remark` as in MeasuredRates."""

    from_ns: int
    to_ns: int
    words: str
    stationary: bool | None = None
    remark: str = ""


def parse_measure(warmup: str | None, window: str | None) -> MeasureWindow:
    """`--warmup 50|30s` and `--measure-window auto|all|30s|30s..90s`. Raises BadInput or UsageError."""
    requests, start_ns = (0, 0) if warmup is None else _parse_warmup(warmup)
    told = MeasureWindow(warmup_requests=requests, from_ns=start_ns, warmup=warmup or "", text=window or "")
    if window is None:
        return told
    start, dots, end = window.partition("..")
    if warmup is not None and (dots or window in ("auto", "all")):
        raise UsageError(f"--measure-window {window} says where it begins, and so does --warmup: give one of them")
    if window in {"auto", "all"}:
        return msgspec.structs.replace(told, kind=window)
    from_ns = parse_duration_ns(start, _PLACE) if dots else start_ns
    to_ns = parse_duration_ns(end, _PLACE) if dots else from_ns + parse_duration_ns(window, _PLACE)
    if to_ns <= from_ns:
        raise BadInput(_PLACE, window, "nothing lies in it", "write it like auto, all, 60s or 30s..90s")
    return msgspec.structs.replace(told, kind="fixed", from_ns=from_ns, to_ns=to_ns)


def _parse_warmup(text: str) -> tuple[int, int]:
    """(requests, ns)."""
    if re.fullmatch(r"[0-9]{1,200}", text):
        if len(text) > MAX_DIGITS:
            raise BadInput("--warmup", text, "too large", f"give at most {MAX_DIGITS} digits")
        return int(text), 0
    try:
        return 0, parse_duration_ns(text, "--warmup")
    except BadInput:
        reason = "neither a number of requests nor a time"
        raise BadInput("--warmup", text, reason, "write it like 50 or 30s") from None


class Measurement:
    """Accumulates what every window needs: 33 bytes per request."""

    def __init__(self, window: MeasureWindow = ARRIVALS) -> None:
        self.window = window
        self._arrivals, self._admissions, self._ends = array("q"), array("q"), array("q")  # -1: it did not happen
        self._tokens, self._good = array("q"), array("b")

    def request(self, record: RequestRecord, *, good: bool) -> None:
        """Adds one record; `good`: it finished and met the objective."""
        finished = record.outcome == "finished" and record.last_token_ns is not None
        self._arrivals.append(record.arrival_ns)
        self._admissions.append(-1 if record.admitted_ns is None else record.admitted_ns)
        self._ends.append(record.last_token_ns if finished and record.last_token_ns is not None else -1)
        self._tokens.append(record.output_tokens)
        self._good.append(good)

    def judged(self) -> Judged:
        """Of the requests that arrived in the window; of all where there is no time to measure in, or none arrived."""
        window, arrivals, good = self._window(), np.array(self._arrivals, np.int64), np.array(self._good, np.int64)
        if window is not None:
            inside = (arrivals >= window.from_ns) & (arrivals <= window.to_ns)
            if inside.any():
                return Judged(int(good[inside].sum()), int(inside.sum()))
        return Judged(int(good.sum()), len(good))

    def rates(self, *, objective: bool, closed: bool = False) -> MeasuredRates | None:
        """None when there is no time to measure in: all arrived at once and nothing finished later.

        `closed`: requests wait for replies, so that the load is what the system serves and nothing is offered to it.
        """
        window = self._window()
        if window is None:
            return None
        arrivals, ends = np.array(self._arrivals, np.int64), np.array(self._ends, np.int64)
        first, last, length_ns = int(arrivals.min()), int(arrivals.max()), window.to_ns - window.from_ns
        inside = (ends > window.from_ns) & (ends <= window.to_ns)

        def per_s(count: int) -> float:
            return count * NS_PER_S / length_ns

        return MeasuredRates(
            window=window.words,
            from_s=(window.from_ns - first) / NS_PER_S,
            to_s=(window.to_ns - first) / NS_PER_S,
            span_s=length_ns / NS_PER_S,
            offered_requests_per_s=None if closed else _offered(arrivals, window),
            served_requests_per_s=per_s(int(inside.sum())),
            served_output_tokens_per_s=per_s(int(np.array(self._tokens, np.int64)[inside].sum())),
            goodput_requests_per_s=per_s(int(np.array(self._good, np.int64)[inside].sum())) if objective else None,
            stationary=window.stationary,
            remark=window.remark,
            arrivals_s=(last - first) / NS_PER_S,
        )

    def _window(self) -> _Window | None:
        """None when there is no time to measure in."""
        if not self._arrivals:
            return None
        arrivals = np.array(self._arrivals, np.int64)
        first, last = int(arrivals.min()), int(arrivals.max())
        ended = max(last, int(np.array(self._ends, np.int64).max()))
        return None if ended == first else self._bounds(first, last, ended)

    def _bounds(self, first: int, last: int, ended: int) -> _Window:
        if self.window.kind == "all":
            return _Window(first, ended, _WHOLE)
        if self.window.kind == "auto":
            return self._stationary(first, last, ended)
        return self._asked(first, last, ended)

    def _stationary(self, first: int, last: int, ended: int) -> _Window:
        start = self._stationary_from(first, last)
        if start is None:
            still = "queue and running requests hold still nowhere: this is no steady state"
            return self._whole(first, last, ended)._replace(stationary=False, remark=still)
        return _Window(start, last, f"steady state, found {_between(start - first, last - first)}", True)

    def _asked(self, first: int, last: int, ended: int) -> _Window:
        """What --warmup and --measure-window ask for, or all with a remark where nothing lies in that."""
        asked, whole = self.window, self._whole(first, last, ended)
        start = first + asked.from_ns
        if asked.warmup_requests:
            if asked.warmup_requests >= len(self._arrivals):
                return whole._replace(remark=f"only {len(self._arrivals):,} requests came: all of them are warm-up")
            start = int(np.sort(np.array(self._arrivals, np.int64))[asked.warmup_requests])
        end = start + asked.to_ns - asked.from_ns if asked.kind == "fixed" else whole.to_ns
        if start >= min(end, last if last > first else ended):
            came = f"the last request came after {_since(last - first)}, before the window begins"
            return whole._replace(remark=came)
        if asked.kind == "arrivals" and start == first:
            return whole
        remark = f"the run ended after {_since(ended - first)}, before the window does" if end > ended else ""
        end = min(end, ended)
        return _Window(start, end, f"{_between(start - first, end - first)} after the first arrival", remark=remark)

    def _whole(self, first: int, last: int, ended: int) -> _Window:
        """The window of a run for which none was asked."""
        if first == last:
            return _Window(first, ended, _WHOLE)
        filled = first + FILLED * self._median_ns()
        if filled <= last:
            return _Window(first, last, "the arrivals' span")
        if filled >= ended:
            return _Window(first, ended, f"{_WHOLE}, as arrivals are brief")
        return _Window(first, filled, f"{_between(0, filled - first)} after the first arrival, as arrivals are brief")

    def _median_ns(self) -> int:
        """A median request, from its arrival to its last token; 0 if none finished."""
        ends = np.array(self._ends, np.int64)
        times = np.sort((ends - np.array(self._arrivals, np.int64))[ends >= 0])
        return int(times[(len(times) - 1) // 2]) if len(times) else 0

    def _stationary_from(self, first: int, last: int) -> int | None:
        if len(self._arrivals) < FEWEST or first == last:
            return None
        admissions, ends = np.array(self._admissions, np.int64), np.array(self._ends, np.int64)
        finished = ends >= 0
        edges = [first + (last - first) * i // PIECES for i in range(PIECES + 1)]
        came = _stays(np.array(self._arrivals, np.int64)[finished], edges)
        admitted, left = _stays(admissions[finished], edges), _stays(ends[finished], edges)
        series = (came - admitted, admitted - left)
        for piece in range(PIECES // 2 + 1):
            if all(_holds_still(values[piece:]) for values in series):
                return edges[piece]
        return None


_WHOLE = "from the first arrival to the last completion"


def _offered(arrivals: NDArray[np.int64], window: _Window) -> float | None:
    """Per second of the window in which requests arrive; the one that begins it comes before its first gap."""
    length_ns = min(window.to_ns, int(arrivals.max())) - window.from_ns
    came = int(((arrivals >= window.from_ns) & (arrivals <= window.to_ns)).sum())
    came -= bool((arrivals == window.from_ns).any())
    return came * NS_PER_S / length_ns if length_ns > 0 else None


def _between(from_ns: int, to_ns: int) -> str:
    return f"from {_since(from_ns)} to {_since(to_ns)}"


def _since(ns: int) -> str:
    return format_duration(ns)


def _stays(times: NDArray[np.int64], edges: list[int]) -> Floats:
    """Per piece, the mean over its time of how many of `times` have passed."""
    passed = np.array([np.maximum(edge - times, 0).astype(np.float64).sum() for edge in edges])
    lengths: Floats = np.maximum(np.diff(np.array(edges, np.float64)), 1)
    means: Floats = np.diff(passed) / lengths
    return means


def _holds_still(values: Floats) -> bool:
    half = len(values) // 2
    early, late = float(values[:half].mean()), float(values[half:].mean())
    return abs(early - late) <= max(1.0, TOLERANCE * float(values.mean()))
