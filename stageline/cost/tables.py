"""The part of a roofline that depends only on the number of new tokens, as a table that grows on demand.

It sums the GEMMs, experts, collectives and overheads of all layers, so that a call costs one look-up.
"""

from collections.abc import Callable
from functools import lru_cache, partial

from stageline.cost.entries import Experts, LayerGroup, Roofline
from stageline.cost.measured import curve_ns

TABLE_LIMIT = 1 << 16  # larger token counts are computed each time

PATIENCE = 32  # this many calls past the end are computed one by one before the table grows


@lru_cache(maxsize=256)
def distinct_experts(experts: int, top_k: int, limit: int = TABLE_LIMIT, spread: int = 1) -> tuple[float, ...]:
    """Expected distinct experts of B = 0, 1, 2, ... tokens: N (1 - ((N - k) / N)^B), by repeated multiplication.

    Of experts that are spread over R ranks: R x those of the rank that reads most; see `fullest`. They end where the
    value reaches N, or at `limit`.
    """
    keep, power, table = (experts - top_k) / experts, 1.0, [0.0]
    while table[-1] < experts and len(table) <= limit:
        power *= keep
        read = experts * (1.0 - power)
        if spread > 1:  # at least the mean, and never less than for fewer tokens, whatever rounding does
            read = max(read, table[-1], spread * fullest(-(-experts // spread), spread, power))
        table.append(read)
    return tuple(table)


def fullest(held: int, ranks: int, idle: float) -> float:
    """Expected experts with a token on the rank that has most of them: E[max] of `ranks` binomials, at least 1.

    Each rank holds `held` experts, each of which gets no token with probability `idle`, as if they were independent:
    within 1 % of draws of 8 of 128 experts over 2, 4 and 8 ranks.
    """
    if idle <= 0 or (1.0 - idle) ** held == 1.0:
        return float(held)
    below, whole, found = 0.0, idle**held, 0.0
    for n in range(held):
        below += whole  # probability of n or fewer
        found += 1.0 - min(below, 1.0) ** ranks
        whole *= (held - n) / (n + 1) * (1.0 - idle) / idle
    return max(1.0, found)


def _experts_ns(part: Experts) -> Callable[[int], float]:
    """Time of one layer's routed experts, by token count."""
    if part.curve:
        return partial(curve_ns, part.curve)
    table = distinct_experts(part.experts, part.top_k, spread=part.spread or 1)
    last, unhidden = len(table) - 1, part.unhidden or 0.0

    def experts_ns(tokens: int) -> float:
        work, reading = part.token_ns * tokens, part.expert_ns * table[min(tokens, last)]
        return max(work, reading) + unhidden * min(work, reading)

    return experts_ns


def _collectives_ns(group: LayerGroup) -> Callable[[int], float]:
    """Time of one layer's collectives, each with its fastest algorithm, by token count."""
    collectives = [[(w.latency_ns, w.token_ns) for w in c.ways] for c in group.collectives if not c.curve]
    curves = [c.curve for c in group.collectives if c.curve]

    def collectives_ns(tokens: int) -> float:
        ns = 0.0
        for ways in collectives:
            ns += min(latency + per_token * tokens for latency, per_token in ways)
        for curve in curves:
            ns += curve_ns(curve, tokens)
        return ns

    return collectives_ns


def _group_ns(group: LayerGroup, *, collectives: bool, experts: bool) -> Callable[[int], float]:
    """Time of a group's token-only operations, by token count; without experts that have an imbalance table."""
    gemms = [(g.token_ns, g.weights_ns, g.unhidden or 0.0) for g in group.gemms]
    experts_ns = _experts_ns(group.experts) if experts and group.experts and not group.experts.imbalance else None
    collectives_ns = _collectives_ns(group) if group.collectives and collectives else None
    work = group.work or ()
    layers, overhead, transfer = float(group.layers), group.overhead_ns, group.transfer_token_ns

    def group_ns(tokens: int) -> float:
        ns = overhead + transfer * tokens
        for token_ns, weights_ns, unhidden in gemms:
            ns += max(token_ns * tokens, weights_ns) + unhidden * min(token_ns * tokens, weights_ns)
        for curve in work:
            ns += curve_ns(curve, tokens)
        if experts_ns:
            ns += experts_ns(tokens)
        if collectives_ns:
            ns += collectives_ns(tokens)
        return ns * layers

    return group_ns


class TokenTable:
    """A sum of functions, ns by number of new tokens. `values` holds the first results; `grow` extends it."""

    def __init__(self, parts: list[Callable[[int], float]]) -> None:
        self._parts = parts
        self.values: list[float] = []
        self._misses = 0
        self.grow(16)

    def at(self, tokens: int) -> float:
        """The time for a token count: the same double from the table as computed."""
        if tokens >= TABLE_LIMIT:
            return self._compute(tokens)
        if tokens >= len(self.values):
            self._misses += 1
            if self._misses < PATIENCE:  # the planner asks only for a few large counts
                return self._compute(tokens)
            self.grow(tokens)
        return self.values[tokens]

    def grow(self, tokens: int) -> None:
        """Extend `values` past `tokens`, to a power of two, at most to TABLE_LIMIT."""
        end = min(TABLE_LIMIT, 1 << max(tokens + 1, 1).bit_length())
        self.values.extend(self._compute(t) for t in range(len(self.values), end))

    def _compute(self, tokens: int) -> float:
        ns = 0.0
        for part in self._parts:
            ns += part(tokens)
        return ns


def head_table(entry: Roofline) -> TokenTable | None:
    """Measured times of the head by sampled rows; None without them."""
    if not (entry.head and entry.head.curve):
        return None
    return TokenTable([partial(curve_ns, entry.head.curve)])


def apart(entry: Roofline) -> bool:
    """Whether experts work on another number of tokens than the rest: ranks step together, or graphs pad."""
    return bool(entry.ranks or entry.graphs)


def work_table(entry: Roofline) -> TokenTable:
    """Everything that depends only on tokens, including collectives; without experts that are `apart`."""
    experts = not apart(entry)
    return TokenTable([_group_ns(group, collectives=True, experts=experts) for group in entry.groups])


def expert_tables(entry: Roofline) -> tuple[TokenTable, TokenTable] | None:
    """Experts that are `apart`, without those that have an imbalance table: of a step, and of two half batches."""
    own = [g for g in entry.groups if g.experts and not g.experts.imbalance]
    if not (own and apart(entry)):
        return None
    parts = [_layers_experts(g) for g in own]
    return TokenTable(parts), TokenTable([_halves(part) for part in parts])


def _layers_experts(group: LayerGroup) -> Callable[[int], float]:
    assert group.experts
    experts_ns, layers = _experts_ns(group.experts), float(group.layers)
    return lambda tokens: experts_ns(tokens) * layers


def _halves(part: Callable[[int], float]) -> Callable[[int], float]:
    """Two half batches one after the other: each reads the weights and pays the latencies."""
    return lambda tokens: part(tokens - tokens // 2) + part(tokens // 2)


def _layers_collectives(group: LayerGroup) -> Callable[[int], float]:
    collectives_ns, layers = _collectives_ns(group), float(group.layers)
    return lambda tokens: collectives_ns(tokens) * layers


def halves_tables(entry: Roofline) -> tuple[TokenTable, TokenTable] | None:
    """(work, collectives) of two half batches, which overlap; None without `overlap` or without collectives."""
    if not (entry.overlap and any(group.collectives for group in entry.groups)):
        return None
    experts = not apart(entry)
    work = [_halves(_group_ns(group, collectives=False, experts=experts)) for group in entry.groups]
    return TokenTable(work), TokenTable([_halves(_layers_collectives(group)) for group in entry.groups])


class ImbalancedExperts:
    """A group's experts whose busiest rank a draw picks: layers x max(token_ns x tokens x factor, reading).

    `unhidden` of the lesser of the two is added.
    """

    def __init__(self, group: LayerGroup, part: Experts) -> None:
        self.layers, self.token_ns, self.factors = float(group.layers), part.token_ns, part.imbalance
        self.unhidden = part.unhidden or 0.0
        distinct = distinct_experts(part.experts, part.top_k, spread=part.spread or 1)
        self.reading = [part.expert_ns * n for n in distinct]

    def ns(self, tokens: int, draw: int) -> float:
        """The time of `tokens`; `draw` picks the factor, 0 the smallest."""
        work = self.token_ns * tokens * self.factors[draw % len(self.factors)]
        reading = self.reading[min(tokens, len(self.reading) - 1)]
        return self.layers * (max(work, reading) + self.unhidden * min(work, reading))


def imbalanced_experts(entry: Roofline) -> list[ImbalancedExperts]:
    """One per group whose experts have an imbalance table."""
    return [ImbalancedExperts(g, g.experts) for g in entry.groups if g.experts and g.experts.imbalance]
