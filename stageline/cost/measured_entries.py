"""Measured costs: curves and grids through points that were taken on a machine.

Values never fall along an axis (calibration sees to it), so that the smallest microbatch is also the quickest.
"""

import msgspec


class Curve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Straight lines through (at, ns). Left of the first point its value; right of the last the last line goes on."""

    at: tuple[int, ...]  # ascending, at least two
    ns: tuple[float, ...]


class AttentionGrid(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Attention by new prefill tokens, their history, decoding sequences and their mean KV, in between linear.

    `ns` runs with `kv` fastest. Outside the axes as for a Curve.
    """

    chunk: tuple[int, ...]  # sum of the prefill chunks
    history: tuple[int, ...]  # KV tokens that were there before them, summed
    sequences: tuple[int, ...]
    kv: tuple[int, ...]  # tokens per decoding sequence
    ns: tuple[float, ...]

    def axes(self) -> tuple[tuple[int, ...], ...]:
        """In the order of `ns`, slowest first."""
        return (self.chunk, self.history, self.sequences, self.kv)


class MeasuredCost(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag="measured", tag_field="kind"
):
    """tokens(new tokens) + attention(...) + sampled(rows) if any row is sampled; all layers of the visit together."""

    tokens: Curve
    attention: AttentionGrid
    sampled: Curve | None = None
