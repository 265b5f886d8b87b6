"""What the busiest rank of a row of the MoE tables does: its experts and its copies of tokens.

The tables draw the tokens of experts from a power law between 1 and 0.8 x the tokens, scaled to all picks, and time the
rank with the most popular expert (ai-dynamo/aiconfigurator, collector). Here the draws are the quantiles of that law.
"""

from functools import cache

import numpy as np

EXPONENTS = {"balanced": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}
MOST = 0.8
CAPPINGS = 5


@cache
def busiest_rank(tokens: int, top_k: int, experts: int, ranks: int, exponent: float) -> tuple[float, float]:
    """(experts that it reads, copies of tokens that it multiplies)."""
    picks = tokens * top_k
    if exponent == 0:
        return min(experts, picks) / ranks, picks / ranks
    counts = _counts(tokens, picks, experts, exponent)
    read, rest = np.minimum(counts, 1.0), (experts / ranks - 1) / max(experts - 1, 1)
    return float(read[0] + read[1:].sum() * rest), float(counts[0] + counts[1:].sum() * rest)


def _counts(tokens: int, picks: int, experts: int, exponent: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Tokens of each expert, the most popular first; an expert gets a token once."""
    quantiles, power = (np.arange(experts) + 0.5) / experts, 1 - exponent
    highest = max(MOST * tokens, 1.0 + 1e-7)
    counts = ((highest**power - 1) * quantiles + 1) ** (1 / power)
    for _ in range(CAPPINGS):
        counts = np.minimum(counts * picks / counts.sum(), tokens)
    return np.sort(counts)[::-1]
