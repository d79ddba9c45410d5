"""Rows that are spread over ranks: totals, extremes, fingerprints and scores with the same bits on any number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpigp.chunks import Share, chunk_rows, share
from mpigp.data.datasets import Columns, Stream, blocks
from mpigp.errors import InputError
from mpigp.gp.posterior import Prediction
from mpigp.mpi.communicator import raise_on_all_ranks, sum_over_ranks
from mpigp.numerics import reproducible_sum
from mpigp.types import Comm, Floats, Integers

BLOCK = 2**14  # rows whose fingerprint is taken at a time


@dataclass(frozen=True)
class DistributedRows:
    """An array of n rows, of which each rank holds its share, in whole chunks. All methods are collective."""

    comm: Comm  # the ranks that hold it
    n: int  # rows of all ranks together
    local: Columns  # (rows, columns), this rank's share, in memory or streamed from its file

    @property
    def share(self) -> Share:
        """The numbers of this rank's rows."""
        return share(self.n, self.comm.rank, self.comm.size)

    @property
    def columns(self) -> int:
        return self.local.shape[1]

    def with_local(self, local: Columns) -> DistributedRows:
        """Return other values (rows, columns) for the same rows."""
        return DistributedRows(self.comm, self.n, local)

    def sum(self, of_chunk: Callable[[Floats], Floats], bound: Floats) -> Floats:
        """Return the total of `of_chunk` over the chunks of all ranks.

        of_chunk : from the rows (k, columns) of one chunk to their sums, of the shape of `bound`
        bound : what the absolute totals cannot exceed, whatever their signs; the same on all ranks
        """
        chunk, scale = chunk_rows(self.n), reproducible_sum.scale_for(bound).ravel()
        accumulators = np.zeros(2 * len(scale), np.int64)
        for _, (block,) in blocks(self.local):
            for first in range(0, len(block), chunk):
                accumulators += reproducible_sum.to_accumulators(of_chunk(block[first : first + chunk]).ravel(), scale)
        sum_over_ranks(self.comm, accumulators)
        check_unchanged(self.comm, self.local)
        return reproducible_sum.from_accumulators(accumulators, scale).reshape(bound.shape)

    def extremes(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each column, NaN left out."""
        from mpi4py import MPI

        both = np.full((2, self.columns), -np.inf)
        for _, (block,) in blocks(self.local):
            ends = -np.fmin.reduce(block, axis=0, initial=np.inf), np.fmax.reduce(block, axis=0, initial=-np.inf)
            both = np.maximum(both, ends)
        self.comm.Allreduce(MPI.IN_PLACE, both, op=MPI.MAX)
        check_unchanged(self.comm, self.local)
        return -both[0], both[1]

    def take(self, numbers: Integers) -> Floats:
        """Return the rows of these numbers, which are in order, on every rank."""
        rows = np.zeros((len(numbers), self.columns))
        for origin, (block,) in blocks(self.local):
            start = self.share.start + origin
            first, last = np.searchsorted(numbers, (start, start + len(block)))
            rows[first:last] = block[numbers[first:last] - start]
        sum_over_ranks(self.comm, rows.view(np.int64))  # bits: all other ranks have zeros there
        check_unchanged(self.comm, self.local)
        return rows


def check_unchanged(comm: Comm, *columns: Columns) -> None:
    """Refuse streamed rows if any rank has seen a problem of their file; those in memory have none. Collective.

    Called after each pass over rows, so that nothing is made of a pass in which they changed.
    """
    from mpi4py import MPI

    problems = [each.file.problem for each in columns if isinstance(each, Stream)]
    if not problems:
        return
    seen = np.array([any(problems)], np.int64)
    comm.Allreduce(MPI.IN_PLACE, seen, op=MPI.MAX)
    if seen[0]:
        with raise_on_all_ranks(comm):
            if any(problems):
                raise InputError(next(filter(None, problems)))


def fingerprint(*arrays: DistributedRows | None) -> str:
    """Return a number that tells data apart: the same for the same values in the same places, on any number of ranks.

    Every value is mixed with its place; the sum of all wraps around, so its order does not matter. Collective.
    """
    total = np.zeros(1, np.uint64)
    for which, array in enumerate(arrays):
        if array is None:
            continue
        comm, width = array.comm, array.columns
        for origin, (rows,) in blocks(array.local):
            for first in range(0, len(rows), BLOCK):
                block = np.ascontiguousarray(rows[first : first + BLOCK])
                place = (array.share.start + origin + first) * width + (which << 56) + 1
                places = np.arange(block.size, dtype=np.uint64) + np.uint64(place)
                total += _mix(block.view(np.uint64).ravel() ^ _mix(places)).sum(dtype=np.uint64)
    sum_over_ranks(comm, total)
    check_unchanged(comm, *(array.local for array in arrays if array is not None))
    return f"{int(total[0]):016x}"


def scores(comm: Comm, n: int, predicted: Iterable[tuple[Prediction, Floats]]) -> dict[str, float]:
    """Return the root mean square error and the mean log density of a row, in nats, over the n rows of all ranks.

    predicted : blocks of this rank's rows, one at least, each with its outputs Y (rows, d)

    Both are NaN where a prediction is not finite. Collective.
    """
    sums = np.zeros((2, reproducible_sum.DIGITS), np.int64)
    for prediction, Y in predicted:
        square, d = (Y - prediction.mean) ** 2, Y.shape[1]
        variance = prediction.y_variance if prediction.y_variance.ndim > 1 else prediction.y_variance[:, None]
        density = -0.5 * (np.log(2 * np.pi * variance) + square / variance)
        sums += reproducible_sum.to_superaccumulators(np.stack([square.sum(axis=1), density.sum(axis=1)], axis=1))
    sum_over_ranks(comm, sums)
    squares, densities = reproducible_sum.from_superaccumulators(sums)
    return {"rmse": float(np.sqrt(squares / (n * d))), "log_density": float(densities / n)}


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the words with their bits mixed (the finalizer of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
