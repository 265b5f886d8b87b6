"""Expert imbalance: a table of how much more work the busiest expert rank gets, from which a run draws."""

from functools import cache

from stageline.cost.hashing import mix

ENTRIES = 64
LAYOUTS = 8  # averaged by one factor, because a visit passes several layers and each has its own layout


@cache
def imbalance_factors(experts: int, top_k: int, ranks: int, alpha: float, redundant: int = 0) -> tuple[float, ...]:
    """`ENTRIES` ascending factors >= 1: the load of the busiest rank over the mean. Empty for alpha 0 or one rank.

    The i-th most popular expert gets a part of the picks proportional to i^-alpha, at most 1 / top_k, because a token
    picks it at most once. Every layout assigns the experts to ranks in another hashed order. `relieve` adds the
    `redundant` copies, so that one more copy never makes a factor larger.
    """
    if alpha == 0 or ranks == 1:
        return ()
    raw = [(i + 1) ** -alpha for i in range(experts)]
    total = sum(raw)
    share = [min(x / total, 1 / top_k) for x in raw]
    mean = sum(share) / ranks
    found = []
    for entry in range(ENTRIES):
        worst = [_largest_load(share, ranks, entry * LAYOUTS + k, redundant) / mean for k in range(LAYOUTS)]
        found.append(max(1.0, sum(worst) / LAYOUTS))
    return tuple(sorted(found))


def _largest_load(share: list[float], ranks: int, layout: int, redundant: int) -> float:
    order = sorted(range(len(share)), key=lambda i: mix(layout << 32 | i))
    held: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for position, expert in enumerate(order):
        loads[position % ranks] += share[expert]
        held[position % ranks].append(expert)
    return relieve(share, held, loads, redundant)


def relieve(share: list[float], held: list[list[int]], loads: list[float], copies: int) -> float:
    """The load of the busiest rank after up to `copies` redundant experts; changes `held` and `loads`.

    Each copies the hottest expert of the busiest rank to the least busy rank without it, until a copy no longer helps.
    The copies of an expert split its load evenly. `share`: of the picks, by expert; `held`: experts, by rank.
    """
    homes: dict[int, int] = dict.fromkeys(range(len(share)), 1)
    for _ in range(copies):
        worst = max(range(len(loads)), key=lambda r: loads[r])
        hottest = max(held[worst], key=lambda e: share[e] / homes[e], default=None)
        free = [r for r in range(len(loads)) if hottest is not None and hottest not in held[r]]
        if hottest is None or not free:
            break
        target = min(free, key=lambda r: loads[r])
        before, after = share[hottest] / homes[hottest], share[hottest] / (homes[hottest] + 1)
        if loads[target] + after >= loads[worst]:
            break
        for r, experts in enumerate(held):
            if hottest in experts:
                loads[r] -= before - after
        homes[hottest] += 1
        loads[target] += after
        held[target].append(hottest)
    return max(loads)
