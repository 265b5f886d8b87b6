"""Measured requests: arrival, lengths, and the times of the first and last token.

One JSON object per line, or a CSV with a header. docs/planning.md has the columns ("Calibration").
"""

import csv
from collections.abc import Iterator, Mapping

import msgspec

from stageline.engine.types import Request
from stageline.errors import BadInput
from stageline.units import NS_PER_S, decimal_ns, rounded_ratio
from stageline.workload.rows import MAX_TOKENS

UNITS = {"_ns": 1, "_us": 1_000, "_ms": 1_000_000, "_s": NS_PER_S, "_ts": NS_PER_S}
PROMPT = ("prompt_tokens", "input_tokens", "input_toks")
OUTPUT = ("output_tokens", "output_toks")
MIN_REQUESTS = 8
MAX_NS_DIGITS = 19  # digits: wall clocks count ns since 1970

_ROW = msgspec.json.Decoder(dict[str, object], float_hook=str)


class MeasuredTimes(msgspec.Struct, frozen=True):
    """One request, in ns from its arrival. `tpot_ns` None: it has a single output token."""

    ttft_ns: int
    tpot_ns: int | None
    e2e_ns: int


class Timings(msgspec.Struct, frozen=True):
    """Requests in order of arrival, the first at 0, with the measured times of each; `left_out` counts failed ones."""

    requests: tuple[Request, ...]
    times: tuple[MeasuredTimes, ...]
    left_out: int


def read_timings(text: str, place: str) -> Timings:
    """Parses measured requests. Raises BadInput with line, column and value."""
    rows: list[tuple[int, int, int, MeasuredTimes]] = []
    left_out = 0
    for number, row in _rows(text, place):
        found = _request(row, f"{place}:{number}")
        if found is None:
            left_out += 1
        else:
            rows.append(found)
    if len(rows) < MIN_REQUESTS:
        raise BadInput(place, len(rows), f"fewer than {MIN_REQUESTS} measured requests", "give a longer run")
    return in_order(rows, left_out)


def in_order(rows: list[tuple[int, int, int, MeasuredTimes]], left_out: int) -> Timings:
    """From arrival, prompt tokens, output tokens and times of each request, at least one, in any order."""
    ranked = sorted(rows, key=lambda row: row[0])
    start = ranked[0][0]
    requests = tuple(
        Request(index=i, arrival_ns=at - start, prompt_tokens=prompt, output_tokens=out, max_output_tokens=out)
        for i, (at, prompt, out, _) in enumerate(ranked)
    )
    return Timings(requests, tuple(row[3] for row in ranked), left_out)


def _rows(text: str, place: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """(line number, column -> text); null and empty cells are left out."""
    lines = text.splitlines()
    if text.lstrip()[:1] != "{":
        for number, row in enumerate(csv.DictReader(lines), 2):
            yield number, {k: v.strip() for k, v in row.items() if k and isinstance(v, str) and v.strip()}
        return
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                members = _ROW.decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                raise BadInput(f"{place}:{number}", line[:80], "not a JSON object", "give one per line") from None
            yield number, {key: str(value) for key, value in members.items() if value is not None}


def _request(row: Mapping[str, str], place: str) -> tuple[int, int, int, MeasuredTimes] | None:
    """Arrival, prompt tokens, output tokens and times; None: it produced no token."""
    arrival = _time(row, ("queued", "arrival"), place)
    if arrival is None:
        raise BadInput(place, None, "no arrival time", "give a column arrival_s, arrival_ms or arrival_ns")
    prompt, out = _tokens(row, PROMPT, place), _tokens(row, OUTPUT, place)
    first = _span(row, arrival, ("first_token",), ("ttft",), place)
    if first is None or not out:
        return None
    last = _span(row, arrival, ("last_token",), ("e2e", "latency"), place)
    tpot = _time(row, ("tpot",), place)
    if last is None and (tpot is not None or out == 1):
        last = first + (tpot or 0) * (out - 1)
    if last is None or last < first:
        reason = "no last token" if last is None else "the last token comes before the first"
        raise BadInput(place, last, reason, "give one of e2e_s, tpot_s or last_token_s")
    each = rounded_ratio(last - first, out - 1) if out > 1 else None
    return arrival, max(1, prompt), out, MeasuredTimes(first, each, last)


def _span(
    row: Mapping[str, str], arrival: int, moments: tuple[str, ...], spans: tuple[str, ...], place: str
) -> int | None:
    """Time since the arrival, from a duration, or from a timestamp on the clock of the arrivals."""
    span = _time(row, spans, place)
    if span is not None:
        return span
    moment = _time(row, moments, place)
    if moment is None:
        return None
    if moment < arrival:
        raise BadInput(place, moment, f"{moments[0]} comes before the arrival", "give both on one clock")
    return moment - arrival


def _time(row: Mapping[str, str], names: tuple[str, ...], place: str) -> int | None:
    """The first of these columns that exists, with any unit suffix, in ns."""
    for name in names:
        for suffix, unit_ns in UNITS.items():
            text = row.get(name + suffix)
            if text is not None:
                whole = unit_ns == 1 and text.isascii() and text.isdecimal() and len(text) <= MAX_NS_DIGITS
                value = int(text) if whole else decimal_ns(text, unit_ns)
                if value is None:
                    raise BadInput(f"{place}, column {name}{suffix}", text, "not a time", "write it like 1.25")
                return value
    return None


def _tokens(row: Mapping[str, str], names: tuple[str, ...], place: str) -> int:
    for name in names:
        text = row.get(name)
        if text is not None:
            if not text.isascii() or not text.isdecimal() or not len(text) < 12 or int(text) > MAX_TOKENS:
                raise BadInput(f"{place}, column {name}", text, f"not a count from 0 to {MAX_TOKENS:,}")
            return int(text)
    raise BadInput(place, None, f"no column {names[0]}", f"known names: {', '.join(names)}")
