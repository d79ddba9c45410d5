"""The optimisers on functions whose minimum is known."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.optimize import minimize, rosen, rosen_der

from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.fit.optimizers.lbfgs import CURVATURE, DECREASE, LBFGS, search
from mpigp.mpi.vectors import MultiVector, VectorSpace

SPACE = VectorSpace(MPI.COMM_SELF, shared=3, segments=2, rows_local=40, width=2, chunk=16)
SIZE = 3 + 2 * 80


def numbers(block: MultiVector) -> np.ndarray:
    return np.concatenate([part.ravel() for part in block])


def put(values: np.ndarray, block: MultiVector) -> None:
    block.shared[...], block.local[...] = values[:3], values[3:].reshape(block.local.shape)


def objective(value: Any, gradient: Any) -> Any:
    def call(point: MultiVector, out: MultiVector) -> float:
        x = numbers(point)
        put(gradient(x), out)
        return float(value(x))

    return call


def start(values: float | np.ndarray = 0.5) -> MultiVector:
    block = SPACE.block(1)
    put(np.broadcast_to(values, SIZE), block)
    return block


SCALES = np.logspace(0, 2, SIZE)
QUADRATIC = objective(lambda x: 0.5 * (SCALES * x**2).sum(), lambda x: SCALES * x)
ROSENBROCK = objective(rosen, rosen_der)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_finds_the_minimum_of_a_quadratic(name: str) -> None:
    optimizer = OPTIMIZERS[name](QUADRATIC, SPACE, start(1.0))
    for _ in range(600):
        if optimizer.gradient_norm < 1e-6 or not optimizer.step():
            break
    assert optimizer.gradient_norm < 1e-6
    np.testing.assert_allclose(optimizer.gradient_norm, np.linalg.norm(SCALES * numbers(optimizer.point)), rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_last_evaluation_of_a_step_is_at_its_point(name: str) -> None:
    """So that what an evaluation leaves behind is of the point that the step took."""
    seen: list[np.ndarray] = []

    def recorded(point: MultiVector, out: MultiVector) -> float:
        seen.append(numbers(point))
        return ROSENBROCK(point, out)

    optimizer = OPTIMIZERS[name](recorded, SPACE, start(-1.0))
    for _ in range(60):
        if optimizer.step():
            assert (seen[-1] == numbers(optimizer.point)).all()
    assert len(seen) > 61, "every trial was taken"


@pytest.mark.parametrize("name", ["lbfgs", "scg"])
def test_it_follows_a_curved_valley(name: str) -> None:
    optimizer = OPTIMIZERS[name](ROSENBROCK, SPACE, start())
    for _ in range(1000):
        if optimizer.gradient_norm < 1e-7 or not optimizer.step():
            break
    np.testing.assert_allclose(numbers(optimizer.point), 1.0, atol=1e-6)


def evaluations_of(value: Any, derivative: Any, tolerance: float) -> tuple[int, int]:
    """Return the evaluations until the gradient's norm is below the tolerance: of our L-BFGS, and of SciPy's."""
    count, done = 0, 0

    def counted(x: np.ndarray) -> np.ndarray:
        nonlocal count, done
        count += 1
        gradient = derivative(x)
        done = done or (count if np.linalg.norm(gradient) < tolerance else 0)
        return gradient

    options = {"ftol": 0, "gtol": 0, "maxcor": 10, "maxiter": 10**5, "maxfun": 10**5}
    minimize(value, np.full(SIZE, 0.5), jac=counted, method="L-BFGS-B", options=options)
    ours = OPTIMIZERS["lbfgs"](objective(value, derivative), SPACE, start())
    while ours.gradient_norm > tolerance:
        assert ours.step()
    return ours.evaluations, done


def test_lbfgs_learns_curvatures_that_differ_by_orders_of_magnitude() -> None:
    curvatures = np.logspace(0, 6, SIZE)
    np.random.default_rng(0).shuffle(curvatures)
    neighbors = np.diag(np.full(SIZE - 1, 0.4), 1) + np.diag(np.full(SIZE - 1, 0.4), -1) + np.eye(SIZE)
    H = np.sqrt(curvatures)[:, None] * neighbors * np.sqrt(curvatures)
    ours, theirs = evaluations_of(lambda x: 0.5 * x @ H @ x, lambda x: H @ x, 1e-3)
    assert theirs == 0 or ours < 0.5 * theirs


def test_lbfgs_is_not_misled_where_curvatures_change_all_the_time() -> None:
    ours, theirs = evaluations_of(rosen, rosen_der, 1e-6)
    assert 0 < ours < 2 * theirs


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_lowers_the_value(name: str) -> None:
    optimizer = OPTIMIZERS[name](ROSENBROCK, SPACE, start(-0.7))
    values = [optimizer.value]
    for _ in range(50):
        assert optimizer.step()
        values.append(optimizer.value)
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_point_without_a_value_is_a_failed_step_and_not_a_failed_run(name: str) -> None:
    def walled(point: MultiVector, out: MultiVector) -> float:
        value = QUADRATIC(point, out)
        return value if np.abs(numbers(point)).max() < 1.2 else math.inf

    optimizer = OPTIMIZERS[name](walled, SPACE, start(1.0))
    for _ in range(20):
        assert optimizer.step()
        assert math.isfinite(optimizer.value)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_stops_where_there_is_nothing_lower(name: str) -> None:
    optimizer = OPTIMIZERS[name](QUADRATIC, SPACE, start(0.0))
    assert not optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_restored_it_goes_on_with_the_same_bits(name: str) -> None:
    whole = OPTIMIZERS[name](ROSENBROCK, SPACE, start())
    for _ in range(15):
        whole.step()
    vectors = {key: MultiVector(block.shared.copy(), block.local.copy()) for key, block in whole.vectors().items()}
    kept = {key: np.array(value) for key, value in whole.numbers().items()}
    for _ in range(25):
        whole.step()

    again = OPTIMIZERS[name](ROSENBROCK, SPACE, start(0.1))
    for key, block in again.vectors().items():
        block.set(vectors[key])
    again.restore(kept)
    for _ in range(25):
        again.step()
    np.testing.assert_array_equal(numbers(again.point), numbers(whole.point))
    assert (again.value, again.gradient_norm, again.evaluations) == (
        whole.value,
        whole.gradient_norm,
        whole.evaluations,
    )


def evaluations_to(gradient_norm: float, optimizer: LBFGS, most: int = 2000) -> int:
    """Return the evaluations of a search until the gradient is so small, no step is found, or there are too many."""
    while optimizer.gradient_norm > gradient_norm and optimizer.evaluations < most and optimizer.step():
        pass
    return optimizer.evaluations


NOISE = 1e-3


def noisy(point: MultiVector, out: MultiVector) -> float:
    """Return the quadratic with an error up to NOISE that follows the point's bits; the gradient has none."""
    bits = hashlib.sha256(numbers(point).tobytes()).digest()
    return QUADRATIC(point, out) + NOISE * (2 * int.from_bytes(bits[:6], "big") / 2**48 - 1)


