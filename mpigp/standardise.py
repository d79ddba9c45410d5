"""Means and standard deviations of columns whose rows are spread over ranks: the same bits on any number of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from mpigp.chunks import chunk_rows
from mpigp.exactsum import from_two_words, scale_for, to_two_words
from mpigp.modelfile import Standardisation

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Floats = NDArray[np.float64]
Mode = Literal["scale", "center", "none"]

ROUNDING = 2 * float(np.finfo(float).eps)
"""A column whose standard deviation is no larger, relative to its largest entry, does not vary but is rounded."""


def row_sums(comm: Comm, n: int, rows: Floats, sums: Callable[[Floats], Floats], bound: Floats) -> Floats:
    """Return the totals of `sums` over the chunks of all ranks.

    Parameters
    ----------
    n : rows of all ranks together
    rows : (., columns), this rank's
    sums : from the rows (k, columns) of one chunk to their sums, of the shape of `bound`
    bound : what the absolute totals cannot exceed, whatever their signs; the same on all ranks
    """
    from mpi4py import MPI

    chunk, scale = chunk_rows(n), scale_for(bound).ravel()
    words = np.zeros(2 * len(scale), np.int64)
    for first in range(0, len(rows), chunk):
        words += to_two_words(sums(rows[first : first + chunk]).ravel(), scale)
    comm.Allreduce(MPI.IN_PLACE, words, op=MPI.SUM)
    return from_two_words(words, scale).reshape(bound.shape)


def extremes(comm: Comm, values: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value of each column over all ranks."""
    from mpi4py import MPI

    both = np.stack([-values.min(axis=0, initial=np.inf), values.max(axis=0, initial=-np.inf)])
    comm.Allreduce(MPI.IN_PLACE, both, op=MPI.MAX)
    return -both[0], both[1]


def power_of_two(magnitudes: Floats) -> Floats:
    """Return powers of two u with 1 ≤ magnitude / u < 2: to divide by them rounds nothing, and squares stay finite."""
    return np.ldexp(1.0, np.frexp(magnitudes)[1] - 1)


def standardisation(comm: Comm, n: int, values: Floats, mode: Mode) -> tuple[Standardisation, list[int]]:
    """Return what takes columns to mean zero and variance one, and the columns that are constant.

    With x counted from the middle of its column's range, in units of about half of it, and the first mean rounded,

        mean = Σ x / n      c = x − mean      mean ← mean + Σ c / n      variance = Σ c² / n − (Σ c / n)²

    Parameters
    ----------
    n : rows of all ranks together
    values : (rows, columns), this rank's
    mode : "scale" for both, "center" for mean zero alone (scale 1), "none" for the columns as they are

    Returns
    -------
    standardisation : mean (columns,) and scale (columns,); the scale of a constant column is 1
    constant : the numbers of the columns whose variance is zero up to rounding; none are looked for in mode "none"
    """
    columns = values.shape[1]
    if mode == "none":
        return Standardisation(np.zeros(columns), np.ones(columns)), []

    low, high = extremes(comm, values)
    middle = low / 2 + high / 2
    unit = power_of_two(np.maximum(high - middle, middle - low))
    first = row_sums(comm, n, values, lambda x: ((x - middle) / unit).sum(axis=0), np.full(columns, 2.0 * n)) / n

    def moments(x: Floats) -> Floats:
        c = (x - middle) / unit - first
        return np.stack([c.sum(axis=0), (c * c).sum(axis=0)])

    rest, second = row_sums(comm, n, values, moments, np.full((2, columns), 16.0 * n)) / n
    deviation = np.sqrt(np.maximum(second - rest * rest, 0.0)) * unit
    constant = deviation <= ROUNDING * np.maximum(-low, high)
    scale = np.where(constant, 1.0, deviation) if mode == "scale" else np.ones(columns)
    return Standardisation(middle + (first + rest) * unit, scale), np.flatnonzero(constant).tolist()
