"""The learned q(u), and the predictions that it makes at inputs, certain or uncertain.

With k the kernel of scale one between the inducing points and an input x, s = β σ_f², and L, L_B and g those of the
bound (mpigp.gp.bound), the function has

    mean  wᵀk, w = s L⁻ᵀ g          variance  σ_f² (k_xx − kᵀMk), M = L⁻ᵀ (I − (L_B L_Bᵀ)⁻¹) L⁻¹ = RᵀR

with R lower triangular: one triangular product for each input. Where the input is uncertain, with ψ1 = ⟨k⟩ and
ψ2 = ⟨kkᵀ⟩,

    mean  wᵀψ1                      variance  σ_f² (⟨k_xx⟩ − tr Mψ2) + wᵀψ2w − (wᵀψ1)²

Outputs that other rows had, in data with missing entries, have an L_B and so an M of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from mpigp import native
from mpigp.chunks import chunk_count, chunk_rows
from mpigp.errors import InputError
from mpigp.gp.parameters import Standardization
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.compiled import Compiled
from mpigp.kernels.registry import DEFAULT, backend_of
from mpigp.numerics.threads import Workers
from mpigp.types import Floats

BLOCK = 2**14  # rows whose inputs are brought into the model's units together
JOINT_ROWS = 5000  # joint draws need their covariance: 200 MB


class Prediction(NamedTuple):
    """The predicted mean and variance at n inputs, in the data's units.

    mean : (n, d)
    variance : of the function, (n,) where it is the same for all outputs, else (n, d).   y_variance : with the noise
    """

    mean: Floats
    variance: Floats
    y_variance: Floats


class Extra(NamedTuple):
    """What rows may have besides inputs: Y (n, d), observed (n, groups); and other inducing points than the model's."""

    Y: Floats | None = None
    observed: Floats | None = None
    points: native.Kernel | None = None


NOTHING = Extra()


