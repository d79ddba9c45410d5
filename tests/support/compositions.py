"""Composed kernels from their definitions, and the bounds that they give, slowly: none of the package's formulas.

All functions are analytic: complex steps pass through them, but not through matern12 where two points coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpigp.gp.bound import group_of_outputs
from mpigp.gp.certificate import Certificate
from mpigp.gp.parameters import Globals
from mpigp.gp.posterior import Posterior
from mpigp.gp.statistics import Model
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows, find_patterns
from tests.support.problems import GLOBALS, REGRESSION, Result

BOUNDS = ("titsias", "sphere", "rows")
STATIONARY = ("rbf", "matern12", "matern32", "matern52")

Terms = list[list[tuple[str, tuple[int, ...]]]]  # a sum of products of parts: kind, and columns

Q, ALL = 3, (0, 1, 2)  # of the inputs that the kernels of regression are for
SINGLE: dict[str, Terms] = {
    "rbf": [[("rbf", ALL)]],
    "matern12": [[("matern12", ALL)]],
    "matern32": [[("matern32", ALL)]],
    "matern52": [[("matern52", ALL)]],
    "rq": [[("rq", ALL)]],
    "periodic": [[("periodic", ALL)]],
    "linear": [[("linear", ALL)]],
    "bias": [[("bias", ())]],
}
EVERYTHING = "rbf * linear * periodic[1] * rq[0] + matern32 + linear[1] + bias + matern12[2] * matern52[0:2]"
COMPOSED: dict[str, Terms] = {
    "rbf[0:2]": [[("rbf", (0, 1))]],
    "linear + bias": [[("linear", ALL)], [("bias", ())]],
    "rbf + linear": [[("rbf", ALL)], [("linear", ALL)]],
    "matern32[0:2] * periodic[2] + bias": [[("matern32", (0, 1)), ("periodic", (2,))], [("bias", ())]],
    "linear * rbf[1] + rq[0] + matern12": [[("linear", ALL), ("rbf", (1,))], [("rq", (0,))], [("matern12", ALL)]],
    "linear[0] * linear[2,1] + rbf": [[("linear", (0,)), ("linear", (2, 1))], [("rbf", ALL)]],
    "linear * linear": [[("linear", ALL), ("linear", ALL)]],
    "rbf + rbf[0] * rbf[1:3] + matern52 * linear[2]": [
        [("rbf", ALL)],
        [("rbf", (0,)), ("rbf", (1, 2))],
        [("matern52", ALL), ("linear", (2,))],
    ],
    "rq[2,0] * rq[1] + bias + bias": [[("rq", (2, 0)), ("rq", (1,))], [("bias", ())], [("bias", ())]],
    "periodic[0] * rbf + periodic[0,1] + bias * matern12[2]": [
        [("periodic", (0,)), ("rbf", ALL)],
        [("periodic", (0, 1))],
        [("bias", ()), ("matern12", (2,))],
    ],
    "matern12 * matern32[0] * matern52[1,2] * rq[1]": [
        [("matern12", ALL), ("matern32", (0,)), ("matern52", (1, 2)), ("rq", (1,))],
    ],
    EVERYTHING: [
        [("rbf", ALL), ("linear", ALL), ("periodic", (1,)), ("rq", (0,))],
        [("matern32", ALL)],
        [("linear", (1,))],
        [("bias", ())],
        [("matern12", (2,)), ("matern52", (0, 1))],
    ],
}
REGRESSIONS = SINGLE | COMPOSED

LATENT: dict[str, tuple[int, Terms]] = {  # with the number of latent dimensions
    "rbf + linear + bias": (1, [[("rbf", (0,))], [("linear", (0,))], [("bias", ())]]),
    "linear": (2, [[("linear", (0, 1))]]),
    "bias": (2, [[("bias", ())]]),
    "rbf[1]": (2, [[("rbf", (1,))]]),
    "rbf + linear": (2, [[("rbf", (0, 1))], [("linear", (0, 1))]]),
    "rbf[1] * rbf[0] + linear[1]": (2, [[("rbf", (1,)), ("rbf", (0,))], [("linear", (1,))]]),
    "rbf[0] + rbf[1] + linear + bias": (2, [[("rbf", (0,))], [("rbf", (1,))], [("linear", (0, 1))], [("bias", ())]]),
    "bias + linear[0] + rbf + linear + bias": (
        2,
        [[("bias", ())], [("linear", (0,))], [("rbf", (0, 1))], [("linear", (0, 1))], [("bias", ())]],
    ),
}


class Part(NamedTuple):
    """A part of a term: its kind and columns, and the places of its weights, and of its periods or its shape."""

    kind: str
    columns: list[int]
    weights: slice
    others: slice


class Composition:
    """k(x, x') of inputs with q columns, and the order of its parameters theta (p,)."""

    def __init__(self, terms: Terms, q: int) -> None:
        self.q, self.named = q, []  # the kind, the name and the column of each parameter
        self.single = terms in [[[(kind, tuple(range(q)))]] for kind in STATIONARY]  # its variance is the model's
        self.terms: list[tuple[int | None, list[Part]]] = []
        self.scales: list[int] = []
        for term in terms:
            linear = [kind for kind, _ in term].count("linear")
            variance = None if linear or self.single else self._places(term[0][0], "variance", [None]).start
            parts = [self._part(kind, list(columns)) for kind, columns in term]
            self.terms.append((variance, parts))
            first = next((part.weights for part in parts if part.kind == "linear"), slice(0))
            self.scales += [*range(first.start or 0, first.stop)] if variance is None else [variance]
        self.p = len(self.named)

    def _places(self, kind: str, name: str, columns: list) -> slice:
        self.named += [(kind, name, column) for column in columns]
        return slice(len(self.named) - len(columns), len(self.named))

    def _part(self, kind: str, columns: list[int]) -> Part:
        weights = self._places(kind, "alpha", columns)
        others = {"rq": ("shape", [None]), "periodic": ("period", columns)}.get(kind, ("", []))
        return Part(kind, columns, weights, self._places(kind, *others))

    def __call__(self, a, b, theta):
        """Return k(a, b) (...,) of points a and b (..., q)."""
        total = 0.0
        for variance, parts in self.terms:
            product = 1.0 if variance is None else theta[variance]
            for part in parts:
                x, y = a[..., part.columns], b[..., part.columns]
                product = product * profile(part.kind, x, y, theta[part.weights], theta[part.others])
            total = total + product
        return total

    def matrix(self, A, B, theta):
        """Return K (len(A), len(B))."""
        return np.broadcast_to(self(A[:, None], B[None], theta), (len(A), len(B)))

    def scale(self, theta):
        """Return what the jitter is relative to: the variances of terms, and the weights of their first linear part."""
        return 1.0 if self.single else theta[self.scales].sum()

    def parameters(self, rng: np.random.Generator) -> np.ndarray:
        """Return parameters in the range that fits meet."""
        return rng.uniform(0.5, 1.5, size=self.p)

    @cached_property
    def full_rank(self) -> bool:
        """Whether K is regular where all rows differ."""
        return any(part.kind not in ("linear", "bias") for _, parts in self.terms for part in parts)


def profile(kind, x, y, weights, others):
    """Return a part's covariance (...,) of x and y (..., its columns), without a variance."""
    if kind == "bias":
        return 1.0
    if kind == "linear":
        return (weights * x * y).sum(axis=-1)
    u = x - y
    if kind == "periodic":
        return np.exp(-0.5 * (weights * np.sin(np.pi * u / others) ** 2).sum(axis=-1))
    t = (weights * u * u).sum(axis=-1)
    if kind == "rbf":
        return np.exp(-0.5 * t)
    if kind == "rq":
        return np.exp(-others[0] * np.log(1 + t / (2 * others[0])))
    order = {"matern12": 1, "matern32": 3, "matern52": 5}[kind]
    s = np.sqrt(order * t)
    return {1: 1.0, 3: 1 + s, 5: 1 + s + s * s / 3}[order] * np.exp(-s)


def log_determinant(A):
    """Return log |A| of a symmetric matrix that is positive definite but for a complex step."""
    sign, logarithm = np.linalg.slogdet(A)
    return logarithm + 1j * np.angle(sign) if np.iscomplexobj(A) else logarithm


def trace_terms(slacks, beta):
    """Return −β/2 Σ y_i of Titsias' bound, and what `sphere` and `rows` have in its place (3,), for one output."""
    x, n = beta * slacks, len(slacks)
    return -0.5 * np.array([x.sum(), n * np.log(1 + x.sum() / n), np.log(1 + x).sum()])


def gram(kernel, Z, variance, alpha, jitter):
    """Return K_mm with its jitter."""
    return variance * (kernel.matrix(Z, Z, alpha) + jitter * kernel.scale(alpha) * np.eye(len(Z)))


def log_density(Y, covariance):
    """Return log N(Y | 0, covariance), summed over the columns of Y."""
    n, d = Y.shape
    return (
        -0.5 * d * (n * np.log(2 * np.pi) + log_determinant(covariance))
        - 0.5 * (Y * np.linalg.solve(covariance, Y)).sum()
    )


def regression_bounds(kernel, X, Y, Z, variance, alpha, beta, jitter):
    """Return the three bounds by the dense formula: log N(Y | 0, Q + I/β), Q = K_nm K_mm⁻¹ K_mn, and the trace term."""
    K_mn = variance * kernel.matrix(Z, X, alpha)
    Q = K_mn.T @ np.linalg.solve(gram(kernel, Z, variance, alpha, jitter), K_mn)
    slacks = variance * kernel(X, X, alpha) - np.diagonal(Q)
    return log_density(Y, Q + np.eye(len(Y)) / beta) + Y.shape[1] * trace_terms(slacks, beta)


def quadrature(q: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points (k, q) and weights (k,) of the standard normal distribution, by Gauss and Hermite."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[places] * q, indexing="ij"), axis=-1).reshape(-1, q)
    return grid, np.prod(np.meshgrid(*[weights / weights.sum()] * q, indexing="ij"), axis=0).ravel()


def latent_bounds(kernel, mu, S, Y, Z, variance, alpha, beta, jitter, nodes):
    """Return the three bounds of the GPLVM from ψ by quadrature, output by output; missing entries of Y are NaN.

    log |I + β K⁻¹Ψ2| and the rest are taken from K and K + βΨ2 as they stand: a jitter that is not small keeps digits.
    """
    grid, probability = quadrature(kernel.q, nodes)
    x = mu[:, None] + np.sqrt(S)[:, None] * grid
    covariances = np.stack([np.broadcast_to(kernel(z, x, alpha), x.shape[:2]) for z in Z], axis=1) * variance
    psi1 = covariances @ probability  # (n, m)
    psi2 = (covariances * probability) @ covariances.transpose(0, 2, 1)  # (n, m, m)
    prior = variance * np.broadcast_to(kernel(x, x, alpha), x.shape[:2]) @ probability
    K = gram(kernel, Z, variance, alpha, jitter)
    slacks = prior - np.trace(np.linalg.solve(K, psi2), axis1=1, axis2=2)
    total = -0.5 * (S + mu * mu - 1 - np.log(S)).sum()
    for y in Y.T:
        there = np.isfinite(y)
        n, y = there.sum(), y[there]
        B, projected = K + beta * psi2[there].sum(axis=0), psi1[there].T @ y
        fit = -beta * (y @ y) + beta**2 * projected @ np.linalg.solve(B, projected)
        determinants = log_determinant(K) - log_determinant(B)
        total = total + 0.5 * (n * np.log(beta / (2 * np.pi)) + determinants + fit) + trace_terms(slacks[there], beta)
    return total


def complex_steps(function: Callable[..., np.ndarray], values: dict, name: str, entries=None, h: float = 1e-30):
    """Return the derivatives (3, entries) of three bounds by values[name], or by some of its entries, one by one."""
    x = np.asarray(values[name], float)
    places = list(np.ndindex(x.shape)) if entries is None else entries
    found = np.empty((3, len(places)))
    for number, place in enumerate(places):
        moved = x.astype(complex)
        moved[place] += 1j * h
        found[:, number] = function(**{**values, name: moved if x.shape else moved[()]}).imag / h
    return found.reshape(3, *x.shape) if entries is None else found


class Evaluated(NamedTuple):
    """What one evaluation of the engine gives; on rank 0 also the posterior, and in regression the certificate."""

    result: Result
    posterior: Posterior | None
    certificate: Certificate | None


def evaluate(
    model: Model,
    mu: np.ndarray,
    S: np.ndarray | None,
    Y: np.ndarray,
    parameters: Globals,
    jitter: float,
    comm: MPI.Comm = MPI.COMM_SELF,
    n: int | None = None,
    threads: int = 1,
) -> Evaluated:
    """Evaluate at the rows of this rank, of n over all ranks; NaN in Y are missing. S is left out in regression."""
    S = None if model.name == REGRESSION.name else np.array(S, order="C")
    patterns = find_patterns(comm, Y)
    rows = Rows(comm, len(Y) if n is None else n, np.array(mu, order="C"), S, np.nan_to_num(Y), patterns)
    evaluator = Evaluator(comm, model, rows, *parameters.Z.shape, threads)
    evaluation = evaluator(parameters, jitter)
    by = rows.gradients.get("mu"), rows.gradients.get("S")
    result = Result(evaluation.bound, evaluation.gradient, *by, evaluation.jitter)
    if evaluator.last is None:
        return Evaluated(result, None, None)
    (inducing, master), groups = evaluator.last, group_of_outputs(rows.groups)
    Z = np.ascontiguousarray(parameters.Z[inducing.whitening.order])
    factors = inducing.whitening.L, master.bound.L_B, master.bound.g, groups
    posterior = Posterior(model.name, *parameters._replace(Z=Z), *factors, None, None, model.backend.name)
    return Evaluated(result, posterior, evaluator.certificate(parameters))


class Data(NamedTuple):
    """Rows and parameters: X (n, q), Y (n, d)."""

    X: np.ndarray
    Y: np.ndarray
    parameters: Globals


def make(kernel: Composition, n: int, m: int, d: int, seed: int = 0) -> Data:
    """Return rows near the origin, outputs that follow them, and inducing points that are no rows."""
    rng = np.random.default_rng([seed, n, m, d])
    X = rng.normal(size=(n, kernel.q))
    Y = np.sin(X @ rng.normal(size=(kernel.q, d))) + 0.1 * rng.normal(size=(n, d))
    return Data(X, Y, Globals(rng.normal(size=(m, kernel.q)), 1.3, kernel.parameters(rng), 4.0))


def assert_close(found, expected, tolerance: float, what: str = "") -> None:
    """Compare arrays in the largest norm of what is expected."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, what
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max(), err_msg=what)


def assert_gradients(result: Result, expected: dict[str, np.ndarray], tolerance: float) -> None:
    """Compare the gradients of the globals, each in its largest norm."""
    for name in GLOBALS:
        assert_close(getattr(result.gradient, name), expected[name], tolerance, name)


def pivots(K: np.ndarray, m: int) -> list[int]:
    """Return the pivots of a Cholesky factorization, from the Schur complement itself."""
    K, chosen = K.copy(), []
    for _ in range(m):
        p = int(np.argmax(np.diag(K)))
        chosen.append(p)
        K -= np.outer(K[:, p], K[p]) / K[p, p]
        K[p], K[:, p] = 0, 0
    return chosen
