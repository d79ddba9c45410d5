"""Totals over the rows of all ranks, the same bits on any number of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpigp.chunks import chunk_rows
from mpigp.data.streams import Columns, blocks
from mpigp.numerics.reproducible_sum import from_accumulators, scale_for, to_accumulators
from mpigp.types import Comm, Floats


def row_sums(comm: Comm, n: int, rows: Columns, sums: Callable[[Floats], Floats], bound: Floats) -> Floats:
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
    for _, (block,) in blocks(rows):
        for first in range(0, len(block), chunk):
            words += to_accumulators(sums(block[first : first + chunk]).ravel(), scale)
    comm.Allreduce(MPI.IN_PLACE, words, op=MPI.SUM)
    return from_accumulators(words, scale).reshape(bound.shape)


def extremes(comm: Comm, values: Columns) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value of each column over all ranks, NaN left out."""
    from mpi4py import MPI

    both = np.full((2, values.shape[1]), -np.inf)
    for _, (block,) in blocks(values):
        ends = -np.fmin.reduce(block, axis=0, initial=np.inf), np.fmax.reduce(block, axis=0, initial=-np.inf)
        both = np.maximum(both, ends)
    comm.Allreduce(MPI.IN_PLACE, both, op=MPI.MAX)
    return -both[0], both[1]
