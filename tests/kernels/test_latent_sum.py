"""Sums of kernels: ψ statistics against quadrature, gradients against complex steps, and what must hold in any case."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from mpigp import native
from mpigp.kernels.latent_sum import LatentSum
from tests.support import reference

NODES = 60  # of the quadrature, in each dimension: exact to rounding for the widths below (30 nodes: 3e-8, 45: 6e-12)
ROUNDING = 1e-13  # of sums of a hundred terms or so, relative to the largest result
POINTS, ROWS = 6, 5

SUMS: dict[str, tuple[int, list[tuple[str, tuple[int, ...]]]]] = {
    "rbf in 1": (1, [("rbf", (0,))]),
    "rbf": (2, [("rbf", (0, 1))]),
    "rbf of one column": (3, [("rbf", (2,))]),
    "linear": (3, [("linear", (0, 1, 2))]),
    "linear of two columns": (3, [("linear", (2, 0))]),
    "bias": (2, [("bias", ())]),
    "rbf + linear in 1": (1, [("rbf", (0,)), ("linear", (0,))]),
    "rbf + linear": (2, [("rbf", (0, 1)), ("linear", (0, 1))]),
    "rbf + linear + bias": (3, [("rbf", (0, 1)), ("linear", (0, 1, 2)), ("bias", ())]),
    "bias + linear + rbf, apart": (3, [("bias", ()), ("linear", (1,)), ("rbf", (2, 0))]),
    "rbf + bias": (2, [("rbf", (0, 1)), ("bias", ())]),
    "linear + bias": (2, [("linear", (0, 1)), ("bias", ())]),
    "linear + linear": (3, [("linear", (0, 1)), ("linear", (1, 2))]),
    "bias + bias": (1, [("bias", ()), ("bias", ())]),
    "rbf + rbf": (2, [("rbf", (0, 1)), ("rbf", (0, 1))]),
    "rbf + rbf, apart": (2, [("rbf", (0,)), ("rbf", (1,))]),
    "rbf + rbf, overlapping": (3, [("rbf", (0, 1)), ("rbf", (2, 1))]),
    "3 rbf": (3, [("rbf", (0, 1, 2)), ("rbf", (1,)), ("rbf", (0, 2))]),
    "all": (2, [("linear", (1,)), ("rbf", (0,)), ("bias", ()), ("rbf", (1, 0)), ("linear", (0, 1)), ("bias", ())]),
}  # fmt: skip
sums = pytest.mark.parametrize("name", SUMS)


class Case(NamedTuple):
    """A kernel and its arguments: Z (m, q), mu and S (n, q), theta (p,)."""

    kernel: LatentSum
    Z: np.ndarray
    mu: np.ndarray
    S: np.ndarray
    theta: np.ndarray

    @property
    def psi(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The arguments of ψ, which no method can change."""
        for each in self[1:]:
            each.flags.writeable = False
        return self.Z, self.mu, self.S, self.theta


def case(name: str, n: int = ROWS, m: int = POINTS, widest: float = 1.0) -> Case:
    """Return a sum of the table with random arguments; no variance is larger than the widest."""
    q, parts = SUMS[name]
    kernel, rng = LatentSum(parts, q), np.random.default_rng(0)
    Z, mu, S = rng.normal(size=(m, q)), rng.normal(size=(n, q)), widest * rng.uniform(0.05, 1.0, size=(n, q))
    return Case(kernel, Z, mu, S, rng.uniform(0.3, 1.5, size=kernel.p))


