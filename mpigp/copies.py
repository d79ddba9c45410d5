"""Copies of a fit in memory: each rank keeps its own rows' state at an iteration, and that of the rank before it.

When ranks die, the others still hold all rows between them, unless two neighbours died at once: what a rank lost, the
next one has. From its copies a fit goes on with the same bits on the ranks that are left.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpigp.chunks import Share, share
from mpigp.fitting import Fit
from mpigp.trace import Trace

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Floats = NDArray[np.float64]

SHARE = 0.02  # of the time that copies may take


@dataclass(frozen=True)
class Copy:
    """The state of a fit at an iteration.

    rank, size : whose rows these are, of how many ranks
    rows : (vectors, rows, q), the local parts of all vectors.   before : those of the rank before
    shared : all shared parts, one after the other.   numbers, trace : the rest, the same for all ranks
    """

    iteration: int
    rank: int
    size: int
    rows: Floats
    before: Floats
    shared: Floats
    numbers: dict[str, Any]
    trace: Trace


def take(comm: Comm, fit: Fit) -> Copy:
    """Return a copy of the fit as it is between two iterations. Called by all ranks."""
    n, q = fit.objective.evaluator.rows.n, fit.objective.q
    blocks = fit.optimizer.vectors().values()
    rows = np.concatenate([block.local.reshape(-1, block.local.shape[-1] // q, q) for block in blocks])
    shared = np.concatenate([block.shared.ravel() for block in blocks])
    comm.Bcast(shared)  # rank 0's counts
    before = np.empty((len(rows), share(n, (comm.rank - 1) % comm.size, comm.size).rows, q))
    comm.Sendrecv(rows, (comm.rank + 1) % comm.size, recvbuf=before, source=(comm.rank - 1) % comm.size)
    comm.Barrier()  # all have theirs before anyone forgets the copy before this one
    numbers = {name: np.array(value) for name, value in (fit.numbers() | fit.optimizer.numbers()).items()}
    trace = Trace(**{name: list(series) for name, series in vars(fit.trace).items()})
    return Copy(fit.iteration, comm.rank, comm.size, rows, before, shared, numbers, trace)


def holders(found: list[list[tuple[int, int, int]]]) -> tuple[int, list[tuple[int, bool]]] | None:
    """Return the newest iteration of which all rows are left, and who holds those of each rank of then.

    Parameters
    ----------
    found : by rank now, (iteration, rank then, size then) of each of its copies

    Returns
    -------
    iteration, and by rank then: the rank now, and whether they were its own (or those of the rank before it)
    """
    for iteration, size in sorted({(copy[0], copy[2]) for copies in found for copy in copies}, reverse=True):
        now = {rank_then: rank for rank, copies in enumerate(found) for when, rank_then, of in copies
               if (when, of) == (iteration, size)}  # fmt: skip
        held = [(now[rank], True) if rank in now else (now.get((rank + 1) % size, -1), False) for rank in range(size)]
        if all(rank >= 0 for rank, _ in held):
            return iteration, held
    return None


def restore(comm: Comm, fit: Fit, copies: list[Copy]) -> bool:
    """Take a new fit to the newest iteration that the copies hold; False where rows are lost. Called by all ranks.

    copies : this rank's, newest first
    """
    plan = holders(comm.allgather([(copy.iteration, copy.rank, copy.size) for copy in copies]))
    if plan is None:
        return False
    iteration, held = plan
    mine = next((copy for copy in copies if (copy.iteration, copy.size) == (iteration, len(held))), None)
    n, q = fit.objective.evaluator.rows.n, fit.objective.q

    sent: list[list[tuple[int, Floats]]] = [[] for _ in range(comm.size)]
    for rank, (holder, own) in enumerate(held):
        if holder == comm.rank and mine is not None:
            start, stop = share(n, rank, len(held))
            for to in range(comm.size):
                wanted = share(n, to, comm.size)
                first, last = max(start, wanted.start), min(stop, wanted.stop)
                if first < last:
                    sent[to].append((first, (mine.rows if own else mine.before)[:, first - start : last - start]))
    wanted = share(n, comm.rank, comm.size)
    source = held[0][0]
    rest = (mine.shared, mine.numbers, mine.trace) if mine is not None else None
    shared, numbers, trace = comm.bcast(rest, root=source)
    _fill(fit, shared, [piece for pieces in comm.alltoall(sent) for piece in pieces], wanted, q)
    fit.optimizer.restore(numbers)
    fit.restore(trace, bool(numbers["held"]), int(numbers["before"]))
    return True


def _fill(fit: Fit, shared: Floats, pieces: list[tuple[int, Floats]], wanted: Share, q: int) -> None:
    """Put shared parts, and pieces (first row, (vectors, rows, q)) of the local ones, into the optimiser's vectors."""
    place, vector = 0, 0
    for block in fit.optimizer.vectors().values():
        block.shared[...] = shared[place : place + block.shared.size].reshape(block.shared.shape)
        place += block.shared.size
        local = block.local.reshape(-1, wanted.rows, q)
        for first, values in pieces:
            at = first - wanted.start
            local[:, at : at + values.shape[1]] = values[vector : vector + len(local)]
        vector += len(local)


class Keeper:
    """Keeps copies of a fit fresh, for a small share of its time.

    copies : newest first. The one before is kept until all ranks are known to have the newest.
    saved : whether this run has written a checkpoint too
    """

    def __init__(self) -> None:
        self.copies: list[Copy] = []
        self.saved = False
        self._taken, self._cost = -math.inf, 0.0

    def refresh(self, comm: Comm, fit: Fit) -> None:
        """Take a copy if rank 0's clock says that it is worth its while. Called by all ranks after an iteration."""
        now = time.monotonic()
        due = np.array([SHARE * (now - self._taken) >= self._cost])
        comm.Bcast(due)
        if not due[0]:
            return
        self.copies.insert(0, take(comm, fit))
        self._taken = time.monotonic()
        self._cost = self._taken - now

    def settle(self) -> None:
        """Forget all copies but the newest: ranks have met since it was taken."""
        del self.copies[1:]
