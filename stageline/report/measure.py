"""The measurement window of a run: where throughput and goodput are taken, without warm-up and drain.

Rates count what happens in (from, to]: offered are arrivals, served are completions, each over the window's length.
Requests keep their own figures, and the stages' window (rule 7) stays the run's.

`auto` begins where the system is stationary. The arrivals' span is cut into PIECES of equal length, and in each the
mean number of requests that queue and of those that run is taken. The window begins with the first piece, at most half
way, from which on both numbers hold still: their means over the first and over the second half of what remains differ
by at most TOLERANCE of the mean over both, or by one request.
"""

import re
from array import array
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stageline.engine.types import RequestRecord
from stageline.errors import BadInput, UsageError
from stageline.units import NS_PER_S, format_duration, parse_duration_ns

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
    offered_requests_per_s: float  # arrivals in the window / its length
    served_requests_per_s: float  # completions in it / its length
    served_output_tokens_per_s: float  # tokens of the requests that completed in it / its length
    goodput_requests_per_s: float | None = None  # completions in it that met the objective; None: there is none
    stationary: bool | None = None  # whether `auto` found where the system is; None: it was not asked
    remark: str = ""  # why the window is not the one that was asked for


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

    def rates(self, *, objective: bool) -> MeasuredRates | None:
        """None when there is no time to measure in: all arrived at once and nothing finished later."""
        if not self._arrivals:
            return None
        arrivals = np.sort(np.array(self._arrivals, np.int64))
        ends = np.array(self._ends, np.int64)
        first, last = int(arrivals[0]), int(arrivals[-1])
        if last == first or self.window.kind == "all":
            last = max(last, int(ends.max()))
        if last == first:
            return None
        from_ns, to_ns, stationary, remark = self._bounds(arrivals, first, last)
        length_ns = to_ns - from_ns
        inside = (ends > from_ns) & (ends <= to_ns)
        offered = int(((arrivals > from_ns) & (arrivals <= to_ns)).sum())

        def per_s(count: int) -> float:
            return count * NS_PER_S / length_ns

        return MeasuredRates(
            window=self._words(from_ns - first, to_ns - first, stationary, at_once=last > int(arrivals[-1])),
            from_s=(from_ns - first) / NS_PER_S,
            to_s=(to_ns - first) / NS_PER_S,
            span_s=length_ns / NS_PER_S,
            offered_requests_per_s=per_s(offered),
            served_requests_per_s=per_s(int(inside.sum())),
            served_output_tokens_per_s=per_s(int(np.array(self._tokens, np.int64)[inside].sum())),
            goodput_requests_per_s=per_s(int(np.array(self._good, np.int64)[inside].sum())) if objective else None,
            stationary=stationary,
            remark=remark,
        )

    def _bounds(self, arrivals: NDArray[np.int64], first: int, last: int) -> tuple[int, int, bool | None, str]:
        """(from, to, whether it is stationary, a remark)."""
        asked = self.window
        if asked.kind == "auto":
            start = self._stationary_from(arrivals, first, last)
            if start is None:
                return first, last, False, "queue and running requests hold still nowhere: this is no steady state"
            return start, last, True, ""
        start = first + asked.from_ns
        if asked.warmup_requests:
            if asked.warmup_requests >= len(arrivals):
                return first, last, None, f"only {len(arrivals):,} requests came: all of them are warm-up"
            start = int(arrivals[asked.warmup_requests])
        end = last
        if asked.kind == "fixed":
            end = start + asked.to_ns - asked.from_ns
        ended = max(last, *self._ends)
        if start >= min(end, last):
            return first, last, None, f"the last request came after {_since(last - first)}, before the window begins"
        if end > ended:
            return start, ended, None, f"the run ended after {_since(ended - first)}, before the window does"
        return start, end, None, ""

    def _stationary_from(self, arrivals: NDArray[np.int64], first: int, last: int) -> int | None:
        if len(arrivals) < FEWEST:
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

    def _words(self, from_ns: int, to_ns: int, stationary: bool | None, *, at_once: bool) -> str:
        if stationary:
            return f"steady state, found from {_since(from_ns)} to {_since(to_ns)}"
        if from_ns or self.window.kind == "fixed":
            return f"from {_since(from_ns)} to {_since(to_ns)} after the first arrival"
        return "from the first arrival to the last completion" if at_once else "the arrivals' span"


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
