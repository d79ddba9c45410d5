"""A sum of RBF, linear and bias kernels with its ψ statistics, the cross terms of the parts among them.

k(x, x') = Σ_t k_t(x, x'). Linear parts with the same column add their weights, and so do biases: whatever the parts,
the sum is that of some RBF parts, which have w_t and weights a_t (q,), zero outside their columns, and of one affine
part,

    k(x, x') = Σ_t w_t exp(−½ Σ_q a_tq (x_q − x'_q)²) + Σ_q λ_q x_q x'_q + v

⟨·⟩ is over x ~ N(μ_i, diag S_i), and u_mq = Z_mq − μ_iq. The row i, and q where it is clear, are left out below.

    ψ1(m) = Σ_t w_t ρ_t(m) + l(m),    l(m) = v + Σ_q λ_q μ_q Z_mq
    ρ_a(m) = Π_q D^(−½) exp(−½ a u_m² / D),    D = 1 + aS

ψ2(m, m') = T + Tᵀ, with

    T(m, m') = Σ_{s<t} w_s w_t M_st(m, m') + ½ Σ_t w_t² M_tt(m, m')
               + Σ_t w_t ⟨k_t(Z_m, x) (v + Σ_q λ_q x_q Z_m'q)⟩ + ½ (l(m) l(m') + Σ_q λ_q² S_q Z_mq Z_m'q)

Two RBF parts a and b: their product is Gaussian in x, and the exponent a product of matrices, up to terms of m or m'
alone:

    M_ab(m, m') = Π_q D^(−½) exp(−½ [a u_m² + b u_m'² − S (a u_m + b u_m')² / D]),    D = 1 + (a + b) S
                = Π_q D^(−½) exp(−½ [a (1 + bS) u_m² + b (1 + aS) u_m'²] / D + c u_m u_m'),    c = abS / D

An RBF and the affine part: under k_a(Z_m, x) N(x | μ, S) the mean of x is μ + τ u_m, with τ = aS / (1 + aS). Together
with the affine part alone, that is a product of matrices too:

    Σ_k L_mk R_m'k,  R_m' = (Z_m', 1),  L_m = (λμ, v) (p + ½ l)(m) + (λ Σ_t τ_t u_m w_t ρ_t(m) + ½ λ² S Z_m, 0)

where p = Σ_t w_t ρ_t. All that depends on m and q is kept as (n, q, m), where NumPy's loops are long. A product of
matrices is one of BLAS for each row, of a shape that does not know n. u is made before any square is expanded: digits
do not depend on where the origin is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from mpigp.kernels.base import Gradients, LatentKernel
from mpigp.types import Floats


class _Part(NamedTuple):
    """A part: its kind, its columns, and where its parameters are: w at `weight`, where it has one, then α."""

    kind: str
    columns: list[int]
    weight: int
    alpha: slice


class _Terms(NamedTuple):
    """The parameters of the sum: w (r,) and a (r, q) of the RBF parts, λ (q,) and v of the affine part, if any."""

    w: Floats
    a: Floats
    slopes: Floats
    bias: float
    affine: bool

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs s ≤ t of RBF parts."""
        return list(combinations_with_replacement(range(len(self.w)), 2))


