"""A deterministic fit of positive constants: coordinate search, first for the least mean |log(formula / measured)|."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bench.costs.forms import Form
from bench.costs.tables import Floats, Rows

BAND_EDGES = (65, 257, 2049)
BANDS = ("1-64", "65-256", "257-2048", "more")
ROUNDS, SMALLEST_STEP = 300, 1e-3
BIAS, MEAN_SHARE = 0.1, 0.1  # of the second search: no band beyond this bias, and this weight on the first one's loss


class Residuals(NamedTuple):
    """How far a formula is from its rows: median absolute error, and (rows, median error) by band of tokens."""

    rows: int
    error: float
    bands: tuple[tuple[int, float], ...]


def band_of(tokens: Floats) -> Floats:
    """The index in BANDS of each row."""
    return np.digitize(tokens, BAND_EDGES).astype(float)


def _weights(tokens: Floats) -> Floats:
    """Rows of a band weigh 1 / sqrt(its rows), so that no band is lost beside a larger one."""
    bands = band_of(tokens).astype(int)
    counts: Floats = np.bincount(bands, minlength=len(BANDS)).astype(float)
    weights: Floats = 1 / np.sqrt(counts[bands])
    return weights


def fit(form: Form, rows: Rows) -> list[float]:
    """The constants: first by the mean over all bands, from there by the median error and the bands' bias."""
    weights = _weights(rows.tokens)
    logs = np.log(rows.us)

    def mean(x: Floats) -> float:
        return float(np.average(np.abs(np.log(form.predict(x)) - logs), weights=weights))

    def median(x: Floats) -> float:
        found = residuals(form.predict(x), rows)
        beyond = sum(max(0.0, abs(bias) - BIAS) for count, bias in found.bands if count)
        return found.error + beyond + MEAN_SHARE * mean(x)

    return _search(median, np.array(_search(mean, np.array(form.start), 0.3)), 0.05)


def _search(loss: Callable[[Floats], float], x: Floats, step: float) -> list[float]:
    best, steps = loss(x), np.full(len(x), step)
    for _ in range(ROUNDS):
        for i in range(len(x)):
            for sign in (1, -1):
                moved = x.copy()
                moved[i] *= np.exp(sign * steps[i])
                value = loss(moved)
                if value < best - 1e-7:
                    x, best = moved, value
                    steps[i] *= 1.3
                    break
            else:
                steps[i] *= 0.6
        if steps.max() < SMALLEST_STEP:
            break
    return [float(value) for value in x]


def residuals(predicted: Floats, rows: Rows) -> Residuals:
    """Of a formula's times."""
    relative, bands = predicted / rows.us - 1, band_of(rows.tokens)
    parts = [relative[bands == band] for band in range(len(BANDS))]
    by_band = tuple((len(part), float(np.median(part)) if len(part) else 0.0) for part in parts)
    return Residuals(len(relative), float(np.median(np.abs(relative))), by_band)


def envelope(sizes: Floats, us: Floats, most: int = 3) -> list[tuple[float, float]]:
    """At most `most` lines (us, us per byte) whose minimum follows a collective's times: one per algorithm.

    The breaks between the lines are those with the least mean relative error of the minimum.
    """
    best, lines = np.inf, [(float(us[0]), float(us[-1] / sizes[-1]))]
    count = len(sizes)
    for first in range(4, count - 6):
        for second in range(first + 3, count - 2):
            parts = [slice(0, first), slice(first, second), slice(second, count)]
            found = [_line(sizes[p], us[p]) for p in parts]
            error = float(np.mean(np.abs(np.min([a + b * sizes for a, b in found], axis=0) / us - 1)))
            if error < best:
                best, lines = error, found
    return lines[:most]


def _line(sizes: Floats, us: Floats) -> tuple[float, float]:
    """Least squares of relative errors, neither number negative."""
    matrix = np.stack([1 / us, sizes / us], axis=1)
    (latency, per_byte), *_ = np.linalg.lstsq(matrix, np.ones(len(us)), rcond=None)
    if latency < 0:
        return 0.0, float(np.median(us / sizes))
    return (float(latency), float(per_byte)) if per_byte > 0 else (float(np.median(us)), 1e-12)
