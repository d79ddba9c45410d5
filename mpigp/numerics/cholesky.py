"""The Cholesky factor of K_mm, with the inducing points in the order that keeps digits."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.types import Floats


class NotPositiveDefinite(Exception):
    """A matrix could not be factorized at this jitter: more jitter may help."""


class Whitening(NamedTuple):
    """L Lᵀ = (K_mm + jitter I)[order][:, order] for the kernel of unit variance, L (m, m) lower triangular, row-major.

    The order is that of complete pivoting: each point is the one with the largest variance given those before it. The
    late columns of L⁻¹, which are large (up to jitter^-½), then meet late entries of A = L⁻¹ K_mn, which are small, and
    nothing cancels. In the order in which the points happen to come, the gradients lose three digits more.
    """

    L: Floats
    order: NDArray[np.intp]


def whiten(K: Floats, jitter: float) -> Whitening:
    """Factorize K (m, m) + jitter I with complete pivoting."""
    factors = native.pivoted_cholesky(K, jitter)
    if factors is None:
        raise NotPositiveDefinite
    return Whitening(*factors)