class LatentSum(LatentKernel):
    """k(x, x') = Σ_t k_t(x, x') of parts, each a kind and its columns, of inputs with q columns.

    ("rbf", c)     w exp(−½ Σ_{q∈c} α_q (x_q − x'_q)²)     parameters w, and α_q for each of its columns
    ("linear", c)  Σ_{q∈c} α_q x_q x'_q                     parameters α_q for each of its columns
    ("bias", ())   w                                        parameter w

    `theta` (p,), which the methods take in place of `alpha`, is the parameters of the parts, one part after the other.
    The variance is not one: `diagonal` has it.
    """

    def __init__(self, parts: Sequence[tuple[str, tuple[int, ...]]], q: int) -> None:
        self.parts, self.q, self.p = tuple((kind, tuple(columns)) for kind, columns in parts), q, 0
        self._parts: list[_Part] = []
        if not parts:
            raise ValueError("parts is empty: a sum has at least one part")
        for kind, columns in self.parts:
            _check(kind, columns, q)
            first = self.p + (kind != "linear")
            self._parts.append(_Part(kind, list(columns), self.p, slice(first, first + len(columns))))
            self.p = first + len(columns)

    def _terms(self, theta: Floats) -> _Terms:
        if theta.shape != (self.p,):
            raise ValueError(f"theta has shape {theta.shape}, and the parts {self.parts} have {self.p} parameters")
        rbf = [part for part in self._parts if part.kind == "rbf"]
        a, slopes = np.zeros((len(rbf), self.q), theta.dtype), np.zeros(self.q, theta.dtype)
        for number, part in enumerate(rbf):
            a[number, part.columns] = theta[part.alpha]
        for part in self._parts:
            if part.kind == "linear":
                slopes[part.columns] += theta[part.alpha]
        bias = sum(theta[part.weight] for part in self._parts if part.kind == "bias")
        return _Terms(theta[[part.weight for part in rbf]], a, slopes, bias, len(rbf) < len(self._parts))

    def _by_theta(self, w: Floats, a: Floats, slopes: Floats, bias: float) -> Floats:
        """Return the gradient by theta (p,) from those by the terms."""
        by_theta, rbf = np.empty(self.p), 0
        for part in self._parts:
            if part.kind == "linear":
                by_theta[part.alpha] = slopes[part.columns]
            elif part.kind == "bias":
                by_theta[part.weight] = bias
            else:
                by_theta[part.weight], by_theta[part.alpha] = w[rbf], a[rbf, part.columns]
                rbf += 1
        return by_theta

    def diagonal(self, mu: Floats, S: Floats | None, theta: Floats) -> Floats:
        """Return ⟨k(x, x)⟩ (n,) = Σ_t w_t + v + Σ_q λ_q (μ_q² + S_q) of rows mu and S (n, q); None stands for S = 0."""
        terms = self._terms(theta)
        squares = mu * mu if S is None else mu * mu + S
        return (terms.slopes * squares).sum(axis=1) + (terms.w.sum() + terms.bias)

    def diagonal_gradient(
        self, mu: Floats, S: Floats | None, theta: Floats, weights: Floats
    ) -> tuple[Floats, Floats, Floats | None]:
        """Return the derivatives of Σ_i w_i ⟨k(x_i, x_i)⟩, for weights (n,), by theta (p,), mu (n, q) and S (n, q)."""
        terms, total = self._terms(theta), float(weights.sum())
        by_square = weights[:, None] * terms.slopes
        slopes = weights @ (mu * mu if S is None else mu * mu + S)
        by_theta = self._by_theta(np.full(len(terms.w), total), np.zeros_like(terms.a), slopes, total)
        return by_theta, 2 * by_square * mu, None if S is None else by_square

    def covariance(self, Z: Floats, X: Floats, theta: Floats) -> Floats:
        terms = self._terms(theta)
        parts, affine = _covariances(terms, Z, X)
        for w, each in zip(terms.w, parts, strict=True):
            affine += w * each
        return affine

    def covariance_gradient(self, Z: Floats, X: Floats, theta: Floats, weights: Floats) -> tuple[Floats, Floats]:
        terms = self._terms(theta)
        parts, _ = _covariances(terms, Z, X)
        parts *= weights
        by_Z, by_a, slopes = weights @ X * terms.slopes, np.empty_like(terms.a), np.empty(self.q)
        for q in range(self.q):
            u = Z[:, q, None] - X[:, q]
            slopes[q] = np.vdot(weights, Z[:, q, None] * X[:, q])
            for number, (w, each) in enumerate(zip(terms.w, parts, strict=True)):
                moved = each * u
                by_Z[:, q] -= w * terms.a[number, q] * moved.sum(axis=1)
                by_a[number, q] = -0.5 * w * np.vdot(moved, u)
        return by_Z, self._by_theta(parts.sum(axis=(1, 2)), by_a, slopes, weights.sum())

    def psi1(self, Z: Floats, mu: Floats, S: Floats, theta: Floats) -> Floats:
        terms, rows = self._terms(theta), _rows(Z, mu, S)
        total = _means(rows, _loads(terms, rows))  # zero, where there is no affine part
        for w, a in zip(terms.w, terms.a, strict=True):
            total = total + w * _rbf_means(rows, a)
        return total

    def psi1_gradient(self, Z: Floats, mu: Floats, S: Floats, theta: Floats, weights: Floats) -> Gradients:
        terms, rows = self._terms(theta), _rows(Z, mu, S)
        by = _Gradient.zeros(terms, rows)
        for number, a in enumerate(terms.a):
            by.add_rbf_means(terms, rows, number, weights * _rbf_means(rows, a))
        if terms.affine:
            by.add_means(terms, rows, weights)
        return by.Z.T.copy(), self._by_theta(by.w, by.a, by.slopes, by.bias), by.mu, by.S

    def psi2(self, Z: Floats, mu: Floats, S: Floats, theta: Floats) -> Floats:
        terms, rows = self._terms(theta), _rows(Z, mu, S)
        shape, kind = (len(mu), len(Z), len(Z)), np.result_type(Z, mu, S, theta)
        half, other = np.zeros(shape, kind), np.empty(shape, kind)  # and no third: new memory is slow
        if terms.affine:
            np.matmul(_affine(terms, rows).left.transpose(0, 2, 1), rows.points, out=half)
        for s, t in terms.pairs():
            _rbf_products(rows, terms.a[s], terms.a[t], other)
            other *= terms.w[s] * terms.w[t] * (0.5 if s == t else 1)
            half += other
        return np.add(half, half.transpose(0, 2, 1), out=other)

    def psi2_gradient(self, Z: Floats, mu: Floats, S: Floats, theta: Floats, weights: Floats) -> Gradients:
        terms, rows = self._terms(theta), _rows(Z, mu, S)
        by = _Gradient.zeros(terms, rows)
        for s, t in terms.pairs():
            by.add_rbf_products(terms, rows, (s, t), weights)
        if terms.affine:
            by.add_affine(terms, rows, weights)
        return by.Z.T.copy(), self._by_theta(by.w, by.a, by.slopes, by.bias), by.mu, by.S


