"""The Cholesky factor of K_mm, with the inducing points in the order that keeps digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Floats = NDArray[np.float64]


class NotPositiveDefinite(Exception):
    """A matrix could not be factorised at this jitter: more jitter may help."""


class Whitening(NamedTuple):
    """L Lᵀ = (K_mm + jitter I)[order][:, order] for the kernel of unit variance; L is (m, m), lower
    triangular, row-major.

    The order is that of complete pivoting: each point is the one with the largest variance given those before it. The
    late columns of L⁻¹, which are large (up to jitter^-½), then meet late entries of A = L⁻¹ K_mn, which are small, and
    nothing cancels. In the order in which the points happen to come, the gradients lose three digits more.
    """

    L: Floats
    order: NDArray[np.intp]

    def inverse(self) -> Floats:
        """Return L⁻¹ (m, m), row-major."""
        return np.ascontiguousarray(lapack.dtrtri(self.L, lower=1)[0])


def whiten(K: Floats, jitter: float) -> Whitening:
    """Factorise K (m, m) + jitter I with complete pivoting."""
    factor, pivots, rank, _ = lapack.dpstrf(K + jitter * np.eye(len(K)), tol=0.0, lower=0)
    if rank < len(K) or not np.isfinite(factor[-1, -1]):
        raise NotPositiveDefinite
    return Whitening(np.ascontiguousarray(np.triu(factor).T), pivots.astype(np.intp) - 1)


def cholesky(A: Floats) -> Floats:
    """Return the lower factor (m, m) of A."""
    factor, info = lapack.dpotrf(A, lower=1, clean=1)
    if info != 0:
        raise NotPositiveDefinite
    return factor


def symmetric(lower: Floats) -> Floats:
    """Return the symmetric matrix (m, m) of this lower triangle; what stands above the diagonal must be zero."""
    full = lower + lower.T
    np.fill_diagonal(full, np.diag(lower))
    return full


def inverse(L: Floats) -> Floats:
    """Return (L Lᵀ)⁻¹ (m, m), exactly symmetric; L is `cholesky`'s."""
    return symmetric(lapack.dpotri(L, lower=1)[0])


def solve(L: Floats, B: Floats, transposed: bool = False) -> Floats:
    """Return L⁻¹ B, or L⁻ᵀ B; L (m, m) is lower triangular."""
    if L.flags.f_contiguous:
        return lapack.dtrtrs(L, B, lower=1, trans=int(transposed))[0]
    return lapack.dtrtrs(L.T, B, lower=0, trans=int(not transposed))[0]
