"""How much more work the most loaded expert rank gets, as a table from which a run draws."""

from stageline.cost.hashing import mix

ENTRIES = 64
LAYOUTS = 8  # layouts that one entry averages: a visit passes several layers, each with its own


def imbalance_factors(experts: int, top_k: int, ranks: int, alpha: float) -> tuple[float, ...]:
    """`ENTRIES` factors >= 1, ascending: load of the most loaded rank over the mean.

    Expert popularity falls as rank ** -alpha; no expert gets more than every token (1 / top_k of the picks). Experts
    are placed on ranks in a hashed order, differently in every layout. Uniform (alpha 0) gives no table.
    """
    if alpha == 0 or ranks == 1:
        return ()
    raw = [(i + 1) ** -alpha for i in range(experts)]
    total = sum(raw)
    share = [min(x / total, 1 / top_k) for x in raw]
    mean = sum(share) / ranks
    found = []
    for entry in range(ENTRIES):
        worst = [_most_loaded(share, ranks, entry * LAYOUTS + k) / mean for k in range(LAYOUTS)]
        found.append(max(1.0, sum(worst) / LAYOUTS))
    return tuple(sorted(found))


def _most_loaded(share: list[float], ranks: int, layout: int) -> float:
    order = sorted(range(len(share)), key=lambda i: mix(layout << 32 | i))
    loads = [0.0] * ranks
    for position, expert in enumerate(order):
        loads[position % ranks] += share[expert]
    return max(loads)
