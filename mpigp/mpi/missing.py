"""Missing entries of Y: the outputs are grouped by which rows have them.

Given q(X), the bound of the GPLVM is a sum over outputs, and an entry that is missing takes no part in it: output j
needs Ψ2 over the rows that have it alone. Outputs that the same rows have share one Ψ2, so what counts is the number of
groups: each costs two multiplications more for every exponential of a pair, m(m+1)/2 numbers more in each round's
message, and the factorizations of m × m matrices once more on the master.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.errors import InputError
from mpigp.gp.bound import Group
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Comm, Floats


class EmptyColumn(InputError):
    """An output that no row has."""


class Patterns(NamedTuple):
    """Which entries of Y are there.

    observed : (rows, groups), 1 where a row of this rank has the outputs of a group, and 0 where it has not
    group : (d,), the group of each output
    """

    observed: Floats
    group: NDArray[np.intp]

    def groups(self, Y: DistributedRows) -> list[Group]:
        """Return the groups over the rows of all ranks; missing entries of Y (n, d) are zero. Collective."""
        low, high = Y.extremes()
        limit = Y.n * np.maximum(np.maximum(-low, high) ** 2, 1e-300)
        squares = Y.sum(lambda y: (y * y).sum(axis=0), limit)
        observed, most = Y.with_local(self.observed), np.full(self.observed.shape[1], float(Y.n))
        counts = observed.sum(lambda o: o.sum(axis=0), most)
        members = [np.flatnonzero(self.group == k) for k in range(self.observed.shape[1])]
        return [
            Group(outputs, int(count), float(squares[outputs].sum()))
            for outputs, count in zip(members, counts, strict=True)
        ]


def find_patterns(comm: Comm, Y: Floats) -> Patterns | None:
    """Return the patterns of the NaN in Y (rows, d); None where no rank has any."""
    from mpi4py import MPI

    there = np.isfinite(Y)
    if comm.allreduce(bool(there.all()), MPI.LAND):
        return None
    counts = there.astype(np.float64)
    both = (counts.T @ counts).astype(np.int64)  # rows that have both outputs
    comm.Allreduce(MPI.IN_PLACE, both, op=MPI.SUM)
    alone = both.diagonal()
    if not alone.all():
        raise EmptyColumn(f"column {int(alone.argmin())} (counted from 0) has no entry at all: leave it out")
    same = (both == alone) & (both == alone[:, None])
    first, group = np.unique(same.argmax(axis=1), return_inverse=True)
    return Patterns(np.ascontiguousarray(counts[:, first]), group)
