"""The canonical JSON that digests cover: sorted keys, no spaces, integers, strings and null; UTF-8."""

from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_line(value: Any) -> bytes:
    """One value (a record, or what was read back from a file) as a canonical line with its line break."""
    return _ENCODER.encode(value) + b"\n"
