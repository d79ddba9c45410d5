"""Partner copies of a fit: each rank keeps the state of its own rows at an iteration, and that of the rank before it.

When ranks fail, the others still hold all rows between them, unless two neighbors failed at once: the next rank has the
state of the one that is lost. From these copies the fit goes on with the same bits on the ranks that are left.
"""

import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mpigp.chunks import share
from mpigp.fit.loop import Fit, Trace
from mpigp.mpi.ulfm import confirm
from mpigp.mpi.vectors import MultiVector
from mpigp.types import Comm, Floats

SHARE = 0.02  # of the time that copies may take
SLOW = 2.5e8  # bytes per second of a copy, before one was timed


@dataclass(frozen=True)
class Copy:
    """The state of a fit at an iteration; shared, numbers and trace are the same for all ranks."""

    iteration: int
    rank: int  # whose rows these are
    size: int  # of how many ranks
    rows: Floats  # (vectors, rows, q), the local parts of all vectors
    before: Floats  # those of the rank before
    shared: Floats  # all shared parts, one after the other
    numbers: dict[str, Any]
    trace: Trace


def take(comm: Comm, fit: Fit, old: Copy | None = None) -> Copy:
    """Return a copy of the fit as it is between two iterations; all ranks have theirs, or raise. Called by all.

    old : one whose memory may be used again, which is faster than new
    """
    n, q = fit.objective.evaluator.rows.n, fit.objective.q
    blocks = fit.optimizer.vectors().values()
    parts = [by_row(block, share(n, comm.rank, comm.size).rows, q) for block in blocks]
    if old is not None and (old.rank, old.size) != (comm.rank, comm.size):
        old = None
    rows = np.concatenate(parts, out=None if old is None else old.rows)
    shared = np.concatenate([block.shared.ravel() for block in blocks])
    comm.Bcast(shared)  # rank 0's counts
    before_shape = len(rows), share(n, (comm.rank - 1) % comm.size, comm.size).rows, q
    before = np.empty(before_shape) if old is None else old.before
    comm.Sendrecv(rows, (comm.rank + 1) % comm.size, recvbuf=before, source=(comm.rank - 1) % comm.size)
    numbers = {name: np.array(value) for name, value in fit.numbers().items()}
    confirm(comm)
    return Copy(fit.iteration, comm.rank, comm.size, rows, before, shared, numbers, deepcopy(fit.trace))


def by_row(block: MultiVector, rows: int, q: int) -> Floats:
    """Return the local parts of a block as (vectors, rows, q), in its memory."""
    return block.local.reshape(block.local.shape[0] * block.local.shape[1], rows, q)


class Holder(NamedTuple):
    """A rank that holds rows: its number now, and whether they were its own (or those of the rank before it)."""

    rank: int
    own: bool


def holders(places: list[int], size: int) -> list[Holder] | None:
    """Return the holders of the rows of `size` ranks, by the former numbers of those left; None if some are lost."""
    now = {then: rank for rank, then in enumerate(places)}
    held = [Holder(now.get(then, now.get((then + 1) % size, -1)), then in now) for then in range(size)]
    return held if all(holder.rank >= 0 for holder in held) else None


