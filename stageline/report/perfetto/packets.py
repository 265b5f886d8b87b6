"""Trace packets: tracks, slices on them, counters."""

from collections.abc import Sequence

from stageline.report.perfetto.wire import data, fixed64, number, text, varint

_SEQUENCE = number(10, 1)  # trusted_packet_sequence_id: one writer
_BEGIN, _END, _COUNTER = number(9, 1), number(9, 2), number(9, 4)  # TrackEvent.type
_EXPLICIT = 3  # TrackDescriptor.child_ordering
_BYTES = 3  # CounterDescriptor.unit


def group(uuid: int, name: str) -> bytes:
    """A track of tracks, in the order of their ranks."""
    process = number(1, uuid) + text(6, name)
    return _packet(data(60, number(1, uuid) + data(3, process) + number(11, _EXPLICIT)))


def track(uuid: int, name: str, parent: int, rank: int) -> bytes:
    """A track of slices."""
    return _packet(data(60, number(1, uuid) + text(2, name) + number(5, parent) + number(12, rank)))


def counter_track(uuid: int, name: str, parent: int, rank: int) -> bytes:
    """A track of values in bytes."""
    unit = data(8, number(3, _BYTES))
    return _packet(data(60, number(1, uuid) + text(2, name) + number(5, parent) + unit + number(12, rank)))


def begin(uuid: int, name: str, at_ns: int, flows: Sequence[int] = (), notes: bytes = b"") -> bytes:
    """A slice on a track begins. Slices of one track must nest; `flows` connect it to other slices."""
    joined = b"".join(fixed64(47, flow) for flow in flows)
    return _packet(number(8, at_ns) + data(11, _BEGIN + number(11, uuid) + text(23, name) + joined + notes))


def end(uuid: int, at_ns: int) -> bytes:
    """The innermost slice of a track ends."""
    return _packet(number(8, at_ns) + data(11, _END + number(11, uuid)))


def slice_(uuid: int, name: str, begin_ns: int, end_ns: int, flows: Sequence[int] = (), notes: bytes = b"") -> bytes:
    """A whole slice."""
    return begin(uuid, name, begin_ns, flows, notes) + end(uuid, end_ns)


def counter(uuid: int, at_ns: int, value: int) -> bytes:
    """A counter's value from this time on."""
    return _packet(number(8, at_ns) + data(11, _COUNTER + number(11, uuid) + number(30, value)))


def note(name: str, value: int) -> bytes:
    """A value that the details pane shows for a slice."""
    return data(4, text(10, name) + number(3, value))


def _packet(body: bytes) -> bytes:
    """One element of Trace.packet."""
    return b"\x0a" + varint(len(body) + len(_SEQUENCE)) + body + _SEQUENCE
