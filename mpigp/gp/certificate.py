"""Is m enough? An upper bound of the evidence at the same parameters, from the same sums (Titsias 2014)."""

import math
from typing import NamedTuple

import numpy as np

from mpigp import native
from mpigp.gp.bound import Group
from mpigp.numerics.cholesky import NotPositiveDefinite
from mpigp.types import Floats


class Certificate(NamedTuple):
    """The evidence of a regression lies between these, in nats; no other inducing points gain more than their
    difference, at the same kernel and noise.

    numbers : nd, of Y
    """

    lower: float
    upper: float
    numbers: int

    @property
    def gap(self) -> float:
        """What more inducing points can gain at most, in nats per row and output."""
        return (self.upper - self.lower) / self.numbers


def upper_bound(C: Floats, b: Floats, group: Group, variance: float, beta: float) -> float:
    """Return an upper bound of the evidence of a regression, from the terms of `bound.group_bound`.

    Q = K_nm K_mm⁻¹ K_mn ⪯ K, so |K + I/β| ≥ |Q + I/β|; and K ⪯ Q + t I with t = tr(K − Q), so that the quadratic form
    is at least that of Q + (1/β + t) I. With β' = 1/(1/β + t), s' = β'σ_f² and P' = I + s'C = L'L'ᵀ:

        log p(Y) ≤ −nd/2 log 2π + nd/2 log β − d Σ log diag L_B − β'/2 (YY − s' ‖L'⁻¹ b‖²)
    """
    d = b.shape[1]
    t = variance * max(group.prior - float(np.trace(C)), 0.0)
    less = 1 / (1 / beta + t)
    log_det, _ = _solved(C, b, beta * variance)
    _, square = _solved(C, b, less * variance)
    constant = 0.5 * group.n * d * (math.log(beta) - math.log(2 * math.pi))
    return constant - d * log_det - 0.5 * less * (group.YY - less * variance * square)


def _solved(C: Floats, b: Floats, s: float) -> tuple[float, float]:
    """Return Σ log diag L_P and ‖L_P⁻¹ b‖², with L_P L_Pᵀ = I + s C."""
    try:
        L = np.linalg.cholesky(np.eye(len(C)) + s * C)
    except np.linalg.LinAlgError:
        raise NotPositiveDefinite from None
    return float(np.log(np.diagonal(L)).sum()), float(np.square(native.solve(np.ascontiguousarray(L), b)).sum())
