"""How much more work the most loaded expert rank gets, as a table from which a run draws."""

from functools import cache

from stageline.cost.hashing import mix

ENTRIES = 64
LAYOUTS = 8  # layouts that one entry averages: a visit passes several layers, each with its own


@cache
def imbalance_factors(experts: int, top_k: int, ranks: int, alpha: float, redundant: int = 0) -> tuple[float, ...]:
    """`ENTRIES` factors >= 1, ascending: load of the most loaded rank over the mean.

    Expert popularity falls as rank ** -alpha; no expert gets more than every token (1 / top_k of the picks). Experts
    are placed on ranks in a hashed order, differently in every layout. Uniform (alpha 0) gives no table. Each of the
    `redundant` copies goes where `relieve` puts it, so that no further copy makes a factor larger.
    """
    if alpha == 0 or ranks == 1:
        return ()
    raw = [(i + 1) ** -alpha for i in range(experts)]
    total = sum(raw)
    share = [min(x / total, 1 / top_k) for x in raw]
    mean = sum(share) / ranks
    found = []
    for entry in range(ENTRIES):
        worst = [_most_loaded(share, ranks, entry * LAYOUTS + k, redundant) / mean for k in range(LAYOUTS)]
        found.append(max(1.0, sum(worst) / LAYOUTS))
    return tuple(sorted(found))


def _most_loaded(share: list[float], ranks: int, layout: int, redundant: int) -> float:
    order = sorted(range(len(share)), key=lambda i: mix(layout << 32 | i))
    held: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for position, expert in enumerate(order):
        loads[position % ranks] += share[expert]
        held[position % ranks].append(expert)
    return relieve(share, held, loads, redundant)


def relieve(share: list[float], held: list[list[int]], loads: list[float], copies: int) -> float:
    """Load of the most loaded rank after so many copies: one at a time, the hottest expert of the most loaded rank to
    the least loaded rank without it; an expert's load is split evenly over its copies. Ends when a copy is of no help.
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
