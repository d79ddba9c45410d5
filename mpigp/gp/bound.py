"""The evidence lower bound from the summed statistics, and its derivatives with respect to them (tutorial §3, §4)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.numerics.cholesky import NotPositiveDefinite
from mpigp.types import Floats

ROUNDING = 1e-6  # of the largest terms of a bound: far more than they are rounded by, far less than they are


class Group(NamedTuple):
    """Outputs that the same rows have: these columns of Y, the number of those rows, and ΣY_iY_iᵀ of both."""

    outputs: NDArray[np.intp]
    n: int
    YY: float


def group_of_outputs(groups: Sequence[Group]) -> NDArray[np.intp]:
    """Return the group (d,) of each output."""
    group = np.empty(sum(len(each.outputs) for each in groups), np.intp)
    for number, each in enumerate(groups):
        group[each.outputs] = number
    return group


def largest_bound(groups: Sequence[Group], beta: float) -> float:
    """Return what no bound can exceed but by rounding: Σ nd/2 log(β/2π) over the groups.

    Of all other terms of F (below), log diag L_B ≥ 0, tr C ≤ n, KL ≥ 0, and s ‖c‖² ≤ YY, because
    s A_yᵀ (I + s C)⁻¹ A_y ≤ yᵀy for A_y = A y and C ⪰ A Aᵀ.
    """
    largest = slack = 0.0
    for outputs, n, YY in groups:
        largest += 0.5 * n * len(outputs) * (math.log(beta) - math.log(2 * math.pi))
        slack += n * len(outputs) + beta * YY
    return largest + ROUNDING * (slack + abs(largest))


class Bound(NamedTuple):
    """F and its derivatives with respect to its terms; the first axis is the group of outputs.

    value : F, in nats
    by_C : ∂F/∂C (groups, m, m), symmetric.   by_b : ∂F/∂b (m, d)
    by_L : Σ ∂F/∂C C + ½ ∂F/∂b bᵀ (m, m), symmetric, the sum over all groups: how K_mm moves F through L
    by_variance, by_beta : at fixed C and b
    L_B : (groups, m, m).   g : (m, d).   s : β σ_f²
    """

    value: float
    by_C: Floats
    by_b: Floats
    by_L: Floats
    by_variance: float
    by_beta: float
    L_B: Floats
    g: Floats
    s: float


def bound(C: Floats, b: Floats, groups: Sequence[Group], KL: float, variance: float, beta: float) -> Bound:
    """Return F and its derivatives: given q(X), groups of outputs (C and b as below, C of each) are independent."""
    parts = [
        group_bound(C[k], b[:, group.outputs] if len(groups) > 1 else b, group.n, group.YY, variance, beta)
        for k, group in enumerate(groups)
    ]
    if len(parts) == 1:
        (part,) = parts
        return part._replace(value=part.value - KL, by_C=part.by_C[None], L_B=part.L_B[None])
    by_b, g = np.empty_like(b), np.empty_like(b)
    for group, part in zip(groups, parts, strict=True):
        by_b[:, group.outputs], g[:, group.outputs] = part.by_b, part.g
    values, by_C, _, by_L, by_variance, by_beta, L_B, _, _ = zip(*parts, strict=True)
    return Bound(math.fsum(values) - KL, np.stack(by_C), by_b, np.sum(by_L, axis=0), math.fsum(by_variance),
                 math.fsum(by_beta), np.stack(L_B), g, beta * variance)  # fmt: skip


def group_bound(C: Floats, b: Floats, n: int, YY: float, variance: float, beta: float) -> Bound:
    """Return the term of F of a group of outputs, without the KL, and its derivatives, by_C and L_B (m, m).

    C : (m, m), L⁻¹ Ψ2 L⁻ᵀ, and b : (m, d), L⁻¹ Σψ1Y, with L Lᵀ = K_mm + jitter I, all of the kernel of unit variance:
        the variance enters here alone.
    n : rows.   YY : ΣY_iY_iᵀ

    With s = β σ_f², P = I + s C = L_B L_Bᵀ, c = L_B⁻¹ b and g = P⁻¹ b:

        F = −nd/2 log 2π + nd/2 log β − d Σ log diag L_B − β/2 YY − sd/2 (n − tr C) + βs/2 ‖c‖²

        ∂F/∂P = d/2 (I − P⁻¹) − βs/2 g gᵀ          ∂F/∂C = s ∂F/∂P          ∂F/∂b = βs g
        ∂F/∂C C + ½ ∂F/∂b bᵀ = sd/2 C − ∂F/∂P, because s C = P − I and s C g = b − g
        ∂F/∂s = tr(∂F/∂P C) − nd/2 + β/2 ‖c‖²
        ∂F/∂β at fixed s = nd/2β − YY/2 + s/2 ‖c‖²

    mpigp/native/_algebra.pyx repeats this line for line.
    """
    terms = native.group_bound(C, b, n, YY, variance, beta)
    if terms is None:
        raise NotPositiveDefinite
    return Bound(*terms)
