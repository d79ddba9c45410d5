"""The evidence lower bound from the summed statistics, and its derivatives with respect to them (tutorial §3, §4).

Three bounds differ in the trace term alone, in Titsias' (2009) −sd/2 (ψ0 − tr C) of a group. With y_i = k_ii − c_i,
where c_i is a row's share of tr C, the two others have d/2 log(1 + s y) in the place of d/2 s y: `sphere` with the
mean of y, n times, and `rows` for each row (Artemev et al. 2021; Titsias 2025). The logarithm is concave, and
log(1 + x) ≤ x, so

    F_titsias ≤ F_sphere ≤ F_rows ≤ log p(Y)

These have trace terms of their own: `with_sphere` and `with_trace_sums`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.numerics.cholesky import NotPositiveDefinite
from mpigp.types import Floats

BOUNDS = ("titsias", "sphere", "rows")

ROUNDING = 1e-6  # of the largest terms of a bound: far more than they are rounded by, far less than they are


class Group(NamedTuple):
    """Outputs that the same rows have: these columns of Y, the number of those rows, and ΣY_iY_iᵀ of both.

    psi0 : ψ0 = Σ⟨k(x_i, x_i)⟩ of these rows, at scale one; None where that is n
    """

    outputs: NDArray[np.intp]
    n: int
    YY: float
    psi0: float | None = None

    @property
    def prior(self) -> float:
        """ψ0."""
        return float(self.n if self.psi0 is None else self.psi0)


def group_of_outputs(groups: Sequence[Group]) -> NDArray[np.intp]:
    """Return the group (d,) of each output."""
    group = np.empty(sum(len(each.outputs) for each in groups), np.intp)
    for number, each in enumerate(groups):
        group[each.outputs] = number
    return group


def largest_bound(groups: Sequence[Group], beta: float) -> float:
    """Return what no bound can exceed but by rounding: Σ nd/2 log(β/2π) over the groups.

    Of all other terms of F (below), log diag L_B ≥ 0, no trace term is positive, KL ≥ 0, and s ‖c‖² ≤ YY, because
    s A_yᵀ (I + s C)⁻¹ A_y ≤ yᵀy for A_y = A y and C ⪰ A Aᵀ.
    """
    largest = slack = 0.0
    for outputs, n, YY, _ in groups:
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


def bound(C: Floats, b: Floats, groups: Sequence[Group], KL: float, variance: float, beta: float,
          trace_term: str = "titsias") -> Bound:  # fmt: skip
    """Return F and its derivatives: given q(X), groups of outputs (C and b as below, C of each) are independent.

    trace_term : of BOUNDS; in `rows`, `with_trace_sums` adds it
    """
    titsias = trace_term == "titsias"
    parts = [
        group_bound(C[k], b[:, group.outputs] if len(groups) > 1 else b, group, variance, beta, titsias)
        for k, group in enumerate(groups)
    ]
    if trace_term == "sphere":
        parts = [with_sphere(part, C[k], group, variance, beta)
                 for k, (part, group) in enumerate(zip(parts, groups, strict=True))]  # fmt: skip
    if len(parts) == 1:
        (part,) = parts
        return part._replace(value=part.value - KL, by_C=part.by_C[None], L_B=part.L_B[None])
    by_b, g = np.empty_like(b), np.empty_like(b)
    for group, part in zip(groups, parts, strict=True):
        by_b[:, group.outputs], g[:, group.outputs] = part.by_b, part.g
    values, by_C, _, by_L, by_variance, by_beta, L_B, _, _ = zip(*parts, strict=True)
    return Bound(math.fsum(values) - KL, np.stack(by_C), by_b, np.sum(by_L, axis=0), math.fsum(by_variance),
                 math.fsum(by_beta), np.stack(L_B), g, beta * variance)  # fmt: skip


def group_bound(C: Floats, b: Floats, group: Group, variance: float, beta: float, trace_term: bool = True) -> Bound:
    """Return the term of F of a group of outputs, without the KL, and its derivatives, by_C and L_B (m, m).

    C : (m, m), L⁻¹ Ψ2 L⁻ᵀ, and b : (m, d), L⁻¹ Σψ1Y, with L Lᵀ = K_mm + jitter I, all of the kernel of unit variance:
        the variance enters here alone.
    group : with its n rows, YY and ψ0
    trace_term : whether F and its derivatives by variance and beta have Titsias' trace term, as those by C and L do

    With s = β σ_f², P = I + s C = L_B L_Bᵀ, c = L_B⁻¹ b and g = P⁻¹ b:

        F = −nd/2 log 2π + nd/2 log β − d Σ log diag L_B − β/2 YY − sd/2 (ψ0 − tr C) + βs/2 ‖c‖²

        ∂F/∂P = d/2 (I − P⁻¹) − βs/2 g gᵀ          ∂F/∂C = s ∂F/∂P          ∂F/∂b = βs g
        ∂F/∂C C + ½ ∂F/∂b bᵀ = sd/2 C − ∂F/∂P, because s C = P − I and s C g = b − g
        ∂F/∂s = tr(∂F/∂P C) − ψ0 d/2 + β/2 ‖c‖²
        ∂F/∂β at fixed s = nd/2β − YY/2 + s/2 ‖c‖²

    mpigp/native/_algebra.pyx repeats this line for line.
    """
    terms = native.group_bound(C, b, group.n, group.YY, variance, beta, trace_term, group.prior)
    if terms is None:
        raise NotPositiveDefinite
    return Bound(*terms)


def shrinkage(C: Floats, group: Group, s: float) -> float:
    """Return 1 − v, v = 1/(1 + x) with x = s (ψ0 − tr C)/n: how much less `sphere` weighs the trace term of a group."""
    x = s * (group.prior - float(np.trace(C))) / group.n
    return x / (1 + x)


def with_sphere(part: Bound, C: Floats, group: Group, variance: float, beta: float) -> Bound:
    """Return a group's term of F in the bound `sphere`, from the `part` of it without trace term; C (m, m) as there.

    With t = ψ0 − tr C, x = s t/n and v = 1/(1 + x), the trace term −nd/2 log(1 + x) has, where Titsias' has v = 1,

        ∂/∂C = sd/2 v I,   so ∂/∂C C = sd/2 v C          ∂/∂s = −d/2 v t
    """
    d, t = len(group.outputs), group.prior - float(np.trace(C))
    x, less = part.s * t / group.n, shrinkage(C, group, part.s)
    part = part._replace(by_C=part.by_C - 0.5 * part.s * d * less * np.eye(len(C)),
                         by_L=part.by_L - 0.5 * part.s * d * less * C)  # fmt: skip
    return _with_term(part, -0.5 * group.n * d * math.log1p(x), -0.5 * d * t / (1 + x), variance, beta)


class TraceSums(NamedTuple):
    """The trace term of the bound `rows`, from sums over rows: −s/2 value, and its derivative by s, −slope/2.

    With d_i the outputs that row i has, x_i = s y_i and v_i = 1/(1 + x_i):

        value = Σ d_i log(1 + x_i)/s          slope = Σ d_i v_i y_i

    Neither exceeds Σ d_i y_i ≤ nd, which both are in Titsias'. mpigp/native/trace.h has the terms of a row.
    """

    value: float
    slope: float


def with_trace_sums(without: Bound, sums: TraceSums, variance: float, beta: float) -> Bound:
    """Return F of the bound `rows`, from that without trace term.

    Its derivatives by C and L are still Titsias', with s/2 d_i ∂c_i of each row and not s/2 d_i v_i ∂c_i.
    """
    return _with_term(without, -0.5 * without.s * sums.value, -0.5 * sums.slope, variance, beta)


def _with_term(part: Bound, value: float, by_s: float, variance: float, beta: float) -> Bound:
    """Return F with one more term, a function of s = β σ_f²."""
    return part._replace(value=part.value + value, by_variance=part.by_variance + beta * by_s,
                         by_beta=part.by_beta + variance * by_s)  # fmt: skip
