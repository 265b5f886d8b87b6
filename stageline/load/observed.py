"""The timings of an observation, as `stageline calibrate` compares them with an emulation.

Times count from when a server got a call, not from when it was due: what the client held back is no work of the
server's. Where replies carry emulated times these count, else wall time, over the dilation if the server has one.
"""

import csv
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from stageline.errors import UsageError
from stageline.load.observation import Observation, read_observation
from stageline.load.recorder import REQUESTS_FILE
from stageline.load.time_map import TimeMap
from stageline.units import parse_ratio, rounded_ratio
from stageline.wire.http_headers import DILATION_HEADER
from stageline.workload.timings import MIN_REQUESTS, MeasuredTimes, Timings, in_order

MOST_HITS = 0.01  # of the prompt tokens, that a prefix cache may have found
MOST_LOST = 0.05  # of the calls, that may not have finished
Row = tuple[int, int, int, MeasuredTimes]  # arrival, prompt tokens, output tokens, times


def observed_timings(directory: Path, max_num_seqs: int) -> Timings:
    """The finished calls of an observation. Raises UsageError for one that cannot be compared with an emulation."""
    seen = read_observation(directory)
    _check(seen, directory, max_num_seqs)
    path = directory / REQUESTS_FILE
    try:
        with path.open(encoding="ascii", newline="") as lines:
            calls = list(csv.DictReader(lines))
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}; make it with stageline observe") from None
    factor = parse_ratio(seen.dilations[0], DILATION_HEADER) if seen.dilations and seen.clock == "emulated" else None
    try:
        finished = [call for call in calls if call["outcome"] == "finished" and call["first_ns"]]
        stamped = factor is not None and all(call["server_arrival_ns"] for call in finished)
        rows = [_emulated(call) if stamped else _wall(call, factor or Fraction(1)) for call in finished]
    except (KeyError, ValueError) as error:
        raise UsageError(f"{path}: not what stageline observe writes: {error}; observe again") from None
    if len(rows) < MIN_REQUESTS:
        raise UsageError(f"{path}: {len(rows)} finished calls, fewer than {MIN_REQUESTS}; observe a longer run")
    return in_order(rows, left_out=len(calls) - len(rows))


def _check(seen: Observation, directory: Path, max_num_seqs: int) -> None:
    calls = seen.calls["total"]
    lost = calls - seen.calls["finished"]
    if lost > MOST_LOST * calls:
        raise UsageError(
            f"{directory}: {lost} of {calls} calls did not finish, and their work would be missing from the fit; "
            "observe a load that the server carries"
        )
    hits = seen.metrics.prefix_hit_ratio
    if seen.shared_prefixes or (hits is not None and hits > MOST_HITS):
        raise UsageError(
            f"{directory}: prompts had common beginnings, which a prefix cache saves in part; constants are fitted to "
            "prompts of their own: observe without --turns, and with a workload such as poisson: or a trace without "
            "hash ids"
        )
    peak = seen.metrics.running_peak
    if peak is not None and peak > max_num_seqs:
        raise UsageError(
            f"{directory}: the server ran {peak:g} requests at once, more than --max-num-seqs {max_num_seqs}; give the "
            "server's own limit"
        )
    if len(seen.dilations) > 1:
        raise UsageError(f"{directory}: the server changed its dilation meanwhile: {', '.join(seen.dilations)}")


def _emulated(call: Mapping[str, str]) -> Row:
    first, last = int(call["server_ttft_ns"]), int(call["server_e2e_ns"])
    return _row(call, int(call["server_arrival_ns"]), first, last)


def _wall(call: Mapping[str, str], factor: Fraction) -> Row:
    sent, clock = int(call["sent_ns"]), TimeMap(factor, 0)
    first, last = (clock.shrunk_ns(int(call[name]) - sent) for name in ("first_ns", "last_ns"))
    return _row(call, clock.shrunk_ns(sent), first, last)


def _row(call: Mapping[str, str], arrival_ns: int, first_ns: int, last_ns: int) -> Row:
    tokens = int(call["output_tokens"])
    prompt = int(call["prompt_tokens"] or call["asked_prompt_tokens"])
    each = rounded_ratio(last_ns - first_ns, tokens - 1) if tokens > 1 else None
    return arrival_ns, max(1, prompt), tokens, MeasuredTimes(first_ns, each, last_ns)
