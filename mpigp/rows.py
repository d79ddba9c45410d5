"""The rows that one rank holds, and the few numbers about all rows that every rank knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.bound import Group
from mpigp.chunks import chunk_count, chunk_rows
from mpigp.exactsum import from_two_words, scale_for, to_two_words
from mpigp.missing import Patterns

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Floats = NDArray[np.float64]


class Rows:
    """A rank's rows, in chunks; with S the inputs are uncertain (GPLVM) and their gradients live here too.

    Parameters
    ----------
    n : rows of all ranks together
    mu : (rows, q), latent means, or the inputs X in regression.   S : (rows, q) or None.   Y : (rows, d)
        float64, row-major. The optimiser changes mu and S in place.
    patterns : which entries of Y are missing (they are zero), where some are

    Attributes
    ----------
    gradients : by name ("mu", "S"), (rows, q); none in regression
    lowest, highest : (q,), the ends of mu over all ranks, as it was given
    groups : the outputs, in groups that the same rows have: one, unless entries are missing
    absolute_Y : (d,), Σ|Y_i| over all ranks, which bounds Σψ1Y
    """

    def __init__(
        self, comm: Comm, n: int, mu: Floats, S: Floats | None, Y: Floats, patterns: Patterns | None = None
    ) -> None:
        self.n, self.mu, self.S, self.Y = n, mu, S, Y
        self.chunk, self.all_chunks = chunk_rows(n), chunk_count(n)
        observed = None if patterns is None else patterns.observed
        self.native = native.Rows(mu, S, Y, self.chunk, self.all_chunks, observed)
        self.gradients = {} if S is None else {"mu": np.zeros_like(mu), "S": np.zeros_like(mu)}
        self.lowest, self.highest = _ends(comm, mu)
        self.absolute_Y, YY = _totals(comm, n, Y, self.chunk)
        self.groups = [Group(np.arange(Y.shape[1]), n, YY)] if patterns is None else patterns.groups(comm, n, Y)

    @property
    def chunks(self) -> int:
        """The number of this rank's chunks."""
        return -(-len(self.Y) // self.chunk)


def _ends(comm: Comm, mu: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest mu (q,) of all ranks."""
    from mpi4py import MPI

    ends = np.append(mu.max(axis=0, initial=-np.inf), -mu.min(axis=0, initial=np.inf))
    comm.Allreduce(MPI.IN_PLACE, ends, op=MPI.MAX)
    return -ends[mu.shape[1] :], ends[: mu.shape[1]]


def _totals(comm: Comm, n: int, Y: Floats, chunk: int) -> tuple[Floats, float]:
    """Return Σ|Y_i| (d,) and ΣY_iY_iᵀ over the rows of all ranks, the same bits on any number of them."""
    from mpi4py import MPI

    largest = np.abs(Y).max(axis=0, initial=0.0)
    comm.Allreduce(MPI.IN_PLACE, largest, op=MPI.MAX)
    scale = scale_for(n * np.append(largest, float(np.vdot(largest, largest))))
    words = np.zeros(2 * len(scale), np.int64)
    for start in range(0, len(Y), chunk):
        block = Y[start : start + chunk]
        sums = np.append(np.abs(block).sum(axis=0), (block * block).sum(axis=0).sum())
        words += to_two_words(sums, scale)
    comm.Allreduce(MPI.IN_PLACE, words, op=MPI.SUM)
    *absolute, YY = from_two_words(words, scale)
    return np.array(absolute), float(YY)
