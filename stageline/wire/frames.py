"""Frames <-> columns. The one place that a microbatch pays for on every hop, so no protobuf object per microbatch."""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Literal, TypeVar

from msgspec.structs import astuple

from stageline.cost.load import Load
from stageline.engine.microbatch import Item, Microbatch
from stageline.engine.types import NEVER
from stageline.errors import ProtocolError
from stageline.sync.frames import Frame
from stageline.v1 import flow_pb2 as pb

T = TypeVar("T")
PayloadMode = Literal["size", "capped", "full"]
MODES: dict[PayloadMode, pb.PayloadMode.ValueType] = {
    "size": pb.PAYLOAD_MODE_SIZE,
    "capped": pb.PAYLOAD_MODE_CAPPED,
    "full": pb.PAYLOAD_MODE_FULL,
}

CAPPED_BYTES = 64 << 10  # payload of a frame in mode `capped`
CHUNK_BYTES = 1 << 20  # payload of one message in mode `full`
LATEST_NS = 1 << 60  # 36 years; leaves room for sums below the 64-bit limit

_STAMPS = ("sequence", "arrival_ns", "prev_end_ns", "dispatch_ns", "work_since_ns", "empty_since_ns", "credit_since_ns")
_COLUMNS = (*_STAMPS, *Load.__struct_fields__)
_TOKENS = (_COLUMNS.index("decode_tokens"), _COLUMNS.index("prefill_tokens"))
_SAMPLED = _COLUMNS.index("sampled")
# Columns of 64 bits; the others can't leave their range.
_WIDE = tuple(i for i, name in enumerate(_COLUMNS) if name.endswith(("_ns", "_kv_tokens", "_pairs", "sequence")))
_ZEROS = bytes(CHUNK_BYTES)


def mode_of(value: pb.PayloadMode.ValueType) -> PayloadMode:
    """The mode that a message names; one that this version does not know counts as `size`."""
    return next((mode for mode, number in MODES.items() if number == value), "size")


class FrameEncoder:
    """The sending end of one link: numbers its frames and adds their payload.

    `bytes_per_token` is the plan's, per new token, or per sampled token on the return link.
    """

    def __init__(self, bytes_per_token: int, *, returns: bool, mode: PayloadMode) -> None:
        self._bytes_per_token, self._returns, self._mode = bytes_per_token, returns, mode
        self.frames = self.items = self.payload_bytes = 0
        self.slip_ns = 0  # of the sender's live clock

    def encode(self, source: Frame) -> list[pb.FlowRequest]:
        """The messages of one frame: padding, if the payload is sent in full and long, then the frame."""
        items = source.items
        request = pb.FlowRequest()
        frame = request.frame
        frame.number, frame.promise_ns, frame.last = self.frames, source.promise_ns, source.last
        frame.slip_ns = self.slip_ns
        self.frames += 1
        self.items += len(items)
        if source.releases:
            frame.release_owner.extend(source.releases)
        if not items:
            return [request]
        columns = list(zip(*[_row(item) for item in items], strict=True))
        for name, column in zip(_COLUMNS, columns, strict=True):
            if any(column):
                getattr(frame, name).extend(column)
        if not frame.sequence:
            frame.sequence.extend(columns[0])
        if not frame.arrival_ns:
            frame.arrival_ns.extend(columns[1])
        _encode_ledger(frame, [item.microbatch for item in items])
        tokens = sum(columns[_SAMPLED]) if self._returns else sum(columns[_TOKENS[0]]) + sum(columns[_TOKENS[1]])
        return [*self._payload(frame, tokens * self._bytes_per_token), request]

    def _payload(self, frame: pb.Frame, size: int) -> list[pb.FlowRequest]:
        """Sets the frame's payload; returns what has to be sent ahead."""
        frame.payload_bytes = size
        self.payload_bytes += size
        if self._mode == "capped":
            frame.payload = _ZEROS[: min(size, CAPPED_BYTES)]
        elif self._mode == "full":
            chunks, rest = divmod(size, CHUNK_BYTES)
            frame.payload = _ZEROS[:rest]
            return [pb.FlowRequest(padding=_ZEROS)] * chunks
        return []


