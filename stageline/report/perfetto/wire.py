"""The part of the protobuf wire format that a trace needs: varints, length-delimited fields, 64-bit fields.

Written by hand because a trace has a dozen fields and a million packets: generated classes cost ten times as much.
Field numbers: protos/perfetto/trace/trace_packet.proto and track_event/ of the Perfetto project.
"""

import struct
from functools import lru_cache

_SMALL = tuple(bytes((value,)) for value in range(0x80))


def varint(value: int) -> bytes:
    """Base 128, least significant group first (value >= 0)."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(64)
def _key(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def number(field: int, value: int) -> bytes:
    """A field of an integer type, an enum or a bool."""
    return _key(field, 0) + varint(value)


def data(field: int, value: bytes) -> bytes:
    """A field of bytes or a message."""
    return _key(field, 2) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A field of type string."""
    return data(field, value.encode())


def fixed64(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return _key(field, 1) + struct.pack("<Q", value)
