"""A recorded live session: a header with all settings behind its digest, then arrivals and cancellations in order.

    {"stageline_recording": 1, "plan_digest": ..., "seed": 0, "dilation": 1.0, "scheduling": {...}}
    {"arrival_ns": 1000000, "prompt_tokens": 12, "output_tokens": 64, "max_output_tokens": 64}
    {"cancel": 0, "at_ns": 52000000}
    {"digest": ...}

Of a fleet, which has its own settings, the header has the digest only: `fleet_digest`.

Requests are numbered from 0 in the order of their lines; `cancel` names one of them. After a good end the last line has
the digest that a replay on the same plan with the same settings gives. {"ended": ...} says instead why the session
broke off. A router that was killed, or whose disk was full, leaves neither; the next one that records to the same name
adds it.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec

from stageline.engine.settings import Scheduling, upgraded
from stageline.engine.types import Cancellation, Request
from stageline.errors import BadInput
from stageline.workload.lines import TraceFile
from stageline.workload.options import WorkloadOptions
from stageline.workload.order import checked_ns, scaled_ns
from stageline.workload.rows import MAX_TOKENS, Identity, Priority, RowCounts
from stageline.workload.workloads import IteratedWorkload

MARK = "stageline_recording"
VERSION = 1
_WAY_OUT = "record the session again, or remove the damaged line"


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay needs besides the requests. `stageline_recording`: the format's version.

    Of a plan alone its digest and the settings, of a fleet only its digest.
    """

    stageline_recording: int = VERSION
    plan_digest: str = ""
    fleet_digest: str = ""
    seed: int
    dilation: float
    scheduling: Scheduling = Scheduling()

    @property
    def digest(self) -> str:
        """Of what it was recorded on."""
        return self.fleet_digest or self.plan_digest


