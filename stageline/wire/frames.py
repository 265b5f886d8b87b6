"""Frames <-> columns. Every microbatch pays for this on every hop, so a frame has neither messages per microbatch
nor fields per column.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Literal, TypeVar

from msgspec.structs import astuple

from stageline.cost.totals import BatchTotals
from stageline.engine.microbatch import Grant, Item, Microbatch, Trail
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
MAX_STAMP_NS = 1 << 60  # 36 years; leaves room for sums below the 64-bit limit

# The order is part of the protocol, see flow.proto.
FRAME_COLUMNS = (
    "number", "arrival_ns", "prev_end_ns", "chunk_wait_ns", "pace_ns",
    "dispatch_ns", "work_since_ns", "empty_since_ns", "credit_since_ns",
    *BatchTotals.__struct_fields__,
)  # fmt: skip
_WIDTH = len(FRAME_COLUMNS)
_TOTALS = FRAME_COLUMNS.index("decode_sequences")
_ZEROS = bytes(CHUNK_BYTES)
_NOTHING: tuple[tuple[()], ...] = ((),)


def mode_of(value: pb.PayloadMode.ValueType) -> PayloadMode:
    """The payload mode of a message; an unknown one counts as `size`."""
    return next((mode for mode, number in MODES.items() if number == value), "size")


class FrameEncoder:
    """The sending end of one link: numbers its frames and adds their payload.

    `bytes_per_token` comes from the plan. It counts per new token, on the return link (`returns`) per sampled token.
    """

    def __init__(self, bytes_per_token: int, *, returns: bool, mode: PayloadMode) -> None:
        self._bytes_per_token, self._returns, self._mode = bytes_per_token, returns, mode
        self.frames = self.items = self.payload_bytes = 0

    def encode(self, unencoded: Frame) -> list[pb.FlowRequest]:
        """The messages of one frame: padding for a long payload in mode `full`, then the frame."""
        items = unencoded.items
        request = pb.FlowRequest()
        frame = request.frame
        frame.number, frame.promise_ns, frame.last = self.frames, unencoded.promise_ns, unencoded.last
        if unencoded.slip_ns:
            frame.slip_ns = unencoded.slip_ns
        self.frames += 1
        self.items += len(items)
        if unencoded.releases:
            frame.kv.release_owner.extend(unencoded.releases)
        if not items:
            return [request]
        rows, tokens, ledger = [], 0, False
        for item in items:
            m = item.microbatch
            totals = m.totals
            rows.append((
                m.number, item.arrival_ns, *astuple(item.trail), m.dispatch_ns, m.work_since_ns, m.empty_since_ns,
                m.credit_since_ns, *astuple(totals),
            ))  # fmt: skip
            tokens += totals.sampled if self._returns else totals.decode_tokens + totals.prefill_tokens
            if m.releases or m.grants:
                ledger = True
        frame.value.extend(rows[0] if len(rows) == 1 else chain.from_iterable(zip(*rows, strict=True)))
        waits = [item.microbatch.transfer_wait_ns for item in items]
        if any(waits):
            frame.transfer_wait_ns.extend(waits)
        if ledger:
            _encode_ledger(frame, [item.microbatch for item in items])
        size = tokens * self._bytes_per_token
        frame.payload_bytes = size
        self.payload_bytes += size
        return [request] if self._mode == "size" else [*self._payload(frame, size), request]

    def _payload(self, frame: pb.Frame, size: int) -> list[pb.FlowRequest]:
        """Sets the frame's payload; returns padding messages to send before the frame."""
        if self._mode == "capped":
            frame.payload = _ZEROS[: min(size, CAPPED_BYTES)]
        elif self._mode == "full":
            chunks, rest = divmod(size, CHUNK_BYTES)
            frame.payload = _ZEROS[:rest]
            return [pb.FlowRequest(padding=_ZEROS)] * chunks
        return []


