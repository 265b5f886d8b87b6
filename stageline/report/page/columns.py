"""Integer columns packed for a page: byte planes, deflated, base64.

A column of n non-negative integers below 2**53 becomes `planes` runs of n bytes, least significant byte first: small
values need few planes and deflate well, and a browser reads them with one loop. The same data gives the same blob.
"""

import base64
import zlib

import msgspec
import numpy as np

from stageline.cost.arrays import IntArray

LIMIT = 1 << 53  # what a browser's numbers hold exactly


class Column(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where a column lies in the blob, after inflating."""

    offset: int
    count: int
    planes: int


class Packer:
    """Collects columns by name."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, name: str, values: IntArray) -> None:
        """One column. Raises ValueError for a negative value or one of 2**53 and more."""
        top = int(values.max(initial=0))
        if int(values.min(initial=0)) < 0 or top >= LIMIT:
            raise ValueError(f"column {name}: values from {values.min()} to {top} do not fit 53 bits")
        planes = max(1, (top.bit_length() + 7) // 8)
        raw = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :planes].T.tobytes()
        self.columns[name] = Column(self._size, len(values), planes)
        self._parts.append(raw)
        self._size += len(raw)

    def blob(self) -> str:
        """All columns, deflated, as base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 6)).decode()


def zigzag(values: IntArray) -> IntArray:
    """Signed to non-negative: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return np.where(values < 0, -2 * values - 1, 2 * values)
