"""The optimisers on functions whose minimum is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.optimize import minimize, rosen, rosen_der

from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.fit.optimizers.lbfgs import CURVATURE, DECREASE, search
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
