"""A check of a kernel by its definition: formulas against each other, quadrature, and central differences."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mpigp.kernels.base import Kernel, LatentKernel
from mpigp.types import Floats

POINTS, ROWS = 5, 4
NODES = 40  # of the quadrature, in each dimension
STEP = 1e-5  # of the differences, which are then good to about 1e-9
TINY_ALPHA = 1e-10  # the least that a fit takes a weight to


class WrongKernel(ValueError):
    """A formula of a kernel contradicts the others."""


def check(kernel: Kernel, q: int = 2, seed: int = 0, tolerance: float = 1e-6) -> None:
    """Raise WrongKernel, which says which method is off and where, unless all formulas of a kernel agree.

    `covariance` must have unit variance, ψ1 and ψ2 must be its expectations by Gauss-Hermite quadrature, and
    every gradient that of the weighted sum, by central differences.

    The quadrature takes 40^q points in q dimensions. Points, rows and weights are random, drawn from the seed. The
    tolerance is that of every comparison, relative to the largest number in it.
    """
    rng = np.random.default_rng(seed)
    Z, X, alpha = rng.normal(size=(POINTS, q)), rng.normal(size=(ROWS, q)), rng.uniform(0.3, 1.5, size=q)
    values = {"Z": Z, "X": X, "alpha": alpha}
    _check_covariance(kernel, values, tolerance)
    _check_gradient(kernel.covariance, kernel.covariance_gradient, values, ("Z", "alpha"), rng, tolerance)
    if isinstance(kernel, LatentKernel):
        values = {"Z": Z, "mu": X, "S": rng.uniform(0.05, 0.5, size=(ROWS, q)), "alpha": alpha}
        _check_expectations(kernel, values, tolerance)
        for value, gradient in ((kernel.psi1, kernel.psi1_gradient), (kernel.psi2, kernel.psi2_gradient)):
            _check_gradient(value, gradient, values, ("Z", "alpha", "mu", "S"), rng, tolerance)


def _call(method: Callable[..., Any], *arguments: Floats) -> Any:
    """Call a method with arrays that it cannot change."""
    given = [argument.copy() for argument in arguments]
    for each in given:
        each.flags.writeable = False
    return method(*given)


def _compare(where: str, result: Any, expected: Floats, tolerance: float, source: str) -> None:
    """Refuse a result that has another shape, is not finite, or differs from the expected one, of this source."""
    if not isinstance(result, np.ndarray) or result.shape != expected.shape or result.dtype != np.float64:
        kind = f"{result.dtype} {result.shape}" if isinstance(result, np.ndarray) else type(result).__name__
        raise WrongKernel(f"{where}: is {kind}, not an array of float64 {expected.shape}")
    error = np.abs(result - expected)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
    if not error[worst] <= tolerance * max(float(np.abs(expected).max()), 1e-3):
        place = ", ".join(str(index) for index in worst)
        raise WrongKernel(f"{where}: entry ({place}) is {result[worst]:.10g}, and {source} {expected[worst]:.10g}")


def _check_covariance(kernel: Kernel, values: dict[str, Floats], tolerance: float) -> None:
    Z, X, alpha = values.values()
    points = np.vstack([Z, X])
    _compare("covariance", _call(kernel.covariance, Z, X, alpha), np.zeros((len(Z), len(X))), np.inf, "")
    K = _call(kernel.covariance, points, points, alpha)
    _compare("covariance: k(x, x)", np.diagonal(K).copy(), np.ones(len(K)), tolerance, "unit variance asks for")
    _compare("covariance: k(x, x')", K, K.T.copy(), tolerance, "k(x', x) is")
    _compare("covariance: k(Z, X)", _call(kernel.covariance, Z, X, alpha), K[: len(Z), len(Z) :].copy(), tolerance,
             "among more points it is")  # fmt: skip
    least = float(np.linalg.eigvalsh(0.5 * (K + K.T))[0])
    if least < -tolerance:
        raise WrongKernel(f"covariance: K has the eigenvalue {least:.3g}: k is no covariance function")
    flat = _call(kernel.covariance, Z, X, np.full_like(alpha, TINY_ALPHA))
    if not np.isfinite(flat).all():
        raise WrongKernel(f"covariance: is not finite at alpha = {TINY_ALPHA:g}, where a fit may take it")


def _check_expectations(kernel: LatentKernel, values: dict[str, Floats], tolerance: float) -> None:
    Z, mu, S, alpha = values.values()
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    grid = np.stack(np.meshgrid(*[nodes] * Z.shape[1], indexing="ij"), axis=-1).reshape(-1, Z.shape[1])
    probability = np.prod(np.meshgrid(*[weights / weights.sum()] * Z.shape[1], indexing="ij"), axis=0).ravel()
    psi1, psi2 = np.empty((len(mu), len(Z))), np.empty((len(mu), len(Z), len(Z)))
    for row in range(len(mu)):
        K = kernel.covariance(Z, mu[row] + np.sqrt(S[row]) * grid, alpha)
        psi1[row], psi2[row] = K @ probability, (K * probability) @ K.T
    for name, expected in (("psi1", psi1), ("psi2", psi2)):
        method = getattr(kernel, name)
        psi = _call(method, Z, mu, S, alpha)
        _compare(name, psi, expected, tolerance, "quadrature of `covariance` says")
        _compare(f"{name} of one row", _call(method, Z, mu[:1], S[:1], alpha), psi[:1], tolerance,
                 "among other rows it is")  # fmt: skip


def _check_gradient(value: Callable[..., Floats], gradient: Callable[..., tuple[Floats, ...]],
                    values: dict[str, Floats], by: tuple[str, ...], rng: np.random.Generator,
                    tolerance: float) -> None:  # fmt: skip
    """Compare the gradient of the weighted sum of `value` by the arrays named in `by` with central differences."""
    name = gradient.__name__
    weights = rng.normal(size=_call(value, *values.values()).shape)
    if weights.ndim == 3:
        weights = weights + weights.transpose(0, 2, 1)
    gradients = _call(gradient, *values.values(), weights)
    if not isinstance(gradients, tuple) or len(gradients) != len(by):
        raise WrongKernel(f"{name}: must return a tuple of {len(by)} arrays, the gradients by {', '.join(by)}")
    for each, argument in zip(gradients, by, strict=True):
        expected = np.empty_like(values[argument])
        for index in np.ndindex(expected.shape):
            sums = []
            for step in (STEP, -STEP):
                moved = values[argument].copy()
                moved[index] += step
                sums.append(float((weights * value(**values | {argument: moved})).sum()))
            expected[index] = (sums[0] - sums[1]) / (2 * STEP)
        _compare(f"{name}: by {argument}", each, expected, tolerance, f"differences of `{value.__name__}` say")