def _check(kind: str, columns: tuple[int, ...], q: int) -> None:
    """Refuse a part that is none."""
    if kind not in ("rbf", "linear", "bias"):
        raise ValueError(f"part {kind!r}: a part is rbf, linear or bias")
    if (kind == "bias") == bool(columns):
        raise ValueError(f"part {kind!r} has the columns {columns}: rbf and linear have at least one, bias has none")
    if len(set(columns)) < len(columns) or not all(0 <= column < q for column in columns):
        raise ValueError(f"part {kind!r} has the columns {columns}: they are to differ, and to be among 0 to {q - 1}")


def _covariances(terms: _Terms, Z: Floats, X: Floats) -> tuple[Floats, Floats]:
    """Return the RBF parts without w (r, m, n), and the affine part (m, n), between Z (m, q) and X (n, q).

    Column by column, so that k(x, x) is w to the bit, and a row does not see the others.
    """
    kind = np.result_type(Z, X, terms.slopes)
    exponents = np.zeros((len(terms.w), len(Z), len(X)), kind)
    affine = np.full((len(Z), len(X)), terms.bias, kind)
    for q in range(Z.shape[1]):
        affine += (terms.slopes[q] * Z[:, q, None]) * X[:, q]
        square = Z[:, q, None] - X[:, q]
        square *= square
        for a, exponent in zip(terms.a, exponents, strict=True):
            exponent -= 0.5 * a[q] * square
    return np.exp(exponents, out=exponents), affine


class _Rows(NamedTuple):
    """Rows, and what all parts share.

    mu, S  : (n, q)
    points : (q + 1, m), R: the columns of Z, then ones
    powers : (n, 2q + 1, m): u, then ones, then u²
    """

    mu: Floats
    S: Floats
    points: Floats
    powers: Floats

    @property
    def u(self) -> Floats:
        """u (n, q, m)."""
        return self.powers[:, : self.mu.shape[1]]

    @property
    def u_and_one(self) -> Floats:
        """(n, q + 1, m)"""
        return self.powers[:, : self.mu.shape[1] + 1]

    @property
    def one_and_squares(self) -> Floats:
        """(n, 1 + q, m)"""
        return self.powers[:, self.mu.shape[1] :]


def _rows(Z: Floats, mu: Floats, S: Floats) -> _Rows:
    (m, q), n = Z.shape, len(mu)
    points = np.ones((q + 1, m), Z.dtype)
    points[:q] = Z.T
    powers = np.ones((n, 2 * q + 1, m), np.result_type(Z, mu))
    u = powers[:, :q]
    np.subtract(points[:q], mu[:, :, None], out=u)
    np.multiply(u, u, out=powers[:, q + 1 :])
    return _Rows(mu, S, points, powers)


