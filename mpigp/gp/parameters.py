"""The global parameters, which rank 0 holds and broadcasts."""

import math
from typing import NamedTuple

import numpy as np

from mpigp.types import Floats


def effective_dimensions(alpha: Floats) -> float:
    """Return the effective number of dimensions of ARD weights: the exponential of the entropy of their shares."""
    shares = alpha[alpha > 0] / alpha.sum()
    return math.exp(-float(np.sum(shares * np.log(shares))))


class Globals(NamedTuple):
    """Z (m, q), the inducing inputs; variance, σ_f²; alpha (q,), the ARD weights; beta, the noise precision.

    Also the shape of the bound's gradient with respect to them.
    """

    Z: Floats
    variance: float
    alpha: Floats
    beta: float

    def pack(self) -> Floats:
        """Return all numbers as one vector."""
        return np.concatenate([self.Z.ravel(), self.alpha, [self.variance, self.beta]])

    @classmethod
    def unpack(cls, vector: Floats, m: int, q: int) -> "Globals":
        """Return the parameters of a packed vector."""
        variance, beta = vector[-2:].tolist()
        return cls(vector[: m * q].reshape(m, q), variance, vector[m * q : -2], beta)
