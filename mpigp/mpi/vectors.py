"""Vectors of the optimizers: a shared part, the same on every rank, and a local part, distributed over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mpigp import native
from mpigp.mpi.communicator import sum_over_ranks
from mpigp.numerics.reproducible_sum import from_superaccumulators, to_superaccumulators
from mpigp.types import Comm, Floats


@dataclass(frozen=True)
class MultiVector:
    """k vectors: shared (k, .), the same on every rank, and local (k, segments, .), a rank's rows, segment by segment.

    A segment holds so many numbers for every row of data, so that it can be cut where chunks of rows are.
    """

    shared: Floats
    local: Floats

    def __getitem__(self, index: int | slice) -> MultiVector:
        """Return one of the vectors, as a MultiVector of one, or some of them, in the same memory."""
        which = slice(index, index + 1) if isinstance(index, int) else index
        return MultiVector(self.shared[which], self.local[which])

    def __iter__(self) -> Iterator[Floats]:
        """Yield both parts."""
        yield self.shared
        yield self.local

    def set(self, other: MultiVector) -> None:
        """Copy the entries of another MultiVector of this shape."""
        self.shared[...] = other.shared
        self.local[...] = other.local

    def set_sum(self, start: MultiVector, step: float, direction: MultiVector) -> None:
        """Become start + step · direction."""
        for to, a, b in zip(self, start, direction, strict=True):
            np.multiply(b, step, out=to)
            to += a


Objective: TypeAlias = Callable[[MultiVector, MultiVector], float]
"""Takes a point (one vector) and a place for the gradient there; returns the value, inf where there is none."""


class VectorSpace:
    """Makes vectors of one problem, and their dot products: the same bits on any number of ranks.

    shared : numbers of the shared part
    segments, rows_local, width : the local part has so many segments of `width` numbers for each of this rank's rows
    chunk : rows of a chunk
    """

    def __init__(self, comm: Comm, shared: int, segments: int, rows_local: int, width: int, chunk: int) -> None:
        self.comm = comm
        self.shared, self.segments, self.length, self.chunk = shared, segments, rows_local * width, chunk * width
        self.size = shared + int(comm.allreduce(segments * self.length))  # numbers of a vector, of all ranks together

    def block(self, count: int) -> MultiVector:
        """Return `count` vectors of zeros."""
        return MultiVector(np.zeros((count, self.shared)), np.zeros((count, self.segments, self.length)))

    def dots(self, pairs: Sequence[tuple[MultiVector, MultiVector]]) -> list[Floats]:
        """Return the dot products (a, b) of each pair of MultiVectors, of a and of b vectors: one reduction for all."""
        sizes = [len(left.shared) * len(right.shared) for left, right in pairs]
        totals = np.concatenate([to_superaccumulators(self._parts(left, right)) for left, right in pairs])
        sum_over_ranks(self.comm, totals)
        sums = np.split(from_superaccumulators(totals), np.cumsum(sizes)[:-1])
        return [total.reshape(len(a.shared), len(b.shared)) for total, (a, b) in zip(sums, pairs, strict=True)]

    def _parts(self, left: MultiVector, right: MultiVector) -> Floats:
        """Return the dot products (., a·b) of this rank's chunks, and on rank 0 those of the shared part."""
        size = len(left.shared) * len(right.shared)
        parts = [(left.shared @ right.shared.T).reshape(1, size)] if self.comm.rank == 0 else [np.zeros((0, size))]
        for segment in range(self.segments):
            products = native.chunk_dots(left.local[:, segment], right.local[:, segment], self.chunk)
            parts.append(products.reshape(-1, size))
        return np.concatenate(parts)

    def combine(self, coefficients: Floats, vectors: MultiVector, out: MultiVector) -> None:
        """Set the one vector `out` to Σ coefficients_j vectors_j."""
        out.shared[0] = coefficients @ vectors.shared
        for segment in range(self.segments):
            for start in range(0, self.length, self.chunk):  # chunk by chunk: bits may depend on the place in a product
                piece = np.s_[:, segment, start : start + self.chunk]
                out.local[piece][0] = coefficients @ vectors.local[piece]