@dataclass(frozen=True)
class Posterior:
    """The parameters and factors that predictions need.

    Z : (m, q), in the order of L.   L : (m, m).   L_B : (groups, m, m).   g : (m, d)
    group : (d,), that of each output
    x, y : how inputs and outputs were standardized; None where they were not
    kernel : its name
    """

    model: str
    Z: Floats
    variance: float
    alpha: Floats
    beta: float
    L: Floats
    L_B: Floats
    g: Floats
    group: NDArray[np.intp]
    x: Standardization | None
    y: Standardization | None
    kernel: str = DEFAULT

    @property
    def q(self) -> int:
        return self.Z.shape[1]

    @property
    def d(self) -> int:
        return self.g.shape[1]

    @cached_property
    def backend(self) -> KernelBackend:
        """The backend of the kernel."""
        return backend_of(self.kernel, self.model == "gplvm")

    @cached_property
    def points(self) -> native.Kernel:
        """The inducing points, as the loops take them."""
        center = self.backend.center(self.Z)
        return self.backend.points(self.Z - center, center, self.alpha)

    @cached_property
    def prior_variance(self) -> float:
        """σ_f², by which the kernel of scale one is multiplied."""
        return self.variance * self.backend.scale(self.alpha, self.q)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def weights(self) -> Floats:
        """w (m, d)."""
        by_L = scipy.linalg.solve_triangular(self.L, self.g, lower=True, trans=1)
        return np.ascontiguousarray(self.beta * self.prior_variance * by_L)

    @cached_property
    def factors(self) -> Floats:
        """R of each group (groups, m, m), lower triangular."""
        L_inverse = scipy.linalg.solve_triangular(self.L, np.eye(len(self.L)), lower=True)
        factors = np.empty(self.L_B.shape)
        for group, L_B in enumerate(self.L_B):
            half = scipy.linalg.solve_triangular(L_B, np.eye(len(L_B)), lower=True)
            shrunk, V = scipy.linalg.eigh(half.T @ half)  # (L_B L_Bᵀ)⁻¹, whose eigenvalues are ≤ 1
            root = np.sqrt(np.maximum(1 - shrunk, 0.0))[:, None] * (V.T @ L_inverse)
            factors[group] = scipy.linalg.qr(root[:, ::-1], mode="r", check_finite=False)[0][::-1, ::-1]
        return factors

    @property
    def usable(self) -> bool:
        """Whether L and L_B have inverses, and all numbers that predictions come from are finite."""
        try:
            with np.errstate(all="ignore"):
                return bool(np.isfinite(self.weights).all() and np.isfinite(self.factors).all())
        except (np.linalg.LinAlgError, ValueError):  # a zero on a diagonal, or what is not finite
            return False

    def inputs(self, X: Floats) -> Floats:
        """Return inputs (n, q) in the model's units."""
        return _units(X, self.x)

    def outputs(self, Y: Floats) -> Floats:
        """Return outputs (n, d) in the model's units."""
        return _units(Y, self.y)

    def _prediction(self, mean: Floats, variance: Floats) -> Prediction:
        """Return the prediction in the data's units; it overwrites the arrays; the variance is (n, 1) or (n, d)."""
        np.maximum(variance, 0.0, out=variance)
        y_variance = variance + 1 / self.beta
        if self.y is not None:
            mean *= self.y.scale
            mean += self.y.mean
            square = self.y.scale**2
            square = square[:1] if variance.shape[1] == 1 and (square == square[0]).all() else square
            variance, y_variance = variance * square, y_variance * square
        if variance.shape[1] == 1:
            variance, y_variance = variance[:, 0], y_variance[:, 0]
        return Prediction(mean, variance, y_variance)

    def predict(self, X: Floats, threads: int = 1) -> Prediction:
        """Return the prediction at the inputs X (n, q), in the data's units."""
        return self._prediction(*self._moments(X, threads, self.points, self._prior))

    def components(self, X: Floats, threads: int = 1) -> dict[str, Prediction]:
        """Return what each term of a composed kernel contributes to the function at the inputs X (n, q): its mean and
        variance, in the data's units. The means add up to the prediction's, less the mean of the outputs."""
        if self.model == "gplvm":
            return replace(self, model="regression").components(X, threads)  # by the compiled loops
        backend = self.backend
        if not isinstance(backend, Compiled) or not backend.composed:
            raise InputError(f"`components`: the kernel {self.kernel} has no parts: fit one such as rbf + linear")
        names = ["*".join(labels) for labels in backend.expression.labels()]
        center, composition = backend.center(self.Z), backend.composition(self.q)
        without = replace(self, y=None if self.y is None else self.y._replace(mean=np.zeros(self.d)))
        result = {}
        for number, name in enumerate(names):
            points = backend.points(self.Z - center, center, self.alpha, np.eye(len(names))[number])

            def prior(inputs: Floats, number: int = number) -> Floats:
                return composition.diagonals(inputs, self.alpha)[number]

            result[name] = without._prediction(*self._moments(X, threads, points, prior))
        return result

    def _prior(self, inputs: Floats) -> Floats | float:
        """Return k(x, x) of inputs (n, q) in the model's units, at scale one."""
        return 1.0 if self.backend.unit else self.backend.diagonal(inputs, None, self.alpha)

    def _moments(self, X: Floats, threads: int, points: native.Kernel,
                 prior: Callable[[Floats], Floats | float]) -> tuple[Floats, Floats]:  # fmt: skip
        """Return the mean (n, d) and variance (n, 1) or (n, d) of the function at the inputs X (n, q), with the kernel
        of these points, in the model's units."""
        workers = Workers(threads, self.backend.workspace(len(self.Z), self.q, self.d))
        mean, variance = np.empty((len(X), self.d)), np.empty((len(self.factors), len(X)))
        step = BLOCK * threads
        for first in range(0, len(X), step):
            block = np.s_[first : first + step]
            inputs = self.inputs(X[block])
            for factor, explained in zip(self.factors, variance[:, block], strict=True):
                arguments = factor, self.weights, mean[block], explained
                self.run_loop(workers, self.backend.regression_moments, arguments, inputs, extra=Extra(points=points))
            np.subtract(prior(inputs), variance[:, block], out=variance[:, block])
        variance *= self.prior_variance
        return mean, variance.T if len(variance) == 1 else variance[self.group].T

    def predict_uncertain(self, X: Floats, X_variance: Floats, threads: int = 1) -> Prediction:
        """Return the prediction at inputs of mean X (n, q) and variances X_variance (n, q), in the data's units."""
        scale = np.ones(self.q) if self.x is None else self.x.scale
        return self.moments(self.inputs(X), np.array(X_variance / scale**2, np.float64, order="C"), threads)

    def moments(self, mu: Floats, S: Floats, threads: int = 1) -> Prediction:
        """Return the prediction at inputs N(mu, S), both (n, q) and in the model's units."""
        if self.backend.composed and self.model != "gplvm":
            return replace(self, model="gplvm").moments(mu, S, threads)  # by another backend of the kernel
        quadratics = self.quadratics()
        mean, second = np.empty((len(mu), self.d)), np.empty((len(mu), len(quadratics)))
        workers = Workers(threads, self.backend.workspace(len(self.Z), self.q, self.d, len(quadratics)))
        self.run_loop(workers, self.backend.gplvm_moments, (self.weights, quadratics, mean, second), mu, S)
        explained = second[:, self.d :][:, self.group]
        prior = self.backend.diagonal(mu, S, self.alpha)[:, None]
        return self._prediction(mean, self.prior_variance * (prior - explained) + second[:, : self.d] - mean**2)

    def run_loop(self, workers: Workers, loop: Callable[..., None], arguments: tuple[Any, ...], mu: Floats,
                 S: Floats | None = None, extra: Extra = NOTHING) -> None:  # fmt: skip
        """Call a loop of the backend for each thread's chunks of n rows: mu (n, q), S (n, q) and what else there is;
        `arguments` are those that follow points, rows and span."""
        points = self.points if extra.points is None else extra.points
        if n := len(mu):
            Y = np.empty((n, 0)) if extra.Y is None else extra.Y
            rows = native.Rows(mu, S, Y, chunk_rows(n), chunk_count(n), extra.observed)
            workers.share(lambda span: loop(points, rows, span, *arguments), chunk_count(n))

    def quadratics(self) -> Floats:
        """Return the coefficients (d + groups, m(m+1)/2) of ψ2's pairs, as the loops sum them, in wᵀψ2w of each output
        and in tr Mψ2 of each group."""
        Z = self.points.Z
        factor = self.backend.gram(Z, self.points.center, self.alpha) if self.backend.factored else np.ones_like(self.L)
        twice, lower = 2 * np.sqrt(factor), np.tril_indices(len(Z))
        np.fill_diagonal(twice, 1.0)
        matrices = chain((np.outer(w, w) for w in self.weights.T), (R.T @ R for R in self.factors))
        forms = np.empty((self.d + len(self.factors), len(self.L) * (len(self.L) + 1) // 2))
        for form, matrix in zip(forms, matrices, strict=True):  # one at a time: m × m numbers for each output are many
            form[:] = (matrix * twice)[lower]
        return forms

    def sample(self, X: Floats, count: int, seed: int) -> Floats:
        """Return joint draws of the function at the inputs X (n, q): (count, n, d), in the data's units."""
        if len(X) > JOINT_ROWS:
            most = f"joint draws take at most {JOINT_ROWS}"
            raise InputError(f"`samples`: there are {len(X)} rows: {most}: give fewer rows")
        mean, inputs = self.predict(X).mean, self.inputs(X)
        K, K_m = (self.backend.covariance(points, inputs, self.alpha) for points in (inputs, self.Z))
        draws = np.random.default_rng([seed, len(X)]).standard_normal((count, len(X), self.d))
        scale = np.ones(self.d) if self.y is None else self.y.scale
        for group, R in enumerate(self.factors):
            A = R @ K_m
            root = _root(self.prior_variance * (K - A.T @ A))
            for output in np.flatnonzero(self.group == group):
                draws[:, :, output] = mean[:, output] + scale[output] * draws[:, :, output] @ root.T
        return draws


def _units(values: Floats, standardization: Standardization | None) -> Floats:
    """Return rows in the model's units, row-major; those given stay as they are."""
    if standardization is None:
        return np.ascontiguousarray(values, np.float64)
    return standardization.apply(np.array(values, np.float64, order="C"))


def _root(covariance: Floats) -> Floats:
    """Return the Cholesky factor (n, n) of a covariance, which may be singular by rounding or by rows that coincide."""
    added = 1e-12 * float(covariance.diagonal().max(initial=0.0)) + 1e-300
    if not np.isfinite(covariance).all():
        raise InputError("`samples`: the covariance of these rows is not finite: check the model and the inputs")
    while np.isfinite(added):
        try:
            return scipy.linalg.cholesky(covariance + added * np.eye(len(covariance)), lower=True)
        except scipy.linalg.LinAlgError:
            added *= 10
    raise InputError("`samples`: the covariance of these rows has no root: check the model and the inputs")
