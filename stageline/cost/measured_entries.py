"""Measured cost entries: curves and grids through times that were measured on a machine.

Times never fall along an axis (calibration ensures it), so that the smallest microbatch is also the fastest.
"""

from typing import Literal

import msgspec


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Linear interpolation through (at, ns); the first value left of them, the last segment extended right of them."""

    at: tuple[int, ...]  # ascending, at least two
    ns: tuple[float, ...]


class AttentionGrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Attention time by four axes, with multilinear interpolation; outside the axes as in a Curve.

    `ns` has one value per combination, the `kv` axis fastest.
    """

    chunk: tuple[int, ...]  # new tokens of all prefill chunks
    history: tuple[int, ...]  # KV tokens before those chunks, summed
    sequences: tuple[int, ...]  # that decode
    kv: tuple[int, ...]  # mean KV tokens of a decoding sequence
    ns: tuple[float, ...]

    def axes(self) -> tuple[tuple[int, ...], ...]:
        """The axes in the order of `ns`, slowest first."""
        return (self.chunk, self.history, self.sequences, self.kv)


class Surface(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Attention time of one layer by sequences and tokens of one sequence, with bilinear interpolation.

    The first value left of an axis; right of it, in proportion to the last. `ns` has the columns fastest.
    by = "context": a column is the mean context of a decoding sequence; "chunk": its new tokens.
    """

    by: Literal["context", "chunk"]
    rows: tuple[int, ...]  # sequences, ascending
    columns: tuple[int, ...]  # tokens of one sequence, ascending
    ns: tuple[float, ...]
    pair_ns: float = 0.0  # of a query-key pair beyond those of `rows` equal sequences without history
    kv_ns: float = 0.0  # of a token of history


class MeasuredCost(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="measured", tag_field="kind"
):
    """tokens(new tokens) + attention(point) + sampled(rows) if a row is sampled, for all layers of a visit."""

    tokens: Curve
    attention: AttentionGrid
    sampled: Curve | None = None