class FrameDecoder:
    """The receiving end of one link: checks order and shape, and builds the microbatches.

    Raises ProtocolError for anything that the protocol does not allow; never another error, whatever the bytes.
    """

    def __init__(self, link: int, place: str) -> None:
        self._link, self._place = link, place
        self._arrival_ns = 0
        self.frames = self.promise_frames = self.items = self.payload_bytes = 0
        self.slip_ns = 0  # the furthest that the sender's live clock has slipped
        self.last = False

    def decode(self, frame: pb.Frame) -> Frame:
        """The microbatches of a frame; mutates the counters."""
        if frame.number != self.frames:
            raise self._wrong(f"frame {frame.number} came where {self.frames} was due")
        if self.last:
            raise self._wrong(f"frame {frame.number} came after the last one")
        if frame.promise_ns > NEVER:
            raise self._wrong(f"promise_ns {frame.promise_ns} is out of range")
        count = len(frame.sequence)
        items = self._items(frame, count) if count else []
        if not count and any(getattr(frame, name) for name in (*_COLUMNS, "release_count", "grant_count")):
            raise self._wrong("there are columns but no microbatches")
        self.frames += 1
        self.promise_frames += not count
        self.items += count
        self.payload_bytes += frame.payload_bytes
        self.last = frame.last
        self.slip_ns = max(self.slip_ns, frame.slip_ns)
        releases = () if count else tuple(frame.release_owner)
        return Frame(self._link, items, frame.promise_ns, frame.last, releases)

    def _items(self, frame: pb.Frame, count: int) -> list[Item]:
        if frame.last:
            raise self._wrong("the last frame carries microbatches")
        zeros = [0] * count
        columns = [getattr(frame, name)[:] or zeros for name in _COLUMNS]
        for name, column in zip(_COLUMNS, columns, strict=True):
            if len(column) != count:
                raise self._wrong(f"column {name} has {len(column)} values for {count} microbatches")
        for index in _WIDE:
            if columns[index] is not zeros and max(columns[index]) > LATEST_NS:
                raise self._wrong(f"column {_COLUMNS[index]} has a value out of range")
        arrivals = columns[1]
        if arrivals[0] < self._arrival_ns or any(b < a for a, b in pairwise(arrivals)):
            raise self._wrong("arrivals run backwards")
        self._arrival_ns = arrivals[-1]
        releases = self._split(frame.release_count, frame.release_owner[:], count, "release")
        grants = self._grants(frame, count)
        return [
            Item(row[1], row[2], Microbatch(row[0], Load(*row[7:]), row[3], row[4], row[5], row[6], released, granted))
            for row, released, granted in zip(zip(*columns, strict=True), releases, grants, strict=True)
        ]

    def _grants(self, frame: pb.Frame, count: int) -> Iterable[tuple[tuple[int, int, int], ...]]:
        """(owner, blocks, states) of each microbatch."""
        owners, blocks = frame.grant_owner[:], frame.grant_blocks[:]
        states = frame.grant_states[:] or [0] * len(owners)
        if not len(owners) == len(blocks) == len(states):
            raise self._wrong("grant_owner, grant_blocks and grant_states differ in length")
        if blocks and (max(blocks) > LATEST_NS or min(blocks) < -LATEST_NS):
            raise self._wrong("column grant_blocks has a value out of range")
        return self._split(frame.grant_count, list(zip(owners, blocks, states, strict=True)), count, "grant")

    def _split(self, counts: Sequence[int], values: list[T], count: int, name: str) -> Iterable[tuple[T, ...]]:
        """Flattened values back to one tuple per microbatch."""
        if not counts and not values:
            return [()] * count
        if len(counts) != count or sum(counts) != len(values):
            raise self._wrong(f"{name}_count does not add up")
        result, start = [], 0
        for size in counts:
            result.append(tuple(values[start : start + size]))
            start += size
        return result

    def _wrong(self, reason: str) -> ProtocolError:
        return ProtocolError(f"{self._place}: frame {self.frames}: {reason}")


def _row(item: Item) -> tuple[int, ...]:
    """One microbatch in the order of `_COLUMNS`."""
    m = item.microbatch
    return (
        m.sequence, item.arrival_ns, item.prev_end_ns, m.dispatch_ns, m.work_since_ns, m.empty_since_ns,
        m.credit_since_ns, *astuple(m.load),
    )  # fmt: skip


def _encode_ledger(frame: pb.Frame, microbatches: Sequence[Microbatch]) -> None:
    """Releases and grants, flattened; nothing at all where there are none."""
    if any(m.releases for m in microbatches):
        frame.release_count.extend([len(m.releases) for m in microbatches])
        frame.release_owner.extend(chain.from_iterable(m.releases for m in microbatches))
    if any(m.grants for m in microbatches):
        frame.grant_count.extend([len(m.grants) for m in microbatches])
        grants = list(chain.from_iterable(m.grants for m in microbatches))
        owners, blocks, states = zip(*grants, strict=True)
        frame.grant_owner.extend(owners)
        frame.grant_blocks.extend(blocks)
        if any(states):
            frame.grant_states.extend(states)