def pieces(n: int, held: list[Holder], size: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield what brings all n rows from their holders to `size` ranks, in one order on all ranks.

    A piece is (then, source, target, first, last): rows [first, last) of rank `then`, from a rank now to another.
    """
    for then, holder in enumerate(held):
        start, stop = share(n, then, len(held))
        for target in range(size):
            wanted = share(n, target, size)
            first, last = max(start, wanted.start), min(stop, wanted.stop)
            if first < last:
                yield then, holder.rank, target, first, last


def _put(fit: Fit, rows: int, first: int, piece: Floats) -> None:
    """Put a piece (vectors, ., q), which begins at the rank's row `first` of `rows`, into the optimizer's vectors."""
    vector = 0
    for block in fit.optimizer.vectors().values():
        local = by_row(block, rows, piece.shape[2])
        local[:, first : first + piece.shape[1]] = piece[vector : vector + len(local)]
        vector += len(local)


class PartnerCopies:
    """Keeps a copy of a fit fresh, for a small share of its time; count and seconds are of all that were taken."""

    def __init__(self) -> None:
        self.copy: Copy | None = None
        self._spare: Copy | None = None  # the one before, for its memory
        self.count, self.seconds = 0, 0.0
        self._taken, self._cost = time.monotonic(), 0.0

    def refresh(self, comm: Comm, fit: Fit, at_once: bool = False) -> None:
        """Take a copy `at_once`, or if rank 0's clock says that it is worth its while. Called by all ranks."""
        if comm.size == 1:
            return  # nobody is left to outlive it
        now = time.monotonic()
        cost = self._cost or sum(part.nbytes for block in fit.optimizer.vectors().values() for part in block) / SLOW
        due = np.array([at_once or SHARE * (now - self._taken) >= cost])
        comm.Bcast(due)
        if not due[0]:
            return
        taken = take(comm, fit, self._spare)  # raises where not all have theirs; then the last one stays
        self._spare, self.copy = self.copy, taken
        self._taken = time.monotonic()
        self._cost = self._taken - now
        self.count, self.seconds = self.count + 1, self.seconds + self._cost

    def restore(self, comm: Comm, fit: Fit, held: list[Holder]) -> None:
        """Take a new fit to where the copies are. Called by all ranks.

        Messages are plain numbers whose lengths every rank knows; `refresh` confirms them before it replaces the copy.
        """
        assert self.copy is not None
        copy = self.copy
        n, q, vectors = fit.objective.evaluator.rows.n, fit.objective.q, len(copy.rows)
        own = share(n, comm.rank, comm.size)
        sent: list[list[Floats]] = [[np.empty(0)] for _ in range(comm.size)]
        counts = np.zeros(comm.size, int)  # of numbers from each rank
        for then, source, target, first, last in pieces(n, held, comm.size):
            if source == comm.rank:
                at = first - share(n, then, copy.size).start
                piece = (copy.rows if held[then].own else copy.before)[:, at : at + last - first]
                if target == comm.rank:
                    _put(fit, own.rows, first - own.start, piece)
                else:
                    sent[target].append(piece.ravel())
            elif target == comm.rank:
                counts[source] += vectors * (last - first) * q
        outgoing = [np.concatenate(each) for each in sent]
        received = np.empty(counts.sum())
        comm.Alltoallv([np.concatenate(outgoing), [len(each) for each in outgoing]], [received, counts])

        place = np.cumsum(counts) - counts  # in `received`, by rank that sent
        for _, source, target, first, last in pieces(n, held, comm.size):
            if target == comm.rank != source:
                size = vectors * (last - first) * q
                piece = received[place[source] : place[source] + size].reshape(vectors, last - first, q)
                _put(fit, own.rows, first - own.start, piece)
                place[source] += size
        blocks = fit.optimizer.vectors().values()
        ends = np.cumsum([block.shared.size for block in blocks])
        for block, shared in zip(blocks, np.split(copy.shared, ends[:-1]), strict=True):
            block.shared[...] = shared.reshape(block.shared.shape)
        fit.restore(copy.numbers, deepcopy(copy.trace))
        self.refresh(comm, fit, at_once=True)  # the lost ranks held the second copies

    def holders(self, comm: Comm) -> list[Holder] | None:
        """Return the holders of each rank's rows at the time of the copies; None where rows are lost. Collective."""
        mine = np.array([-1, -1, -1] if self.copy is None else [self.copy.iteration, self.copy.size, self.copy.rank])
        states = np.empty((comm.size, 3), mine.dtype)
        comm.Allgather(mine, states)
        confirm(comm)
        if (states[:, :2] != states[0, :2]).any() or states[0, 0] < 0:
            return None
        return holders(states[:, 2].tolist(), int(states[0, 1]))