def _combined(coefficients: Floats, values: Floats) -> Floats:
    """Return Σ_k c_ik V_ikm (n, m), from c (n, k) and V (n or 1, k, m)."""
    return (coefficients[:, None, :] @ values)[:, 0]


def _sums(values: Floats, weights: Floats) -> Floats:
    """Return Σ_m V_ikm w_im (n, k), from V (n, k, m) or (k, m) and w (n, m)."""
    return (values @ weights[:, :, None])[:, :, 0]


def _over_rows(coefficients: Floats, values: Floats) -> Floats:
    """Return Σ_i c_iq V_iqm (q, m), from c (n, q) and V (n, q, m), or (1, q, m) for all rows."""
    if len(values) == 1:
        return coefficients.sum(axis=0)[:, None] * values[0]
    return (coefficients.T[:, None, :] @ values.transpose(1, 0, 2))[:, 0]


# The values of the module's formulas


def _rbf_means(rows: _Rows, a: Floats) -> Floats:
    """Return ρ_a (n, m)."""
    D = 1 + a * rows.S
    coefficients = -0.5 * np.column_stack([np.log(D).sum(axis=1), a / D])
    return np.exp(_combined(coefficients, rows.one_and_squares))


def _rbf_products(rows: _Rows, a: Floats, b: Floats, out: Floats | None = None) -> Floats:
    """Return M_ab (n, m, m), in `out` if given.

    Its exponent is (c u_m, f_m, 1) · (u_m', 1, g_m'), with f and g of m or m' alone.
    """
    (n, q), S, u = rows.mu.shape, rows.S, rows.u
    D = 1 + (a + b) * S
    kind = np.result_type(u, D)
    left, right = np.ones((n, q + 2, u.shape[2]), kind), np.empty((n, q + 2, u.shape[2]), kind)
    np.multiply(u, (a * b * S / D)[:, :, None], out=left[:, :q])
    left[:, q] = _combined(-0.5 * np.column_stack([np.log(D).sum(axis=1), a * (1 + b * S) / D]), rows.one_and_squares)
    right[:, : q + 1] = rows.u_and_one
    right[:, q + 1] = _combined(-0.5 * b * (1 + a * S) / D, rows.powers[:, q + 1 :])
    values = np.matmul(left.transpose(0, 2, 1), right, out=out)
    return np.exp(values, out=values)


def _loads(terms: _Terms, rows: _Rows) -> Floats:
    """Return (λμ, v) (n, q + 1)."""
    return np.column_stack([terms.slopes * rows.mu, np.full(len(rows.mu), terms.bias)])


def _means(rows: _Rows, loads: Floats) -> Floats:
    """Return l (n, m)."""
    return _combined(loads, rows.points)


class _Affine(NamedTuple):
    """What the affine part takes to ψ2, and what its gradient needs again.

    rbf   : (r, n, m), ρ_t
    loads : (n, q + 1), (λμ, v)
    sums  : (n, m), p + ½ l
    pulls : (n, q, m), λ Σ_t τ_t w_t ρ_t
    left  : (n, q + 1, m), L
    """

    rbf: list[Floats]
    loads: Floats
    sums: Floats
    pulls: Floats
    left: Floats


def _affine(terms: _Terms, rows: _Rows) -> _Affine:
    (n, q), m = rows.mu.shape, rows.points.shape[1]
    loads = _loads(terms, rows)
    sums = 0.5 * _means(rows, loads)
    pulls = np.zeros((n, q, m), np.result_type(rows.powers, rows.S, terms.slopes))
    rbf = [_rbf_means(rows, a) for a in terms.a]
    for w, a, each in zip(terms.w, terms.a, rbf, strict=True):
        sums = sums + w * each
        pulls += (w * terms.slopes * _tau(rows, a))[:, :, None] * each[:, None, :]
    left = np.empty((n, q + 1, m), pulls.dtype)
    np.multiply(loads[:, :, None], sums[:, None, :], out=left)
    left[:, :q] += rows.u * pulls
    left[:, :q] += (0.5 * terms.slopes**2 * rows.S)[:, :, None] * rows.points[:q]
    return _Affine(rbf, loads, sums, pulls, left)


def _tau(rows: _Rows, a: Floats) -> Floats:
    return a * rows.S / (1 + a * rows.S)


# The gradients