class FrameDecoder:
    """The receiving end of one link: checks order and shape, and builds the microbatches.

    Raises ProtocolError, and no other error, for whatever the protocol does not allow.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._arrival_ns = 0
        self.frames = self.promise_frames = self.items = self.payload_bytes = 0
        self.last = False

    def decode(self, frame: pb.Frame) -> Frame:
        """Decodes a frame; mutates the counters."""
        if frame.number != self.frames:
            raise self._wrong(f"frame {frame.number} came instead of {self.frames}")
        if self.last:
            raise self._wrong(f"frame {frame.number} came after the last one")
        if frame.promise_ns > NEVER:
            raise self._wrong(f"promise_ns {frame.promise_ns} is out of range")
        values = frame.value[:]
        count, rest = divmod(len(values), _WIDTH)
        if rest:
            raise self._wrong(f"{len(values)} values are not a multiple of {_WIDTH} columns")
        kv = frame.kv if frame.HasField("kv") else None
        items = self._items(frame, values, count, kv) if count else []
        releases = () if count else self._last_releases(kv)
        self.frames += 1
        self.promise_frames += not count
        self.items += count
        self.payload_bytes += frame.payload_bytes
        self.last = frame.last
        return Frame(items, frame.promise_ns, frame.last, releases, frame.slip_ns)

    def _items(self, frame: pb.Frame, values: list[int], count: int, kv: pb.KvChanges | None) -> list[Item]:
        if frame.last:
            raise self._wrong("the last frame carries microbatches")
        if max(values) > MAX_STAMP_NS:
            column = FRAME_COLUMNS[values.index(max(values)) // count]
            raise self._wrong(f"column {column} has a value out of range")
        arrivals = values[count : 2 * count]
        if arrivals[0] < self._arrival_ns or (count > 1 and any(b < a for a, b in pairwise(arrivals))):
            raise self._wrong("arrivals are not in order")
        self._arrival_ns = arrivals[-1]
        rows: Iterable[Sequence[int]] = (values,)
        if count > 1:
            rows = zip(*[values[c : c + count] for c in range(0, _WIDTH * count, count)], strict=True)
        released: Iterable[tuple[int, ...]] = _NOTHING * count
        granted: Iterable[tuple[Grant, ...]] = _NOTHING * count
        if kv is not None:
            released = self._split(kv.release_count, kv.release_owner[:], count, "release")
            granted = self._grants(kv, count)
        waits = frame.transfer_wait_ns[:] or (0,) * count
        if len(waits) != count or max(waits) > MAX_STAMP_NS:
            raise self._wrong("transfer_wait_ns does not have one value in range per microbatch")
        items = []
        for row, releases, grants, wait_ns in zip(rows, released, granted, waits, strict=True):
            totals = BatchTotals(*row[_TOTALS:])
            microbatch = Microbatch(row[0], totals, row[5], row[6], row[7], row[8], releases, grants, wait_ns)
            items.append(Item(row[1], Trail(row[2], row[3], row[4]), microbatch))
        return items

    def _last_releases(self, kv: pb.KvChanges | None) -> tuple[int, ...]:
        """The releases of a frame without microbatches."""
        if kv is None:
            return ()
        if kv.release_count or kv.grant_count or kv.grant_owner:
            raise self._wrong("it has KV changes for microbatches but no microbatches")
        return tuple(kv.release_owner)

    def _grants(self, kv: pb.KvChanges, count: int) -> Iterable[tuple[Grant, ...]]:
        """The grants of each microbatch."""
        owners, blocks = kv.grant_owner[:], kv.grant_blocks[:]
        states, contexts = (column[:] or [0] * len(owners) for column in (kv.grant_states, kv.grant_context_blocks))
        if not len(owners) == len(blocks) == len(states) == len(contexts):
            raise self._wrong("grant_owner, grant_blocks, grant_states and grant_context_blocks differ in length")
        for name, column in (("grant_blocks", blocks), ("grant_context_blocks", contexts)):
            if column and (max(column) > MAX_STAMP_NS or min(column) < -MAX_STAMP_NS):
                raise self._wrong(f"column {name} has a value out of range")
        return self._split(kv.grant_count, list(zip(owners, blocks, states, contexts, strict=True)), count, "grant")

    def _split(self, counts: Sequence[int], values: list[T], count: int, name: str) -> Iterable[tuple[T, ...]]:
        """Splits flattened values into one tuple per microbatch."""
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


def _encode_ledger(frame: pb.Frame, microbatches: Sequence[Microbatch]) -> None:
    """Adds releases and grants, flattened; sets no field if there are none."""
    releases = [m.releases for m in microbatches]
    if any(releases):
        frame.kv.release_count.extend([len(owners) for owners in releases])
        frame.kv.release_owner.extend(chain.from_iterable(releases))
    grants = [m.grants for m in microbatches]
    if any(grants):
        kv = frame.kv
        kv.grant_count.extend([len(changes) for changes in grants])
        owners, blocks, states, contexts = zip(*chain.from_iterable(grants), strict=True)
        kv.grant_owner.extend(owners)
        kv.grant_blocks.extend(blocks)
        if any(states):
            kv.grant_states.extend(states)
        if any(contexts):
            kv.grant_context_blocks.extend(contexts)
