"""Many small problems side by side: each finds its own minimum, whatever the others do."""

from __future__ import annotations

import numpy as np

from mpigp.gp import batch_lbfgs as many

RNG = np.random.default_rng(0)
ROUNDS, TOLERANCE = 500, 1e-14


def minimize(objective, start, rounds, tolerance):
    """Follow one start for each row, in units of one."""
    return many.minimize(objective, start[None], np.ones_like(start)[None], 0, rounds, tolerance)


def rosenbrock(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Valleys whose minima are at (a, a²), a = 1 + rows / 10."""
    x, y, a = point[:, 0], point[:, 1], 1 + rows / 10
    value = (a - x) ** 2 + 100 * (y - x**2) ** 2
    by_x = -2 * (a - x) - 400 * x * (y - x**2)
    return value, np.stack([by_x, 200 * (y - x**2)], axis=1)


def test_each_row_finds_its_own_minimum():
    start = RNG.normal(size=(30, 2))
    point, value = minimize(rosenbrock, start, ROUNDS, TOLERANCE)
    a = 1 + np.arange(30) / 10
    # The valley is flat: a value of 1e-14 is a distance of 1e-7 · 1/√curvature.
    np.testing.assert_allclose(point, np.stack([a, a**2], axis=1), rtol=1e-5)
    assert (value < 1e-10).all()


def test_no_bit_of_a_row_depends_on_the_others():
    start = RNG.normal(size=(30, 2))
    together, values = minimize(rosenbrock, start, 40, TOLERANCE)
    for row in (0, 7, 29):
        alone, value = minimize(
            lambda point, _, row=row: rosenbrock(point, np.array([row])), start[[row]], 40, TOLERANCE
        )
        np.testing.assert_array_equal(alone[0], together[row])
        assert value[0] == values[row]


def test_quadratics_of_any_scale_are_solved():
    scales = 10.0 ** np.arange(-6, 7)[:, None] * np.array([1.0, 30.0, 500.0])

    def quadratic(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 0.5 * (scales[rows] * (point - 1) ** 2).sum(axis=1), scales[rows] * (point - 1)

    point, _ = minimize(quadratic, np.zeros((13, 3)), ROUNDS, 0.0)
    # The flattest, of curvature 1e-6, moves the value by 1e-16 only when it is 1e-5 off.
    np.testing.assert_allclose(point, 1.0, atol=1e-4)


def test_a_point_without_a_value_is_a_failed_step():
    def walled(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value = np.where(point[:, 0] > 0.3, (point[:, 0] - 0.5) ** 2, np.nan)
        return value, 2 * (point - 0.5)

    point, _ = minimize(walled, np.array([[2.0], [0.31]]), ROUNDS, TOLERANCE)
    np.testing.assert_allclose(point, 0.5, atol=1e-6)  # the square root of the tolerance


def test_a_row_that_starts_without_a_value_stays_where_it_is():
    point, value = minimize(lambda p, _: (np.full(len(p), np.inf), p), np.ones((2, 3)), ROUNDS, TOLERANCE)
    np.testing.assert_array_equal(point, 1.0)
    assert np.isinf(value).all()


def test_units_are_those_of_the_variables():
    """In units of 1/√curvature a quadratic is a sphere: one step to learn its size, one to its minimum."""
    scales = np.array([1e-4, 1.0, 1e4])

    def quadratic(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 0.5 * (scales * (point - 1) ** 2).sum(axis=1), scales * (point - 1)

    start = np.zeros((1, 5, 3))
    point, _ = many.minimize(quadratic, start, np.broadcast_to(scales**-0.5, start.shape).copy(), 0, 3, TOLERANCE)
    np.testing.assert_allclose(point, 1.0, rtol=1e-12)


def test_the_best_of_several_starts_is_followed_and_the_row_is_told_of_it():
    depths = np.array([1.0, 2.0])

    def two_wells(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Wells at −1 and 1: that at 1 is the deeper one in even rows."""
        x, tilt = point[:, 0], np.where(rows % 2, 0.1, -0.1) * depths[rows]
        return (x**2 - 1) ** 2 + tilt * x, (4 * x * (x**2 - 1) + tilt)[:, None]

    starts = np.array([[[-0.8], [-0.8]], [[0.9], [0.9]]])
    point, value = many.minimize(two_wells, starts, np.ones_like(starts), 4, ROUNDS, TOLERANCE)
    np.testing.assert_array_equal(np.sign(point[:, 0]), [1.0, -1.0])
    assert (value < 0).all()
    for row in range(2):
        alone = many.minimize(
            lambda x, _, row=row: two_wells(x, np.full(len(x), row)),
            starts[:, [row]],
            np.ones((2, 1, 1)),
            4,
            ROUNDS,
            TOLERANCE,
        )
        np.testing.assert_array_equal(alone[0][0], point[row])


def test_a_start_without_a_value_is_not_the_best():
    def walled(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(point[:, 0] > 0, (point[:, 0] - 0.5) ** 2, np.nan), 2 * (point - 0.5)

    point, _ = many.minimize(walled, np.array([[[-1.0]], [[2.0]]]), np.ones((2, 1, 1)), 3, ROUNDS, TOLERANCE)
    np.testing.assert_allclose(point, 0.5, atol=1e-6)


def test_a_start_without_a_value_or_a_gradient_stays_where_it_is():
    start = RNG.normal(size=(2, 3))
    point, value = minimize(lambda point, _: (np.full(len(point), np.nan), np.full_like(point, np.nan)), start, 9, 0.1)
    np.testing.assert_array_equal(point, start)
    assert np.isinf(value).all()


def test_a_point_without_a_gradient_is_the_last():
    def spoiled(point: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A parabola that is known at the start alone to have a slope."""
        slope = np.where(point == 1.0, point, np.nan)
        return 0.5 * (point**2).sum(axis=1), slope

    point, value = minimize(spoiled, np.ones((1, 2)), 9, 0.1)
    assert np.isfinite(point).all() and value[0] < 1.0
    np.testing.assert_allclose(0.5 * (point**2).sum(axis=1), value, rtol=1e-15)
