"""Inducing inputs to start from: rows of the inputs that explain the others, cluster centers, or random rows.

Every function takes the inputs X (n, q) of all ranks and returns the same Z (m, q) on all of them.
"""

from bisect import bisect_right
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from mpigp.chunks import chunk_rows, share
from mpigp.errors import InputError
from mpigp.kernels.backend import KernelBackend
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Comm, Floats, Integers

ROWS_STREAM = 2  # keeps these random numbers apart from others of the same seed
GREEDY_ROWS = 20_000
EXPLAINED = 1e-10
"""Conditional variance, of the largest prior variance, below which a row adds nothing but rounding."""


def random_rows(X: DistributedRows, m: int, seed: int) -> Floats:
    """Return m distinct rows, drawn by their numbers from the seed alone, in the order of the data."""
    return X.take(draw(X.n, m, seed))


def greedy(X: DistributedRows, m: int, backend: KernelBackend, alpha: Floats, seed: int = 0,
           kept: Floats | None = None) -> Floats:  # fmt: skip
    """Return rows chosen one after the other, each that whose function value the ones before explain least; first of
    all come the points `kept` (k, q), if there are any.

    This is the pivoted Cholesky factorization of the kernel k with parameters alpha. With the conditional variances v,
    initially k(x, x), step j takes the pivot p = argmax v (of equals, the first row) and

        L_j = (k(·, x_p) − Σ_{i<j} L_i L_ip) / √v_p      v ← v − L_j²

    It covers the inputs evenly, their rim first: too few points for such lengthscales leave the crowd unexplained.
    Of more than 20,000 rows only so many are looked at, drawn from the seed and the same on any number of ranks: every
    rank holds these, and its share of L. When they are all explained, the rest of Z are random ones of them.
    """
    from mpi4py import MPI

    first = np.empty((0, X.columns)) if kept is None else kept
    comm, looked_at = X.comm, max(m - len(first), min(X.n, GREEDY_ROWS))
    candidates = np.concatenate([first, X.take(draw(X.n, looked_at, seed))])
    chosen: list[int] = []
    with threadpool_limits(limits=1, user_api="blas"):
        factor = _Factor(comm, backend, alpha, candidates, m)
        largest = np.zeros(1, np.dtype([("variance", "f8"), ("index", "i4")], align=True))
        while len(chosen) < m:
            largest[0] = factor.variance_of(len(chosen)) if len(chosen) < len(first) else factor.least_explained()
            comm.Allreduce(MPI.IN_PLACE, [largest, MPI.DOUBLE_INT], op=MPI.MAXLOC)
            variance, pivot = largest[0].item()
            if variance >= EXPLAINED * factor.prior:
                factor.add(pivot, variance)
            elif len(chosen) >= len(first):
                break
            chosen.append(pivot if len(chosen) >= len(first) else len(chosen))
    others = np.setdiff1d(np.arange(len(candidates)), chosen)
    filled = others[draw(len(others), m - len(chosen), seed)]
    return candidates[[*chosen, *filled]]


def kmeans(X: DistributedRows, m: int, seed: int, iterations: int = 20) -> Floats:
    """Return cluster centers by Lloyd's algorithm, started from random rows; an empty cluster keeps its center."""
    Z = random_rows(X, m, seed)
    origin = Z.mean(axis=0)
    low, high = X.extremes()
    bound = np.tile(X.n * np.append(np.maximum(-low, high), 1.0), (m, 1))
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(iterations):
            totals = X.sum(partial(_sums_and_counts, Z=Z, origin=origin), bound)
            sums, counts = totals[:, :-1], totals[:, -1:]
            moved = np.where(counts > 0, sums / np.maximum(counts, 1.0), Z)
            if (moved == Z).all():
                break
            Z = moved
    return Z


def _sums_and_counts(rows: Floats, Z: Floats, origin: Floats) -> Floats:
    """Return the sum (m, q) of the rows nearest to each center Z (m, q), and in a last column their number.

    ‖x − z‖² less what all centers share is ‖z‖² − 2 xᵀz, which keeps its digits when x and z are taken from an origin
    amid them.
    """
    centers = Z - origin
    nearest = np.argmin((centers * centers).sum(axis=1) - 2.0 * ((rows - origin) @ centers.T), axis=1)
    values = np.column_stack([rows, np.ones(len(rows))])
    columns = values.shape[1]
    place = nearest[:, None] * columns + np.arange(columns)
    totals = np.bincount(place.ravel(), values.ravel(), minlength=len(Z) * columns)
    return totals.reshape(len(Z), columns).astype(np.float64, copy=False)


class _Factor:
    """A rank's columns of the pivoted Cholesky factor L (m, candidates), chunk by chunk, and conditional variances.

    points : (candidates, q), of all ranks.   prior : the largest variance before any is chosen
    """

    def __init__(self, comm: Comm, backend: KernelBackend, alpha: Floats, points: Floats, m: int) -> None:
        self.comm, self.backend, self.alpha, self.points, self.steps = comm, backend, alpha, points, 0
        count = len(points)
        self.stops = [share(count, rank, comm.size).stop for rank in range(comm.size)]
        self.start, stop = share(count, comm.rank, comm.size)
        self.chunk = chunk_rows(count)
        firsts = range(self.start, stop, self.chunk)
        self.chunks = [points[first : min(stop, first + self.chunk)] for first in firsts]
        self.L = [np.empty((m, len(chunk))) for chunk in self.chunks]
        variances = backend.diagonal(points, None, alpha)
        self.variances, self.prior = variances[self.start : stop].copy(), float(variances.max(initial=0.0))

    def least_explained(self) -> tuple[float, int]:
        """Return the largest conditional variance of this rank, and the first candidate that has it."""
        if not len(self.variances):
            return -np.inf, len(self.points)
        local = int(np.argmax(self.variances))
        return self.variances[local], self.start + local

    def variance_of(self, candidate: int) -> tuple[float, int]:
        """Return the conditional variance of a candidate, if it is of this rank, and its number."""
        ours = self.start <= candidate < self.start + len(self.variances)
        return (self.variances[candidate - self.start] if ours else -np.inf), candidate

    def add(self, pivot: int, variance: float) -> None:
        """Make the candidate `pivot` of this conditional variance the next row of L."""
        j, owner = self.steps, bisect_right(self.stops, pivot)
        ours, local = owner == self.comm.rank, pivot - self.start
        before = np.empty(j)
        if ours:
            before[:] = self.L[local // self.chunk][:j, local % self.chunk]
        self.comm.Bcast(before, root=owner)
        x = self.points[pivot : pivot + 1]
        for number, (chunk, L) in enumerate(zip(self.chunks, self.L, strict=True)):
            L[j] = self.backend.covariance(x, chunk, self.alpha)[0]
            L[j] -= before @ L[:j]
            L[j] /= np.sqrt(variance)
            self.variances[number * self.chunk : (number + 1) * self.chunk] -= L[j] * L[j]
        if ours:
            self.variances[local] = 0.0
        self.steps += 1


def draw(n: int, m: int, seed: int, stream: int = ROWS_STREAM) -> Integers:
    """Return m of the numbers below n, in order, by the seed and the number of a stream."""
    if m > n:
        raise InputError(f"inducing: is {m}, but there are {n} rows: give at most as many inducing points as rows")
    return np.sort(np.random.default_rng([seed, stream]).choice(n, m, replace=False, shuffle=False))