class _Arrival(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int
    priority: Priority = 0
    conversation: str = msgspec.field(name="session", default="")
    hash_ids: tuple[Identity, ...] = ()
    output_hash_ids: tuple[Identity, ...] = ()
    model: str = ""


class _Other(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    cancel: int | None = None
    at_ns: int = 0
    digest: str | None = None
    ended: str | None = None


def header_line(header: RecordingHeader) -> str:
    """The first line."""
    absent = ("plan_digest", "scheduling") if header.fleet_digest else ("fleet_digest",)
    fields = msgspec.to_builtins(header)
    return _line({name: value for name, value in fields.items() if name not in absent})


def request_line(request: Request) -> str:
    """The line of an arrival."""
    return _line(_Arrival(**{name: getattr(request, name) for name in _Arrival.__struct_fields__}))


def cancel_line(index: int, at_ns: int) -> str:
    """The line of a cancellation."""
    return _line({"cancel": index, "at_ns": at_ns})


def end_line(digest: str) -> str:
    """The last line, with the session's digest."""
    return _line({"digest": digest})


def broken_line(reason: str) -> str:
    """The last line of a session that broke off."""
    return _line({"ended": reason})


def is_ending(line: bytes) -> bool:
    """Whether a line is the last one of a recording: nothing follows it."""
    try:
        event = msgspec.json.decode(line, type=_Other)
    except msgspec.MsgspecError:
        return False
    return event.digest is not None or event.ended is not None


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"


class RecordedWorkload(IteratedWorkload):
    """The events of a live session, with its settings and, once they have been read to the end, its digest."""

    def __init__(
        self,
        events: Iterator[Request | Cancellation],
        *,
        header: RecordingHeader,
        end: "RecordedEnd",
        description: str,
        counts: RowCounts,
        fraction: Callable[[], float],
    ) -> None:
        super().__init__(events, description=description, counts=counts, fraction=fraction)
        self.header, self.end = header, end


class RecordedEnd(msgspec.Struct):
    """Where and how it ends. `digest` is None until that line has been read, and stays None if there is none."""

    digest: str | None = None
    reason: str = ""  # why there is no digest, once the end has been read


def is_recording(path: Path) -> bool:
    """Whether a file begins like a recording."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return MARK.encode() in file.readline(4096)
    except OSError:
        return False


def open_recording(path: Path, options: WorkloadOptions) -> RecordedWorkload:
    """Opens a recording as a workload. Raises BadInput, naming the damaged line."""
    file = TraceFile(path)
    lines = file.lines()
    try:
        header = _header(next(lines, ""))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        file.close()
        raise BadInput(f"{path}:1", None, f"not a recording of a live session: {error}", _WAY_OUT) from None
    counts, end = RowCounts(), RecordedEnd()
    return RecordedWorkload(
        _events(file, lines, options, counts, end),
        header=header,
        end=end,
        description=f"recording:{path.name}",
        counts=counts,
        fraction=file.fraction,
    )


def _header(line: str) -> RecordingHeader:
    fields = msgspec.json.decode(line, type=dict[str, Any])
    if isinstance(scheduling := fields.get("scheduling"), dict):
        fields["scheduling"] = upgraded(scheduling)
    header = msgspec.convert(fields, RecordingHeader)
    if bool(header.plan_digest) == bool(header.fleet_digest):
        raise ValueError("it does not say on which plan or which fleet it was recorded")
    if header.stageline_recording != VERSION:
        raise ValueError(f"it has version {header.stageline_recording}, and this Stageline reads version {VERSION}")
    return header


def _events(
    file: TraceFile, lines: Iterator[str], options: WorkloadOptions, counts: RowCounts, end: RecordedEnd
) -> Iterator[Request | Cancellation]:
    latest_ns, limit = 0, options.requests or 1 << 60
    try:
        for line in lines:
            if not line or line.isspace():
                continue
            try:
                event = _decoded(line, file)
            except BadInput:
                if not file.torn:
                    raise
                break  # its router was killed, or its disk was full, in the middle of this line
            if isinstance(event, _Other) and event.digest:
                end.digest = event.digest
            if isinstance(event, _Other) and event.ended:
                end.reason = f"the session broke off: {event.ended}"
            if not _wanted(event, counts.accepted, limit):
                continue
            time_ns = event.arrival_ns if isinstance(event, _Arrival) else event.at_ns
            if time_ns < latest_ns:
                raise BadInput(file.where(), time_ns, "earlier than the line before it", _WAY_OUT)
            latest_ns = time_ns
            yield _event(event, _scaled(time_ns, options.rate_scale, file, counts), file, counts)
        if not end.digest and not end.reason:
            end.reason = f"it stops at line {file.line}: its router was killed, or could not write any more"
    finally:
        file.close()


def _decoded(line: str, file: TraceFile) -> _Arrival | _Other:
    try:
        return msgspec.json.decode(line, type=_Arrival if '"arrival_ns"' in line else _Other)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadInput(file.where(), line[:80], str(error), _WAY_OUT) from None


def _wanted(event: _Arrival | _Other, accepted: int, limit: int) -> bool:
    """Whether an event is within the limit on requests, or cancels one that is. The digest line is not an event."""
    if isinstance(event, _Arrival):
        return accepted < limit
    return event.cancel is not None and (event.cancel < accepted or accepted < limit)


def _event(event: _Arrival | _Other, time_ns: int, file: TraceFile, counts: RowCounts) -> Request | Cancellation:
    if isinstance(event, _Other):
        assert event.cancel is not None
        if not 0 <= event.cancel < counts.accepted:
            raise BadInput(file.where(), event.cancel, "cancels a request that has not arrived", _WAY_OUT)
        return Cancellation(index=event.cancel, at_ns=time_ns)
    if not (
        1 <= event.output_tokens <= event.max_output_tokens <= MAX_TOKENS and 1 <= event.prompt_tokens <= MAX_TOKENS
    ):
        raise BadInput(file.where(), None, "token counts out of range", _WAY_OUT)
    index = counts.accepted
    counts.read += 1
    counts.accepted += 1
    values = msgspec.structs.asdict(event) | {"arrival_ns": time_ns}
    return Request(index=index, **values)


def _scaled(time_ns: int, rate_scale: Fraction, file: TraceFile, counts: RowCounts) -> int:
    return checked_ns(scaled_ns(time_ns, rate_scale), file.where(), counts.accepted)
