"""What the busiest rank of a row of the MoE tables does: its experts and its copies of tokens.

The tables draw the tokens of experts from a power law, between 1 and 0.8 x the tokens, or between 0.01 and 2 if there
are no more picks than experts. Drawn weights are scaled to all picks, rounded, and cut at one pick per token and
expert; what is cut goes evenly to the ranks, there to the experts with the fewest. The rank with the most picks is
timed, over ten draws (ai-dynamo/aiconfigurator, collector/helper.py and collector/vllm/collect_moe.py). Here too, all
from one seed.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

EXPONENTS = {"balanced": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}
MOST, FEW = 0.8, (0.01, 2.0)
DRAWS, SEED = 10, 0
Floats = npt.NDArray[np.float64]


@cache
def busiest_rank(tokens: int, top_k: int, experts: int, ranks: int, exponent: float) -> tuple[float, float]:
    """(experts that it reads, copies of tokens that it multiplies), means over the draws."""
    picks = tokens * top_k
    if exponent == 0:
        return min(experts, picks) / ranks, picks / ranks
    found = [_busiest(counts.reshape(ranks, -1), picks, tokens) for counts in _draws(tokens, picks, experts, exponent)]
    distinct, copies = np.mean(found, axis=0)
    return float(distinct), float(copies)


def _draws(tokens: int, picks: int, experts: int, exponent: float) -> Floats:
    """Picks of each expert, (draws, experts), not yet of the right sum."""
    low, high = (1.0, max(MOST * tokens, 1 + 1e-9)) if picks > experts else FEW
    uniform, power = np.random.default_rng(SEED).random((DRAWS, experts)), 1 - exponent
    weights = ((high**power - low**power) * uniform + low**power) ** (1 / power)
    counts: Floats = np.minimum(np.round(weights / weights.sum(axis=1, keepdims=True) * picks), tokens)
    return counts


def _busiest(counts: Floats, picks: int, tokens: int) -> tuple[int, float]:
    """Of counts (ranks, experts of a rank): experts and picks of the fullest rank, once all picks are given."""
    missing = picks - int(counts.sum())
    shares = missing // len(counts) + (np.arange(len(counts)) < missing % len(counts))
    full = np.clip(counts.sum(axis=1) + shares, 0, counts.shape[1] * tokens)
    rank = int(np.argmax(full))
    given = full[rank] - counts[rank].sum()
    own = _levelled(counts[rank], given) if given >= 0 else -_levelled(-counts[rank], -given)
    return int((own >= 1).sum()), float(full[rank])


def _levelled(counts: Floats, given: float) -> Floats:
    """The smallest counts raised to a common level, in whole picks, until `given` is spent."""
    ascending = np.sort(counts)
    levels = (given + np.cumsum(ascending)) / np.arange(1, len(counts) + 1)
    level = np.floor(levels[np.argmax(levels <= np.append(ascending[1:], np.inf))])
    raised: Floats = np.maximum(ascending, level)
    rest = round(given - float((raised - ascending).sum()))
    raised[: max(rest, 0)] += 1
    return raised
