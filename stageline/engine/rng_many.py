"""The vectorised twin of `rng.draw_at`, in its own module because stage servers must not import numpy."""

import numpy as np
import numpy.typing as npt

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def draw_many(key: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """`draw_at(key, c)` for every c >= 0 of `positions`; unsigned arithmetic wraps, as the mask does there."""
    x = np.uint64(key) + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
