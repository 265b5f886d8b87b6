"""The part of a roofline that depends on the number of new tokens alone, as a table that grows as far as it is used.

GEMMs, experts, collectives and overheads of all layers are one number per token count; a call then costs one look-up.
"""

from collections.abc import Callable

from stageline.cost.entries import Experts, LayerGroup, Roofline

TABLE_LIMIT = 1 << 16  # larger token counts are computed each time


def distinct_experts(experts: int, top_k: int, limit: int = TABLE_LIMIT) -> list[float]:
    """Expected distinct experts for 0, 1, 2, ... tokens: N * (1 - ((N - k) / N) ** B), by repeated multiplication.

    The list ends where the power no longer changes the result (all experts), or at `limit`.
    """
    keep, power, table = (experts - top_k) / experts, 1.0, [0.0]
    while table[-1] < experts and len(table) <= limit:
        power *= keep
        table.append(experts * (1.0 - power))
    return table


def _experts_ns(part: Experts) -> Callable[[int], float]:
    """Time of the routed experts of one layer by token count."""
    table = distinct_experts(part.experts, part.top_k)
    last = len(table) - 1

    def experts_ns(tokens: int) -> float:
        return max(part.token_ns * tokens, part.expert_ns * table[min(tokens, last)])

    return experts_ns


def _group_ns(group: LayerGroup) -> Callable[[int], float]:
    """Time of a group's token-only operations by token count."""
    gemms = [(g.token_ns, g.weights_ns) for g in group.gemms]
    experts_ns = _experts_ns(group.experts) if group.experts else None
    layers, overhead, transfer = float(group.layers), group.overhead_ns, group.transfer_token_ns

    def group_ns(tokens: int) -> float:
        ns = overhead + transfer * tokens
        for token_ns, weights_ns in gemms:
            ns += max(token_ns * tokens, weights_ns)
        if experts_ns:
            ns += experts_ns(tokens)
        return ns * layers

    return group_ns


class TokenTable:
    """ns by number of new tokens. `values` may be shorter than needed: `grow` first."""

    def __init__(self, entry: Roofline) -> None:
        self._groups = [_group_ns(group) for group in entry.groups]
        self.values: list[float] = []
        self.grow(64)

    def at(self, tokens: int) -> float:
        """The time for a token count; the same double whether it came from the table or not."""
        if tokens >= TABLE_LIMIT:
            return self._compute(tokens)
        if tokens >= len(self.values):
            self.grow(tokens)
        return self.values[tokens]

    def grow(self, tokens: int) -> None:
        """Extend the table past `tokens`, doubling, never past its limit."""
        end = min(TABLE_LIMIT, 1 << max(tokens + 1, 1).bit_length())
        self.values.extend(self._compute(t) for t in range(len(self.values), end))

    def _compute(self, tokens: int) -> float:
        ns = 0.0
        for group_ns in self._groups:
            ns += group_ns(tokens)
        return ns
