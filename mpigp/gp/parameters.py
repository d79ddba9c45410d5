"""The global parameters, which rank 0 holds and broadcasts, and the units that they are in."""

import math
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mpigp.types import Floats

Columns = TypeVar("Columns")


def effective_dimensions(alpha: Floats) -> float:
    """Return the effective number of dimensions of ARD weights: the exponential of the entropy of their shares."""
    shares = alpha[alpha > 0] / alpha.sum()
    return math.exp(-float(np.sum(shares * np.log(shares))))


class Globals(NamedTuple):
    """Z (m, q), the inducing inputs; variance, σ_f²; alpha (p,), the ARD weights, or all parameters of a composed
    kernel, whose variance is 1; beta, the noise precision.

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


class Standardization(NamedTuple):
    """Takes columns from the data's units to the model's: (value − mean) / scale, both (columns,)."""

    mean: Floats
    scale: Floats

    def apply(self, values: Columns) -> Columns:
        """Standardize rows (., columns), an array or a stream, in place."""
        rows: Any = values
        rows -= self.mean
        rows /= self.scale
        return values
