"""The rates that set the limit: dgemm and the SIMD exponential, on one core."""

from __future__ import annotations

import time
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas
from threadpoolctl import threadpool_limits

from benchmarks.support.problems import Problem
from mpigp.native import exponential

GEMM_SIZES = (500, 1000, 1500)
NUMBERS = 1024  # of the exponential: arguments and results fit the first cache
PASSES = 1000


class Rates(NamedTuple):
    """What one core does in a second.

    flops : multiplications and additions in dgemm
    exponentials : SIMD exponentials of the library, on numbers in the first cache
    """

    flops: float
    exponentials: float

    def limit(self, problem: Problem) -> float:
        """Return the seconds that the least work of a problem takes at these rates."""
        return problem.flops / self.flops + problem.exponentials / self.exponentials


def measure(repeat: int = 9) -> Rates:
    """Measure both rates: medians, as for what is compared with them; dgemm at the size that suits it best."""
    with threadpool_limits(1):
        flops = max(2.0 * size**3 / median(_gemm(size) for _ in range(repeat)) for size in GEMM_SIZES)
    return Rates(flops, NUMBERS * PASSES / median(_exponential() for _ in range(10 * repeat)))


def best(one: Rates, other: Rates) -> Rates:
    """Return the higher of each rate."""
    return Rates(*map(max, one, other))


def _gemm(size: int) -> float:
    a, b, c = (np.full((size, size), value, order="F") for value in (0.5, 0.25, 0.0))
    start = time.perf_counter()
    blas.dgemm(1.0, a, b, c=c, overwrite_c=True)
    return time.perf_counter() - start


def _exponential() -> float:
    # Both arrays begin a cache line, and lie where no load waits for a store of the same low 12 address bits.
    space = np.zeros(3 * NUMBERS)
    first = -space.ctypes.data % 64 // 8
    values, result = space[first : first + NUMBERS], space[first + NUMBERS + 256 :][:NUMBERS]
    values[:] = np.linspace(-30.0, 0.0, NUMBERS)
    start = time.perf_counter()
    exponential(values, result, PASSES)
    return time.perf_counter() - start
