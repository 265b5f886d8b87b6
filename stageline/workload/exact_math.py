"""Logarithm, exponential and normal quantile, built from + - * / and sqrt alone.

The platform's `log` and `exp` are not correctly rounded, so they differ in the last bit between C libraries. IEEE 754
defines + - * / and sqrt exactly, and `frexp` and `ldexp` are exact, so the results have the same bits everywhere.
Accuracy: a few units in the last place, which disappears when results are rounded to whole nanoseconds or tokens.
"""

import math

_SQRT_HALF = 0.7071067811865476
_LN2_HIGH = 0.6931471803691238  # the high 32 bits: k * _LN2_HIGH is exact for |k| < 2**20
_LN2_LOW = 1.9082149292705877e-10
_ODD = tuple(1.0 / n for n in range(21, 0, -2))
_FACTORIALS = tuple(1.0 / math.factorial(n) for n in range(14, -1, -1))

_Rational = tuple[tuple[float, ...], tuple[float, ...]]  # numerator and denominator, highest power first
_CENTRE: _Rational = (
    (
        2509.0809287301227,
        33430.57558358813,
        67265.7709270087,
        45921.95393154987,
        13731.69376550946,
        1971.5909503065513,
        133.14166789178438,
        3.3871328727963665,
    ),
    (
        5226.495278852854,
        28729.085735721943,
        39307.89580009271,
        21213.794301586597,
        5394.196021424751,
        687.1870074920579,
        42.31333070160091,
        1.0,
    ),
)
_MIDDLE: _Rational = (
    (
        0.0007745450142783414,
        0.022723844989269184,
        0.2417807251774506,
        1.2704582524523684,
        3.6478483247632045,
        5.769497221460691,
        4.630337846156546,
        1.4234371107496835,
    ),
    (
        1.0507500716444169e-09,
        0.0005475938084995345,
        0.015198666563616457,
        0.14810397642748008,
        0.6897673349851,
        1.6763848301838038,
        2.053191626637759,
        1.0,
    ),
)
_TAIL: _Rational = (
    (
        2.0103343992922881e-07,
        2.7115555687434876e-05,
        0.0012426609473880784,
        0.026532189526576124,
        0.29656057182850487,
        1.7848265399172913,
        5.463784911164114,
        6.657904643501103,
    ),
    (
        2.0442631033899397e-15,
        1.421511758316446e-07,
        1.8463183175100548e-05,
        0.0007868691311456133,
        0.014875361290850615,
        0.1369298809227358,
        0.599832206555888,
        1.0,
    ),
)


def unit(draw: int) -> float:
    """A 64-bit draw → the middle of one of 2**52 equal cells of (0, 1), so neither 0 nor 1."""
    return ((draw >> 12) + 0.5) * 2.220446049250313e-16


def ln(x: float) -> float:
    """Natural logarithm of x > 0: x = m * 2**e, ln m = 2 atanh((m - 1) / (m + 1)) as a series."""
    mantissa, exponent = math.frexp(x)
    if mantissa < _SQRT_HALF:
        mantissa *= 2.0
        exponent -= 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    total = 0.0
    for coefficient in _ODD:
        total = total * z + coefficient
    return exponent * _LN2_HIGH + (exponent * _LN2_LOW + 2.0 * s * total)


def exp(x: float) -> float:
    """e**x for |x| <= 700: x = k ln 2 + r, Taylor's series of r, times 2**k."""
    k = math.floor(x / _LN2_HIGH + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    total = 0.0
    for coefficient in _FACTORIALS:
        total = total * r + coefficient
    return math.ldexp(total, k)


def exponential(draw: int) -> float:
    """A variate of the exponential distribution with mean 1, by inversion."""
    return -ln(unit(draw))


def normal(draw: int) -> float:
    """A standard normal variate, by inversion."""
    return normal_quantile(unit(draw))


def normal_quantile(p: float) -> float:
    """The inverse of the standard normal distribution, 0 < p < 1.

    Source: M. J. Wichura, Algorithm AS241 (PPND16), Applied Statistics 37 (1988) 477-484; relative error about 1e-16.
    """
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        return q * _ratio(_CENTRE, r)
    r = math.sqrt(-ln(p if q < 0.0 else 1.0 - p))
    x = _ratio(_MIDDLE, r - 1.6) if r <= 5.0 else _ratio(_TAIL, r - 5.0)
    return -x if q < 0.0 else x


def _ratio(coefficients: _Rational, r: float) -> float:
    above = below = 0.0
    for a, b in zip(*coefficients, strict=True):
        above = above * r + a
        below = below * r + b
    return above / below