def symmetric(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    weights = rng.normal(size=(n, m, m))
    return weights + weights.transpose(0, 2, 1)


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    assert found.shape == expected.shape and found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


# The definition


def test_the_covariance_is_the_sum_of_its_parts() -> None:
    kernel = LatentSum([("rbf", (0, 2)), ("linear", (2, 1)), ("bias", ())], 3)
    z, x, theta = np.array([[0.3, -1.0, 2.0]]), np.array([[1.0, 0.5, 1.5]]), np.array([2.0, 0.7, 0.4, 3.0, 5.0, 0.1])
    rbf = 2.0 * np.exp(-0.5 * (0.7 * 0.7**2 + 0.4 * 0.5**2))
    linear = 3.0 * 2.0 * 1.5 + 5.0 * -1.0 * 0.5
    assert kernel.covariance(z, x, theta)[0, 0] == pytest.approx(rbf + linear + 0.1, rel=1e-15)


@sums
def test_the_covariance_is_one_and_the_diagonal_its_own(name: str) -> None:
    kernel, Z, _, _, theta = case(name, m=40)
    K = kernel.covariance(Z, Z, theta)
    assert_close(K, K.T, ROUNDING)
    assert np.linalg.eigvalsh(K)[0] > -ROUNDING * np.abs(K).max() * len(K)
    assert_close(kernel.diagonal(Z, None, theta), np.diagonal(K), ROUNDING)
    assert (kernel.diagonal(Z, np.zeros_like(Z), theta) == kernel.diagonal(Z, None, theta)).all()


# Against quadrature of the covariance. The tolerance leaves room for larger sums; NODES says what the quadrature has.


@sums
def test_psi_and_the_diagonal_are_expectations(name: str) -> None:
    given = case(name)
    kernel, Z, mu, S, theta = given
    q = Z.shape[1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    grid = np.stack(np.meshgrid(*[nodes] * q, indexing="ij"), axis=-1).reshape(-1, q)
    probability = np.prod(np.meshgrid(*[weights / weights.sum()] * q, indexing="ij"), axis=0).ravel()
    psi1, psi2, diagonal = kernel.psi1(*given.psi), kernel.psi2(*given.psi), kernel.diagonal(mu, S, theta)
    for row in range(ROWS):
        x = mu[row] + np.sqrt(S[row]) * grid
        K = kernel.covariance(Z, x, theta)
        assert_close(psi1[row], K @ probability, 1e-10)
        assert_close(psi2[row], (K * probability) @ K.T, 1e-10)
        assert_close(diagonal[row : row + 1], probability @ kernel.diagonal(x, None, theta)[:, None], 1e-10)


# Against complex steps, which have no error but rounding


def assert_gradients(
    method: Callable[..., np.ndarray],
    arguments: dict[str, np.ndarray],
    gradients: dict[str, np.ndarray],
    weights: np.ndarray,
) -> None:
    """Assert that the gradients, by the names of arguments, are those of the weighted sum of what the method gives."""
    for name, found in gradients.items():
        expected = reference.complex_step(lambda **values: (weights * method(**values)).sum(), arguments, name)
        assert found.shape == expected.shape and found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * max(np.abs(expected).max(), 1), err_msg=name)


ARGUMENTS = ("Z", "mu", "S", "theta")
RETURNED = ("Z", "theta", "mu", "S")
narrow = pytest.mark.parametrize("widest", [1.0, 0.0], ids=["S", "no S"])


@sums
@narrow
def test_the_gradients_of_psi1(name: str, widest: float) -> None:
    given = case(name, widest=widest)
    weights = np.random.default_rng(1).normal(size=(ROWS, POINTS))
    gradients = given.kernel.psi1_gradient(*given.psi, weights)
    arguments = dict(zip(ARGUMENTS, given.psi, strict=True))
    assert_gradients(given.kernel.psi1, arguments, dict(zip(RETURNED, gradients, strict=True)), weights)


@sums
@narrow
@pytest.mark.parametrize("shared", [False, True], ids=["each its weights", "shared weights"])
def test_the_gradients_of_psi2(name: str, widest: float, shared: bool) -> None:
    given = case(name, widest=widest)
    weights = symmetric(np.random.default_rng(1), 1 if shared else ROWS, POINTS)
    weights = np.broadcast_to(weights, (ROWS, POINTS, POINTS))
    gradients = given.kernel.psi2_gradient(*given.psi, weights)
    arguments = dict(zip(ARGUMENTS, given.psi, strict=True))
    assert_gradients(given.kernel.psi2, arguments, dict(zip(RETURNED, gradients, strict=True)), weights)


@sums
def test_the_gradients_of_the_covariance(name: str) -> None:
    kernel, Z, X, _, theta = case(name)
    weights = np.random.default_rng(1).normal(size=(POINTS, ROWS))
    by_Z, by_theta = kernel.covariance_gradient(Z, X, theta, weights)
    assert_gradients(kernel.covariance, {"Z": Z, "X": X, "theta": theta}, {"Z": by_Z, "theta": by_theta}, weights)


@sums
def test_the_gradients_of_the_diagonal(name: str) -> None:
    kernel, _, mu, S, theta = case(name)
    weights = np.random.default_rng(1).normal(size=ROWS)
    by_theta, by_mu, by_S = kernel.diagonal_gradient(mu, S, theta, weights)
    assert by_S is not None
    given = {"mu": mu, "S": S, "theta": theta}
    assert_gradients(kernel.diagonal, given, {"theta": by_theta, "mu": by_mu, "S": by_S}, weights)
    by_theta, by_mu, by_S = kernel.diagonal_gradient(mu, None, theta, weights)
    assert by_S is None
    given = {"mu": mu, "S": np.zeros_like(S), "theta": theta}
    assert_gradients(kernel.diagonal, given, {"theta": by_theta, "mu": by_mu}, weights)


@pytest.mark.parametrize("name", ["rbf + linear + bias", "rbf + rbf"])
def test_a_part_of_no_weight_keeps_its_gradient(name: str) -> None:
    """w = 0 is on the border of what a fit may take: nothing is divided by it."""
    given = case(name)
    theta = given.theta.copy()
    theta[0] = 0.0
    given = given._replace(theta=theta)
    weights = symmetric(np.random.default_rng(1), ROWS, POINTS)
    gradients = given.kernel.psi2_gradient(*given.psi, weights)
    arguments = dict(zip(ARGUMENTS, given.psi, strict=True))
    assert_gradients(given.kernel.psi2, arguments, dict(zip(RETURNED, gradients, strict=True)), weights)


# Properties


@sums
def test_without_variance_psi_is_the_covariance(name: str) -> None:
    kernel, Z, mu, S, theta = case(name, widest=0.0)
    K = kernel.covariance(Z, mu, theta).T
    assert_close(kernel.psi1(Z, mu, S, theta), K, ROUNDING)
    assert_close(kernel.psi2(Z, mu, S, theta), K[:, :, None] * K[:, None, :], ROUNDING)


@sums
def test_psi2_is_symmetric_and_positive_semidefinite(name: str) -> None:
    given = case(name)
    psi1, psi2 = given.kernel.psi1(*given.psi), given.kernel.psi2(*given.psi)
    assert (psi2 == psi2.transpose(0, 2, 1)).all()
    least = np.linalg.eigvalsh(psi2 - psi1[:, :, None] * psi1[:, None, :])[:, 0]  # it is a covariance
    assert (least > -ROUNDING * np.abs(psi2).max()).all()


def test_psi2_of_a_sum_is_more_than_the_sum_of_psi2() -> None:
    """For rbf + bias the rest is 2 w ψ1 of the rbf, or M + Mᵀ with M = w ψ1 in every column."""
    whole, alone = case("rbf + bias"), case("rbf")
    Z, mu, S, theta = whole.psi
    psi1, psi2 = alone.kernel.psi1(Z, mu, S, theta[:3]), alone.kernel.psi2(Z, mu, S, theta[:3])
    cross = theta[3] * (psi1[:, :, None] + psi1[:, None, :])
    assert cross.max() > 0.1
    assert_close(whole.kernel.psi2(*whole.psi), psi2 + theta[3] ** 2 + cross, ROUNDING)


def test_two_halves_of_a_part_are_the_part() -> None:
    Z, mu, S, theta = case("rbf + linear").psi
    w, alpha, slopes = theta[0], theta[1:3], theta[3:]
    parts = [("rbf", (0, 1)), ("linear", (1,)), ("rbf", (1, 0)), ("linear", (0, 1))]
    halves = np.concatenate([[0.3 * w], alpha, [0.4 * slopes[1]], [0.7 * w], alpha[::-1], slopes * [1, 0.6]])
    whole, split = case("rbf + linear").kernel, LatentSum(parts, 2)
    for method in ("psi1", "psi2"):
        assert_close(getattr(split, method)(Z, mu, S, halves), getattr(whole, method)(Z, mu, S, theta), ROUNDING)


def test_linear_alone_has_the_statistics_of_a_linear_gplvm() -> None:
    given = case("linear")
    Z, mu, S, alpha = given.psi
    moment = mu.T @ mu + np.diag(S.sum(axis=0))
    expected = (Z * alpha) @ moment @ (Z * alpha).T
    assert_close(given.kernel.psi2(*given.psi).sum(axis=0), expected, ROUNDING)


def test_rbf_alone_is_the_compiled_kernel() -> None:
    """The compiled loops leave k(Z_m, Z_m')^½ out of ψ2; their exponential is good to 1e-14 or so."""
    m, n, q = 7, 20, 3
    rng = np.random.default_rng(2)
    Z, mu, S, alpha = (
        rng.normal(size=(m, q)),
        rng.normal(size=(n, q)),
        rng.uniform(0.1, 1, (n, q)),
        np.array([0.5, 1, 2]),
    )
    kernel, theta = LatentSum([("rbf", (0, 1, 2))], q), np.array([1.7, *alpha])
    assert_close(kernel.covariance(Z, mu, theta), 1.7 * native.covariance(Z, mu, alpha), ROUNDING)
    lower, pairs = np.tril_indices(m), m * (m + 1) // 2
    points, rows = native.Kernel(Z, np.zeros(q), alpha), native.Rows(mu, S, np.zeros((n, 1)), 64, 1)
    psi1, psi2 = np.empty((n, m)), np.empty((n, pairs))
    span = (0, 1, np.empty(native.workspace(m, q, pairs, pairs)))
    native.gplvm_moments(points, rows, span, np.eye(m), np.eye(pairs), psi1, psi2)
    assert_close(kernel.psi1(Z, mu, S, theta), 1.7 * psi1, ROUNDING)
    factor = np.sqrt(native.covariance(Z, Z, alpha))[lower]
    assert_close(kernel.psi2(Z, mu, S, theta)[:, lower[0], lower[1]], 1.7**2 * psi2 * factor, ROUNDING)


@sums
@pytest.mark.parametrize("m", [1, 2, 17, 33])
@pytest.mark.parametrize("cut", [1, 3, 8])
def test_a_row_has_the_same_bits_in_any_block(name: str, m: int, cut: int) -> None:
    n = 11
    kernel, Z, mu, S, theta = case(name, n=n, m=m)
    rng = np.random.default_rng(1)
    weights1, weights2 = rng.normal(size=(n, m)), symmetric(rng, n, m)

    def results(rows: slice) -> list[np.ndarray]:
        given = Z, mu[rows], S[rows], theta
        values = [kernel.psi1(*given), kernel.psi2(*given), kernel.diagonal(mu[rows], S[rows], theta)]
        values += kernel.psi1_gradient(*given, weights1[rows])[2:]
        values += kernel.psi2_gradient(*given, weights2[rows])[2:]
        return [*values, kernel.covariance(Z, mu[rows], theta).T]

    blocks = [results(slice(first, first + cut)) for first in range(0, n, cut)]
    for whole, *parts in zip(results(slice(0, n)), *blocks, strict=True):
        assert whole.tobytes() == np.concatenate(parts).tobytes()


@sums
def test_gradients_by_shared_weights_have_the_bits_of_their_copies(name: str) -> None:
    """By mu and S; by Z and theta the sums over rows come in another order."""
    given = case(name)
    weights = np.broadcast_to(symmetric(np.random.default_rng(1), 1, POINTS), (ROWS, POINTS, POINTS))
    shared, copied = (given.kernel.psi2_gradient(*given.psi, each) for each in (weights, weights.copy()))
    for one, other in zip(shared[2:], copied[2:], strict=True):
        assert one.tobytes() == other.tobytes()
    for one, other in zip(shared[:2], copied[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING * max(np.abs(other).max(), 1))


@pytest.mark.parametrize("name", ["rbf", "rbf + rbf, overlapping", "3 rbf", "rbf + bias"])
def test_rbf_parts_do_not_see_where_the_origin_is(name: str) -> None:
    """The coordinates themselves are rounded at 1e4 · 1e-16: a shift costs these digits and no more, 1e-10 at most."""
    kernel, Z, mu, S, theta = case(name)
    weights = symmetric(np.random.default_rng(1), ROWS, POINTS)
    far = Z + 1e4, mu + 1e4, S, theta
    assert_close(kernel.psi1(*far), kernel.psi1(Z, mu, S, theta), 1e-10)
    assert_close(kernel.psi2(*far), kernel.psi2(Z, mu, S, theta), 1e-10)
    near = kernel.psi2_gradient(Z, mu, S, theta, weights)
    for moved, still in zip(kernel.psi2_gradient(*far, weights), near, strict=True):
        assert_close(moved, still, 1e-10)


# Refusals


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([("matern52", (0,))], "rbf, linear or bias"),
        ([("rbf", ())], "at least one"),
        ([("bias", (0,))], "bias has none"),
        ([("linear", (0, 0))], "differ"),
        ([("rbf", (0, 2))], "among 0 to 1"),
        ([], "at least one part"),
    ],
)
def test_a_part_that_is_none_is_refused(parts: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LatentSum(parts, 2)


def test_parameters_that_do_not_belong_to_the_parts_are_refused() -> None:
    kernel, Z, mu, _, theta = case("rbf + linear")
    with pytest.raises(ValueError, match=r"theta has shape \(4,\), and the parts .* have 5 parameters"):
        kernel.covariance(Z, mu, theta[:4])
