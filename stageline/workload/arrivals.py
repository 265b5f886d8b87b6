"""Arrival processes: endless ascending times at a rate. Gap i depends on (seed, i) alone, not on earlier gaps."""

import math
from collections.abc import Iterator
from fractions import Fraction

from stageline.engine.rng import STREAM_ARRIVAL, draw_at, stream_key
from stageline.units import NS_PER_S, rounded_ratio
from stageline.workload.exact_math import exp, exponential, ln, normal, unit


def constant_times(rate: Fraction) -> Iterator[int]:
    """Request i at i / rate, rounded half-even: evenly spaced without drift."""
    numerator, index = NS_PER_S * rate.denominator, 0
    while True:
        yield rounded_ratio(index * numerator, rate.numerator)
        index += 1


def poisson_times(rate: Fraction, seed: int, stage: int = 0) -> Iterator[int]:
    """Exponential gaps with mean 1 / rate, each rounded to ns. Each `stage` of a workload has its own draws."""
    mean_ns = _mean_ns(rate)
    key = stream_key(seed, STREAM_ARRIVAL, 0, stage)
    time_ns = index = 0
    while True:
        time_ns += round(exponential(draw_at(key, index)) * mean_ns)
        yield time_ns
        index += 1


def gamma_times(rate: Fraction, cv: Fraction, seed: int) -> Iterator[int]:
    """Gamma gaps with mean 1 / rate and coefficient of variation `cv`; 1 is Poisson, more is burstier."""
    shape = float(1 / (cv * cv))
    scale_ns = _mean_ns(rate) / shape
    variates = _Gamma(shape, seed)
    time_ns = index = 0
    while True:
        time_ns += round(variates.at(index) * scale_ns)
        yield time_ns
        index += 1


def _mean_ns(rate: Fraction) -> float:
    return NS_PER_S * rate.denominator / rate.numerator  # int / int is correctly rounded


class _Gamma:
    """Gamma variates of one shape and scale 1, by position.

    Source: Marsaglia and Tsang, ACM TOMS 26 (2000) 363-372. A variate is d (1 + c x)^3, accepted without the squeeze
    test. For a shape below 1 it is drawn for shape + 1 and multiplied by u^(1/shape).
    """

    def __init__(self, shape: float, seed: int) -> None:
        self._power = 1.0 / shape if shape < 1.0 else 0.0
        self._d = (shape + 1.0 if shape < 1.0 else shape) - 1.0 / 3.0
        self._c = 1.0 / math.sqrt(9.0 * self._d)
        self._seed = seed
        self._first = stream_key(seed, STREAM_ARRIVAL, 1, 0)
        self._boost = stream_key(seed, STREAM_ARRIVAL, 2, 0)

    def at(self, index: int) -> float:
        """The variate at position `index`."""
        attempt, key = 0, self._first
        while (value := self._try(draw_at(key, 2 * index), draw_at(key, 2 * index + 1))) is None:
            attempt += 1
            key = stream_key(self._seed, STREAM_ARRIVAL, 1, attempt)
        if self._power:
            value *= exp(max(-700.0, ln(unit(draw_at(self._boost, index))) * self._power))
        return value

    def _try(self, draw_x: int, draw_u: int) -> float | None:
        x = normal(draw_x)
        root = 1.0 + self._c * x
        if root <= 0.0:
            return None
        v = root * root * root
        accepted = ln(unit(draw_u)) < 0.5 * x * x + self._d - self._d * v + self._d * ln(v)
        return self._d * v if accepted else None
