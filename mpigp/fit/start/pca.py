"""Latent means to start a GPLVM from: principal components of the outputs, or random numbers."""

from typing import NamedTuple

import numpy as np
import scipy
from threadpoolctl import threadpool_limits

from mpigp.chunks import Share, chunk_rows
from mpigp.data.datasets import blocks
from mpigp.errors import InputError
from mpigp.fit.start.standardize import power_of_two, standardization
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Comm, Floats

LATENT_STREAM = 1  # keeps these random numbers apart from others of the same seed
COVARIANCE_COLUMNS = 500  # with more columns than these, a sketch instead of the d × d covariance
POWER_ITERATIONS = 6
NO_VARIANCE = 1e-12  # of the largest: such directions are rounding
FILL_DEVIATION = 0.1


def random_latent(n: int, rows: Share, q: int, seed: int) -> Floats:
    """Return these rows of n standard normal latent means (n, q); each chunk has a generator of its own."""
    (start, stop), chunk = rows, chunk_rows(n)
    values = np.empty((rows.rows, q))
    for number in range(start // chunk, -(-stop // chunk)):
        origin = number * chunk
        first, last = max(start, origin), min(stop, origin + chunk)
        generator = np.random.default_rng([seed, LATENT_STREAM, number])
        values[first - start : last - start] = generator.standard_normal((last - origin, q))[first - origin :]
    return values


def pca(Y: DistributedRows, q: int) -> Floats:
    """Return this rank's first q principal components (rows, q), each of unit variance, the largest variance first.

    The largest entry of each direction is positive. Where the data vary in fewer than q directions, the other columns
    are small random numbers. Y (n, d) is centered here.
    """
    d = Y.columns
    if q > d:
        raise InputError(f"latent: is {q}, but the data have {d} columns and so no more principal components: "
                         f"set init to random, or latent to {d} or less")  # fmt: skip
    mean = standardization(Y, "center")[0].mean
    low, high = Y.extremes()
    centered = _Centered(Y, mean, power_of_two(np.maximum(high - mean, mean - low).max()))
    with threadpool_limits(limits=1, user_api="blas"):
        if d <= COVARIANCE_COLUMNS:
            values, directions = _leading(Y.comm, centered.covariance(), np.eye(d), q)
        else:
            values, directions = _sketched(centered, q)
        mu = centered.project(directions)
    standardization(Y.with_local(mu), "scale")[0].apply(mu)
    missing = values <= NO_VARIANCE * values[0]
    if missing.any():
        mu[:, missing] = FILL_DEVIATION * random_latent(Y.n, Y.share, q, seed=0)[:, missing]
    return mu


class _Centered(NamedTuple):
    """The rows c = (Y − mean) / unit, all below 2 in magnitude, made chunk by chunk."""

    Y: DistributedRows
    mean: Floats
    unit: Floats

    def of(self, Y: Floats) -> Floats:
        return (Y - self.mean) / self.unit

    def covariance(self) -> Floats:
        """Return Σ c cᵀ (d, d)."""
        bound = np.full((self.Y.columns, self.Y.columns), 4.0 * self.Y.n)
        return self.Y.sum(lambda Y: (c := self.of(Y)).T @ c, bound)

    def times(self, W: Floats) -> Floats:
        """Return Σ c cᵀ W (d, k) for orthonormal columns W (d, k), so that |cᵀ w| ≤ ‖c‖ ≤ 2 √d."""
        bound = np.full(W.shape, 4.0 * self.Y.n * self.Y.columns**0.5)
        return self.Y.sum(lambda Y: (c := self.of(Y)).T @ (c @ W), bound)

    def project(self, directions: Floats) -> Floats:
        """Return this rank's cᵀ directions, (rows, q)."""
        result, chunk = np.empty((len(self.Y.local), directions.shape[1])), chunk_rows(self.Y.n)
        for origin, (Y,) in blocks(self.Y.local):
            for first in range(0, len(Y), chunk):
                result[origin + first : origin + first + chunk] = self.of(Y[first : first + chunk]) @ directions
        return result


def _sketched(centered: _Centered, q: int) -> tuple[Floats, Floats]:
    """Return nearly the q largest eigenvalues (q,) of Σ c cᵀ and their eigenvectors (d, q).

    By a random range finder with power iterations (Halko, Martinsson and Tropp 2011).
    """
    comm, d = centered.Y.comm, centered.Y.columns
    W = np.random.default_rng([0, LATENT_STREAM]).standard_normal((d, min(d, 2 * q + 10)))
    for _ in range(POWER_ITERATIONS):
        W = centered.times(_orthonormal(comm, W))
    W = _orthonormal(comm, W)
    return _leading(comm, W.T @ centered.times(W), W, q)


def _orthonormal(comm: Comm, W: Floats) -> Floats:
    """Return an orthonormal basis (d, k) of the columns of W, rank 0's."""
    basis: Floats = scipy.linalg.qr(W, mode="economic")[0] if comm.rank == 0 else W
    basis = np.ascontiguousarray(basis)
    comm.Bcast(basis)
    return basis


def _leading(comm: Comm, matrix: Floats, basis: Floats, q: int) -> tuple[Floats, Floats]:
    """Return the q largest eigenvalues of a matrix (k, k) in a basis (d, k), and their directions (d, q): rank 0's."""
    packed = np.empty((1 + len(basis), q))
    if comm.rank == 0:
        k = len(matrix)
        values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2, subset_by_index=[k - q, k - 1])
        packed[0], packed[1:] = values[::-1], basis @ vectors[:, ::-1]
        size = np.abs(packed[1:])
        largest = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)  # of several that agree, the first
        packed[1:] *= np.where(packed[1 + largest, np.arange(q)] < 0, -1.0, 1.0)
    comm.Bcast(packed)
    return packed[0], np.ascontiguousarray(packed[1:])