class _Side(NamedTuple):
    """The weighted values E (n, m, m) of a pair of RBF parts, as one of the two parts, whose points are m, needs them.

    moved  : (n, q, m), Σ_m' E_mm' u_m'
    sums   : (n, m), Σ_m' E_mm'
    first  : (n, q), Σ_mm' E_mm' u_m
    total  : (n, 1), Σ_mm' E_mm'
    second : (n, q), Σ_mm' E_mm' u_m²
    """

    moved: Floats
    sums: Floats
    first: Floats
    total: Floats
    second: Floats


def _side(rows: _Rows, E: Floats) -> _Side:
    """Return the sums over the first points of E, for the side of the second."""
    q = rows.mu.shape[1]
    products = rows.u_and_one @ E
    moments = _sums(rows.powers, products[:, q])
    return _Side(products[:, :q], products[:, q], moments[:, :q], moments[:, q, None], moments[:, q + 1 :])


def _by_side(
    rows: _Rows, weights: tuple[Floats, Floats], own: _Side, facing: _Side, cross: Floats
) -> tuple[Floats, Floats]:
    """Return the derivatives of Σ E by Z (q, m), through the points of one part alone, and by its a (q,).

    The weights are a of the part itself, and b of the other. cross : (n, q), Σ_mm' E_mm' u_m u_m'
    """
    (a, b), S = weights, rows.S
    D, B = 1 + (a + b) * S, b * S
    by_Z = _over_rows(a * B / D, own.moved) - _over_rows(a * (1 + B) / D, own.sums[:, None, :] * rows.u)
    squares = (1 + B) ** 2 * own.second - 2 * (1 + B) * B * cross + B**2 * facing.second
    return by_Z, -0.5 * (S * own.total / D + squares / D**2).sum(axis=0)