def test_lbfgs_goes_by_slopes_where_rounding_hides_the_values() -> None:
    reached = []
    for rounding in (0.0, 2 * NOISE):
        optimizer = LBFGS(noisy, SPACE, start(1.0))
        optimizer.rounding = rounding
        evaluations_to(1e-6, optimizer, 300)
        reached.append(optimizer.gradient_norm)
    stalled, went_on = reached
    assert stalled > 1e-2  # where the values are about NOISE
    assert went_on < 1e-6


SKEWED = np.random.default_rng(1).permutation(np.logspace(0, 4, SIZE))
SHARED = VectorSpace(MPI.COMM_SELF, shared=SIZE, segments=0, rows_local=0, width=2, chunk=16)  # as in regression


def skewed(point: MultiVector, out: MultiVector) -> float:
    """Return a quadratic of shared variables whose curvatures differ by orders of magnitude."""
    out.shared[0] = SKEWED * point.shared[0]
    return float(0.5 * point.shared[0] @ out.shared[0])


def begun(value: float) -> LBFGS:
    block = SHARED.block(1)
    block.shared[...] = value
    return LBFGS(skewed, SHARED, block)


def test_what_a_search_has_learned_shortens_the_next() -> None:
    first, second = begun(1.0), begun(-0.7)
    alone = evaluations_to(1e-3, begun(-0.7))
    evaluations_to(1e-3, first)
    second.adopt(first.learned)
    assert second.gradient_norm == begun(-0.7).gradient_norm  # in units of the variables, whatever it goes by
    assert evaluations_to(1e-3, second) < 0.8 * alone
    np.testing.assert_allclose(second.gradient_norm, np.linalg.norm(SKEWED * second.point.shared[0]), rtol=1e-6)


def test_what_was_adopted_is_kept_where_a_search_is_restored() -> None:
    taught, whole, again = begun(1.0), begun(-0.7), begun(0.1)
    evaluations_to(1e-3, taught)
    whole.adopt(taught.learned)
    for key, block in again.vectors().items():
        block.set(whole.vectors()[key])
    again.restore(whole.numbers())
    for _ in range(10):
        assert whole.step()
        assert again.step()
    assert numbers(again.point).tobytes() == numbers(whole.point).tobytes()


@pytest.mark.parametrize("first", [1e-3, 0.1, 1.0, 30.0])
def test_the_line_search_meets_the_strong_wolfe_conditions(first: float) -> None:
    def trial(t: float) -> tuple[float, float]:
        return math.cos(3 * t) + 0.1 * (t - 2) ** 2, -3 * math.sin(3 * t) + 0.2 * (t - 2)

    value, _ = trial(0.0)
    slope = -0.4
    found = search(trial, value, slope, first)
    assert found is not None
    t, reached = found
    assert reached <= value + DECREASE * t * slope
    assert abs(trial(t)[1]) <= CURVATURE * abs(slope)
