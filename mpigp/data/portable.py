"""Elementary functions and random numbers that have the same bits on every CPU.

The exp, log, sin and cos of NumPy and of the C library round differently from CPU to CPU, and so do products by BLAS.
+, −, ×, /, √ and what handles bits or rounds to whole numbers are exact by IEEE 754. All here is made of them, each in
a pass of its own over the array, so that no compiler fuses a product with a sum. Errors are a few units in the last
place.
"""

import math
from collections.abc import Sequence

import numpy as np

from mpigp.types import Floats

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # log 2, the first with 21 zeros at its end
HALF_LOG_2PI = 0.91893853320467274178
SQRT_HALF = np.array(0.70710678118654752440).view(np.int64)
ONE, EXPONENT = np.array(1.0).view(np.int64), 52  # the bits of 1; the place of the exponent's last bit
EXP = [1 / math.factorial(k) for k in range(15)]  # for |x| ≤ ½ log 2
SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(12)]  # (sin x) / x by x², for |x| ≤ π/2
ATANH = [1 / (2 * k + 3) for k in range(11)]  # (atanh s − s) / s³ by s², for |s| ≤ SERIES
SERIES = 0.1716  # (√2 − 1) / (√2 + 1)
STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188]  # log k! less Stirling's formula, by 1/k², times k
FACTORIALS = np.array([float(math.factorial(k)) for k in range(16)])  # below them the series of STIRLING is poor
FEW = 10.0  # a Poisson mean below it is sampled by search
MOST = 64  # that a Poisson variable of such a mean can be: beyond lie less than 1e-29


def polynomial(x: Floats, coefficients: Sequence[float]) -> Floats:
    """Return Σ_k c_k x^k, by Horner's rule."""
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= x
        total += coefficient
    return total


def exp(x: Floats) -> Floats:
    """Return e^x for |x| ≤ 700."""
    power = np.rint(x * 1.44269504088896340736)
    two_to_power = ((power.astype(np.int64) << EXPONENT) + ONE).view(np.float64)
    return polynomial((x - power * LN2_HIGH) - power * LN2_LOW, EXP) * two_to_power


def log(x: Floats) -> Floats:
    """Return the logarithm of normal numbers x > 0: of x = 2^e y with √½ ≤ y < √2, by log y = 2 atanh((y−1)/(y+1))."""
    bits = np.asarray(x, np.float64).view(np.int64)
    exponent = (bits - SQRT_HALF) >> EXPONENT
    y = (bits - (exponent << EXPONENT)).view(np.float64)
    s = (y - 1.0) / (y + 1.0)
    z = s * s
    s += s
    power = exponent.astype(np.float64)
    return power * LN2_HIGH + (s + (s * (z * polynomial(z, ATANH)) + power * LN2_LOW))


def sin(turns: Floats) -> Floats:
    """Return sin 2πt for t in turns."""
    part = turns - np.rint(turns)
    size = np.abs(part)
    return _sin_of_quarter(np.copysign(np.minimum(size, 0.5 - size), part))


def cos(turns: Floats) -> Floats:
    """Return cos 2πt for t in turns."""
    return _sin_of_quarter(0.25 - np.abs(turns - np.rint(turns)))


def _sin_of_quarter(turns: Floats) -> Floats:
    """Return sin 2πt for |t| ≤ ¼."""
    x = turns * (2.0 * np.pi)
    return x * polynomial(x * x, SIN)


def uniform(rng: np.random.Generator, shape: int | tuple[int, ...]) -> Floats:
    """Draw from (0, 1]: a logarithm is finite there."""
    return 1.0 - rng.random(shape)


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw standard normal numbers, in pairs from a radius and an angle (Box and Muller 1958)."""
    count = math.prod(shape)
    radius, angle = uniform(rng, -(-count // 2)), rng.random(-(-count // 2))
    radius = np.sqrt(-2.0 * log(radius))
    return np.concatenate([radius * cos(angle), radius * sin(angle)])[:count].reshape(shape)


def gamma2(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw gamma variables of shape 2 and scale 1: the sum of two exponential ones."""
    return -log(uniform(rng, shape) * uniform(rng, shape))


def poisson(rng: np.random.Generator, mean: Floats) -> Floats:
    """Draw Poisson variables of these means, as whole numbers in floating point."""
    few = mean < FEW
    counts = np.empty_like(mean)
    counts[few] = _poisson_by_search(rng, mean[few])
    left = np.flatnonzero(~few)
    while len(left):
        drawn, taken = _poisson_candidates(rng, mean.flat[left])
        counts.flat[left[taken]] = drawn[taken]
        left = left[~taken]
    return counts


def _poisson_by_search(rng: np.random.Generator, mean: Floats) -> Floats:
    """Draw Poisson variables of means below FEW: how many of P(0), P(≤ 1), P(≤ 2), ... a uniform number exceeds."""
    below, counts = rng.random(mean.shape), np.zeros_like(mean)
    probability = exp(-mean)
    total = probability.copy()
    for k in range(1, MOST + 1):
        counts += below >= total
        probability *= mean / k
        total += probability
    return counts


def _poisson_candidates(rng: np.random.Generator, mean: Floats) -> tuple[Floats, np.ndarray]:
    """Draw candidates for Poisson variables of means (n,) ≥ FEW; return them and which are taken.

    The transformed rejection of Hörmann (1993), algorithm PTRS, with his names: of all candidates 85 % and more are
    taken by two comparisons, the others are compared with the probability of k.
    """
    u, v = rng.random(len(mean)) - 0.5, uniform(rng, len(mean))
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = -0.059 + 0.02483 * b
    us = 0.5 - np.abs(u)
    with np.errstate(divide="ignore"):  # u = −½ makes k = −∞, which is not taken
        k = np.floor((2.0 * a / us + b) * u + mean + 0.43)
    taken = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
    open_ = np.flatnonzero(~taken & (k >= 0.0) & ((us >= 0.013) | (v <= us)))
    a, b, us = a[open_], b[open_], us[open_]
    density = v[open_] * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b)
    taken[open_] = log(density) <= _log_poisson(k[open_], mean[open_])
    return k, taken


def _log_poisson(k: Floats, mean: Floats) -> Floats:
    """Return log P(k) = k log λ − λ − log k! of Poisson variables of mean λ, without cancellation where k is near λ.

    From Stirling's formula, log P(k) = −D − ½ log 2πk − (1/12k − ...), with D = k log(k/λ) + λ − k; and, with
    v = (k − λ)/(k + λ), D = (k − λ) v + 2k (atanh v − v) (Loader 2000).
    """
    many = np.maximum(k, len(FACTORIALS))
    v = (many - mean) / (many + mean)
    z = v * v
    near = (many - mean) * v + 2.0 * many * (v * (z * polynomial(z, ATANH)))
    deviance = np.where(np.abs(v) <= SERIES, near, many * log(many / mean) + mean - many)
    series = polynomial(1.0 / (many * many), STIRLING) / many
    by_table = k * log(mean) - mean - log(FACTORIALS[np.minimum(k, len(FACTORIALS) - 1.0).astype(np.intp)])
    return np.where(k < len(FACTORIALS), by_table, -deviance - HALF_LOG_2PI - 0.5 * log(many) - series)