@dataclass
class _Gradient:
    """The derivatives of a weighted sum: by Z (q, m), the terms, and mu and S (n, q). The methods add to them."""

    Z: Floats
    w: Floats
    a: Floats
    slopes: Floats
    bias: float
    mu: Floats
    S: Floats

    @classmethod
    def zeros(cls, terms: _Terms, rows: _Rows) -> "_Gradient":
        terms_like = np.zeros_like(terms.w), np.zeros_like(terms.a), np.zeros_like(terms.slopes), 0.0
        return cls(np.zeros(rows.u.shape[1:]), *terms_like, np.zeros(rows.mu.shape), np.zeros(rows.mu.shape))

    # Of E_m = weight × ρ: with D = 1 + aS, and sums e of E, e1 of E u and e2 of E u² over m,
    #
    #     ∂/∂u_m = −a/D E u     ∂/∂μ = a/D e1     ∂/∂S = −½ a/D (e − a/D e2)     ∂/∂a = −½ (S/D e + e2/D²)

    def add_rbf_means(self, terms: _Terms, rows: _Rows, number: int, E: Floats) -> None:
        """Add those of Σ_im w E_im, for E (n, m) the weighted ρ of an RBF part."""
        q, w, a = rows.mu.shape[1], terms.w[number], terms.a[number]
        D = 1 + a * rows.S
        moments = _sums(rows.powers, E)
        first, total, second = moments[:, :q], moments[:, q, None], moments[:, q + 1 :]
        self.Z -= _over_rows(w * a / D, E[:, None, :] * rows.u)
        self.w[number] += total.sum()
        self.a[number] -= 0.5 * w * (rows.S * total / D + second / D**2).sum(axis=0)
        self.mu += w * a / D * first
        self.S -= 0.5 * w * a / D * (total - a / D * second)

    # Of l = Σ_k loads_k R_mk, and of loads = (λμ, v)

    def add_means(self, terms: _Terms, rows: _Rows, weights: Floats) -> None:
        """Add those of Σ_im w_im l_im, for weights (n, m)."""
        self.Z += (terms.slopes * rows.mu).T @ weights
        self._add_loads(terms, rows, _sums(rows.points, weights))

    def _add_loads(self, terms: _Terms, rows: _Rows, by_loads: Floats) -> None:
        q = rows.mu.shape[1]
        self.mu += terms.slopes * by_loads[:, :q]
        self.slopes += (rows.mu * by_loads[:, :q]).sum(axis=0)
        self.bias += by_loads[:, q].sum()

    # Of E_mm' = weight × M_ab: with h = a u_m + b u_m' and D = 1 + (a + b) S,
    #
    #     ∂/∂u_m = −a (1 + bS)/D E u_m + abS/D E u_m'     ∂/∂μ = E h/D     ∂/∂S = −½ E ((a + b)/D − h²/D²)
    #     ∂/∂a   = −½ E (S/D + (u_m − S h/D)²),     u_m − S h/D = ((1 + bS) u_m − bS u_m')/D
    #
    # and likewise by u_m' and b. Where both are one part, the two sides are equal: one is made and counts twice.

    def add_rbf_products(self, terms: _Terms, rows: _Rows, pair: tuple[int, int], weights: Floats) -> None:
        """Add those of Σ_imm' w_imm' (T + Tᵀ)_imm' of a pair of RBF parts, for symmetric weights (n, m, m)."""
        s, t = pair
        a, b, same = terms.a[s], terms.a[t], s == t
        E = _rbf_products(rows, a, b)
        E *= weights
        right = _side(rows, E)
        left = right if same else _side(rows, E.transpose(0, 2, 1))
        cross = (rows.u * right.moved).sum(axis=2)  # Σ E u_m u_m'
        D, twice = 1 + (a + b) * rows.S, 1 if same else 2
        scale = twice * terms.w[s] * terms.w[t]
        squares = a * a * left.second + b * b * right.second + 2 * a * b * cross
        self.mu += scale / D * (a * left.first + b * right.first)
        self.S -= 0.5 * scale / D * ((a + b) * right.total - squares / D)
        self.w[s] += twice * terms.w[t] * right.total.sum()
        self.w[t] += twice * terms.w[s] * right.total.sum()
        by_Z, by_a = _by_side(rows, (a, b), left, right, cross)
        self.Z += scale * by_Z
        self.a[s] += scale * by_a
        if not same:
            by_Z, by_a = _by_side(rows, (b, a), right, left, cross)
        self.Z += scale * by_Z
        self.a[t] += scale * by_a

    # Of Σ N L, with N = 2 R W, and of Σ_i 2 L W, the derivative by R: W is the weights, and so is Wᵀ. By L's formula,
    #
    #     ∂/∂(p + ½ l) = k = loads · N     ∂/∂loads = N (p + ½ l)     ∂/∂(w_t ρ_t)(m) = k_m + Σ_q λ τ_t u_m N_m
    #     ∂/∂τ_t = λ Σ_m w_t ρ_t u N     ∂/∂u = pulls N     ∂/∂λ = Σ_t τ_t Σ_m w_t ρ_t u N + λ S Σ_m Z N

    def add_affine(self, terms: _Terms, rows: _Rows, weights: Floats) -> None:
        """Add those of Σ_imm' w_imm' (T + Tᵀ)_imm' of the affine part, for symmetric weights (n, m, m)."""
        q, S, slopes = rows.mu.shape[1], rows.S, terms.slopes
        value = _affine(terms, rows)
        N, by_points = _through_points(rows, value.left, weights)
        by_sums = _combined(value.loads, N)
        self.Z += by_points[:q]
        self._add_loads(terms, rows, _sums(N, value.sums))
        self.add_means(terms, rows, 0.5 * by_sums)
        N = N[:, :q]
        moved = rows.u * N
        for number, (a, rbf) in enumerate(zip(terms.a, value.rbf, strict=True)):
            tau, D, w = _tau(rows, a), 1 + a * S, terms.w[number]
            self.add_rbf_means(terms, rows, number, rbf * (by_sums + _combined(slopes * tau, moved)))
            by_tau = w * _sums(moved, rbf)  # without λ
            self.slopes += (tau * by_tau).sum(axis=0)
            self.a[number] += (slopes * by_tau * S / D**2).sum(axis=0)
            self.S += slopes * by_tau * a / D**2
        by_u = value.pulls * N
        self.mu -= by_u.sum(axis=2)
        self.Z += by_u.sum(axis=0)
        products = (rows.points[:q] * N).sum(axis=2)  # Σ_m Z N
        self.S += 0.5 * slopes**2 * products
        self.slopes += (slopes * S * products).sum(axis=0)
        self.Z += 0.5 * _over_rows(slopes**2 * S, N)


def _through_points(rows: _Rows, left: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return N (n, q + 1, m), and Σ_i 2 L W (q + 1, m); N has one row alone where all rows have the same weights."""
    if weights.strides[0] == 0:
        return 2 * rows.points @ weights[:1], 2 * left.sum(axis=0) @ weights[0]
    return 2 * rows.points @ weights, 2 * np.tensordot(left, weights, ([0, 2], [0, 1]))
