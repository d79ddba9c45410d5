"""Means and standard deviations of columns whose rows are spread over ranks: the same bits on any number of them."""

import numpy as np

from mpigp.fit.options import Mode
from mpigp.gp.parameters import Standardization
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Floats

ROUNDING = 2 * float(np.finfo(float).eps)
"""A column whose standard deviation is no larger, relative to its largest entry, does not vary but is rounded."""


def power_of_two(magnitudes: Floats) -> Floats:
    """Return powers of two u with 1 ≤ magnitude / u < 2: to divide by them rounds nothing, and squares stay finite."""
    return np.ldexp(1.0, np.frexp(magnitudes)[1] - 1)


def standardization(values: DistributedRows, mode: Mode) -> tuple[Standardization, list[int]]:
    """Return what takes columns to mean zero and variance one, and the columns that are constant.

    With x counted from the middle of its column's range, in units of about half of it, and the first mean rounded,

        mean = Σ x / n      c = x − mean      mean ← mean + Σ c / n      variance = Σ c² / n − (Σ c / n)²

    where NaN entries are missing: they take no part, and n is the number of those that are there.

    In mode "center" the scale (columns,) is 1, as that of a constant column always is; in mode "none" the columns stay
    as they are, and no constant ones are looked for.
    """
    n, columns = values.n, values.columns
    if mode == "none":
        return Standardization(np.zeros(columns), np.ones(columns)), []

    low, high = values.extremes()
    middle = low / 2 + high / 2
    unit = power_of_two(np.maximum(high - middle, middle - low))

    def sums(x: Floats) -> Floats:
        there = ~np.isnan(x)
        return np.stack([np.where(there, (x - middle) / unit, 0.0).sum(axis=0), there.sum(axis=0)])

    total, count = values.sum(sums, np.full((2, columns), 2.0 * n))
    first = total / count

    def moments(x: Floats) -> Floats:
        c = np.where(np.isnan(x), 0.0, (x - middle) / unit - first)
        return np.stack([c.sum(axis=0), (c * c).sum(axis=0)])

    rest, second = values.sum(moments, np.full((2, columns), 16.0 * n)) / count
    deviation = np.sqrt(np.maximum(second - rest * rest, 0.0)) * unit
    constant = deviation <= ROUNDING * np.maximum(-low, high)
    scale = np.where(constant, 1.0, deviation) if mode == "scale" else np.ones(columns)
    return Standardization(middle + (first + rest) * unit, scale), np.flatnonzero(constant).tolist()
