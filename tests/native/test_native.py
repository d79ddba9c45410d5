"""The compiled loops by themselves: the exponential, the gradient through K_mm, and the shapes that they refuse."""

from __future__ import annotations

from collections.abc import Iterator

import mpmath
import numpy as np
import pytest

from mpigp import native
from mpigp.numerics.reproducible_sum import WORDS
from tests.support import reference

LOG2E = 1.4426950408889634


def exponential(x: np.ndarray) -> np.ndarray:
    out = np.full_like(x, np.nan)
    native.exponential(x, out)
    return out


def test_the_build_is_one_of_those_compiled():
    assert native.instruction_set in ("avx512", "avx2", "baseline")


def test_powers_of_two_are_right_to_three_units_in_the_last_place():
    """The loops keep exponents in powers of two: 2^t is compared at the t that x log2(e) rounds to."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-700, 700, 2000), rng.uniform(-1, 1, 500), np.arange(-30, 31) * 0.5])
    found = exponential(x)
    with mpmath.workprec(120):
        exact = [mpmath.power(2, mpmath.mpf(float(t))) for t in LOG2E * x]
        ulps = [abs(mpmath.mpf(float(f)) - e) / np.spacing(float(e)) for f, e in zip(found, exact, strict=True)]
    # The minimax polynomial is good to 2.1e-16, which is 1.9 units just below a power of two; Horner's last steps round
    # by about one more (measured: 2.9 units, 3.8e-16 relative).
    assert max(ulps) <= 3.0


def test_it_agrees_with_numpy_over_the_whole_range():
    x = np.linspace(-700, 700, 100_001)
    # 2^t to 4.4e-16 (above), and x log2(e) is rounded, by 1.1e-16, as is log2(e): x times that.
    assert (np.abs(exponential(x) / np.exp(x) - 1) <= 4.4e-16 + 2 * 1.2e-16 * np.abs(x)).all()
    near = np.linspace(-0.5, 0.5, 10_001)
    assert (np.abs(exponential(near) / np.exp(near) - 1) <= 6e-16).all()


def test_it_is_exact_at_zero():
    assert (exponential(np.zeros(9)) == 1.0).all()


def test_far_below_it_is_nothing_beside_one():
    """Below 2^-1020 exponents are clamped: positive, normal, and too small to matter in any sum."""
    far = exponential(np.array([-708.0, -745.0, -1e4, -1e10, -1e300, -np.inf]))
    assert (far >= 2.0**-1022).all()
    assert (far <= 2.0**-1019).all()


def test_not_a_number_stays_so_in_its_lane():
    x = np.linspace(-3, 3, 41)
    x[[0, 7, 40]] = np.nan
    found = exponential(x)
    assert np.isnan(found[[0, 7, 40]]).all()
    assert np.isfinite(np.delete(found, [0, 7, 40])).all()


@pytest.mark.parametrize("length", [1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100])
def test_a_length_that_is_no_multiple_of_the_vectors_gives_the_same_bits(length):
    x = np.linspace(-20, 20, 100)
    assert exponential(x[:length].copy()).tobytes() == exponential(x)[:length].tobytes()


def test_it_writes_nothing_past_the_end():
    out = np.full(40, -1.0)
    native.exponential(np.zeros(7), out[:7])
    assert (out[:7] == 1.0).all()
    assert (out[7:] == -1.0).all()


@pytest.mark.parametrize(("m", "q"), [(1, 1), (2, 3), (9, 2)])
def test_the_gradient_through_the_gram_matrix_agrees_with_complex_steps(m, q):
    rng = np.random.default_rng(m)
    W = rng.normal(size=(m, m))
    W = W + W.T
    values = {"Z": rng.normal(size=(m, q)), "alpha": rng.uniform(0.2, 2, size=q)}
    K = reference.kernel(values["Z"], values["Z"], 1.0, values["alpha"])
    by_Z, by_alpha = native.gram_gradient(W * K, values["Z"], values["alpha"])

    def weighted(Z, alpha):
        return (W * reference.kernel(Z, Z, 1.0, alpha)).sum()

    # Sums of at most 81 numbers near one.
    np.testing.assert_allclose(by_Z, reference.complex_step(weighted, values, "Z"), rtol=0, atol=2e-14)
    np.testing.assert_allclose(by_alpha, reference.complex_step(weighted, values, "alpha"), rtol=0, atol=2e-13)


@pytest.mark.parametrize(("n", "count"), [(3, 3), (8, 1), (301, 4)])
def test_the_largest_dot_products_come_first_and_of_equal_ones_the_first(n, count):
    rng = np.random.default_rng(n)
    left, right = rng.integers(-3, 4, (7, 13)).astype(float), rng.integers(-3, 4, (n, 13)).astype(float)  # exact, ties
    expected = np.argsort(-(left @ right.T), axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(native.largest_dots(left, right, count), expected)


M, Q, D, N, GROUPS, FORMS = 5, 2, 3, 20, 4, 6
PAIRS, CHUNK, CHUNKS = M * (M + 1) // 2, 8, 3
Shapes = dict[str, "tuple[int, ...] | int"]


def chunks(d: int, groups: int, matrices: int = 1) -> Shapes:
    """Return a range of chunks, and the least workspace."""
    return {"first": 0, "last": CHUNKS, "space": (native.workspace(M, Q, d, groups, matrices),)}


def part(sums: int, per_sum: int, groups: int = 1, matrices: int = 1) -> Shapes:
    space = chunks(D, groups, matrices)["space"]
    return {"first": 0, "last": CHUNKS, "accumulators": (sums * per_sum,), "scale": (sums,), "space": space}


OF_PSI = {"weight_psi2": (PAIRS, GROUPS), "weight_psi1Y": (M, D)}
BY_ROWS = {"grad_mu": (N, Q), "grad_S": (N, Q)}
OF_K = {"inverse": (M, M), "weight": (M, M), "weight_psi1Y": (M, D), "fit": (M, D), "by_diagonal": 1}
ARGUMENTS: dict[str, Shapes] = {
    "Kernel": {"Z": (M, Q), "center": (Q,), "alpha": (Q,)},
    "Rows": {"mu": (N, Q), "S": (N, Q), "Y": (N, D), "chunk": CHUNK, "all_chunks": CHUNKS, "observed": (N, GROUPS)}
    | {"outputs": (N,), "trace_weights": (N,)},
    "regression_statistics": {"inverse": (M, M), "s": 1} | part(PAIRS + M * D, 1),
    "regression_statistics of rows with trace terms": {"inverse": (M, M), "s": 1} | part(PAIRS + M * D + 2, 1),
    "regression_gradient": OF_K | part(M * Q + Q + M * D, 2),
    "regression_gradient of rows with trace terms": OF_K | part(M * Q + Q + M * D + PAIRS, 2),
    "regression_moments": chunks(D, 1) | {"factor": (M, M), "weights": (M, D), "mean": (N, D), "explained": (N,)},
    "gplvm_statistics": {"explained": (PAIRS,), "s": 1} | part(PAIRS * GROUPS + M * D + 2, 1, GROUPS, GROUPS),
    "gplvm_statistics of rows with trace terms": {"explained": (PAIRS,), "s": 1}
    | part(PAIRS * GROUPS + M * D + 4, 1, GROUPS, GROUPS),
    "gplvm_gradient": OF_PSI | BY_ROWS | part(M * Q + Q, 2, GROUPS),
    "gplvm_gradient of rows with trace terms": OF_PSI
    | {"weight_psi2": (PAIRS, GROUPS + 1)}
    | BY_ROWS
    | part(M * Q + Q + PAIRS, 2, GROUPS),
    "gplvm_bounds": chunks(D, GROUPS) | OF_PSI | {"values": (N,)} | BY_ROWS,
    "gplvm_moments": chunks(D, FORMS)
    | {"weights": (M, D), "weights_psi2": (FORMS, PAIRS), "mean": (N, D), "second": (N, FORMS)},
    "covariance": {"Z": (M, Q), "X": (N, Q), "alpha": (Q,)},
    "gram_gradient": {"G": (M, M), "Z": (M, Q), "alpha": (Q,)},
    "gradient_limits": {"lowest": (Q,), "highest": (Q,), "weight": 1},
    "exponential": {"x": (N,), "out": (N,)},
    "chunk_dots": {"left": (2, N), "right": (3, N), "chunk": CHUNK},
    "largest_dots": {"left": (2, Q), "right": (M, Q), "count": M},
    "Searches": {"start": (N, Q), "units": (N, Q)},
    "from_superaccumulators": {"superaccumulators": (M, native.DIGITS)},
    "add_to_windows": {"windows": (M * WORDS,), "values": (M,)},
    "merge_windows": {"windows": (M * WORDS,), "others": (M * WORDS,)},
    "raise_windows": {"windows": (M * WORDS,), "tops": (M,)},
    "from_windows": {"windows": (M * WORDS,)},
}
ANY_LENGTH = {  # axes whose length no other argument repeats
    ("Kernel", "Z", 0),
    ("Rows", "Y", 1),
    ("Rows", "observed", 1),
    ("gplvm_statistics", "explained", 0),  # which rows without trace terms do not need
    ("covariance", "Z", 0),
    ("covariance", "X", 0),
    ("chunk_dots", "left", 0),
    ("chunk_dots", "right", 0),
    ("largest_dots", "left", 0),
    ("largest_dots", "right", 0),
    ("from_superaccumulators", "superaccumulators", 0),
}


def call(name: str, shapes: Shapes, q: int = Q) -> object:
    """Call an entry point with ones of these shapes, and the kernel and rows of q inputs that it takes."""
    arguments: list[object] = []
    for argument, shape in shapes.items():
        integer = "accumulators" in argument or argument in ("windows", "others")
        kind = np.int64 if integer else np.int8 if argument == "tops" else np.float64
        arguments.append(np.ones(shape, kind) if isinstance(shape, tuple) else shape)
    if name.startswith(("regression", "gplvm")):
        kernel = native.Kernel(np.ones((M, Q)), np.ones(Q), np.ones(Q))
        if "scale" in shapes:
            arguments[-5:] = [tuple(arguments[-5:])]
        else:
            arguments[:3] = [tuple(arguments[:3])]
        if name == "gplvm_bounds":
            arguments[-3:] = [tuple(arguments[-3:])]
        S, observed = (np.ones((N, q)), np.ones((N, GROUPS))) if name.startswith("gplvm") else (None, None)
        if name == "gplvm_moments":
            observed = None
        terms = (np.ones(N), np.ones(N)) if "trace terms" in name else ()
        arguments[:0] = kernel, native.Rows(np.ones((N, q)), S, np.ones((N, D)), CHUNK, CHUNKS, observed, *terms)
    if name == "gradient_limits":
        arguments[:0] = [native.Kernel(np.ones((M, Q)), np.ones(Q), np.ones(Q))]
    return getattr(native, name.partition(" ")[0])(*arguments)


def wrong() -> Iterator[tuple[str, str, tuple[int, ...] | int]]:
    """Yield all entry points, arguments, and values with one axis shorter or longer, or beyond their range."""
    for name, shapes in ARGUMENTS.items():
        for argument, shape in shapes.items():
            if isinstance(shape, tuple):
                for axis, change in [(axis, change) for axis in range(len(shape)) for change in (-1, 1)]:
                    if (name, argument, axis) not in ANY_LENGTH and not (argument == "space" and change > 0):
                        yield name, argument, (*shape[:axis], shape[axis] + change, *shape[axis + 1 :])
            elif argument not in ("weight", "s", "by_diagonal"):
                yield name, argument, {"first": -1, "last": CHUNKS + 1, "count": M + 1}.get(argument, 0)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_fit_are_accepted(name):
    call(name, ARGUMENTS[name])


@pytest.mark.parametrize(("name", "argument", "value"), list(wrong()))
def test_an_argument_that_does_not_fit_is_refused(name, argument, value):
    with pytest.raises(ValueError, match="expected"):
        call(name, ARGUMENTS[name] | {argument: value})


def test_a_message_says_which_shape_was_expected():
    with pytest.raises(ValueError, match=r"^fit has shape \(5, 4\), expected \(5, 3\)$"):
        call("regression_gradient", ARGUMENTS["regression_gradient"] | {"fit": (M, D + 1)})


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name.startswith(("regression", "gplvm"))])
def test_rows_of_another_number_of_inputs_are_refused(name):
    with pytest.raises(ValueError, match="mu has shape"):
        call(name, ARGUMENTS[name], q=Q + 1)


def test_the_gplvm_needs_variances_of_inputs():
    kernel = native.Kernel(np.ones((M, Q)), np.ones(Q), np.ones(Q))
    rows = native.Rows(np.ones((N, Q)), None, np.ones((N, D)), CHUNK, CHUNKS)
    sums = PAIRS + M * D + 2
    space = np.ones(native.workspace(M, Q, D))
    with pytest.raises(ValueError, match="S is None"):
        native.gplvm_statistics(kernel, rows, None, 1.0, (0, CHUNKS, np.zeros(sums, np.int64), np.ones(sums), space))


def test_trace_terms_need_a_whitening():
    kernel = native.Kernel(np.ones((M, Q)), np.ones(Q), np.ones(Q))
    rows = native.Rows(np.ones((N, Q)), None, np.ones((N, D)), CHUNK, CHUNKS, None, np.ones(N), np.ones(N))
    sums = PAIRS + M * D + 2
    part = 0, CHUNKS, np.zeros(sums, np.int64), np.ones(sums), np.ones(native.workspace(M, Q, D))
    with pytest.raises(ValueError, match="inverse is None"):
        native.regression_statistics(kernel, rows, None, 1.0, part)


@pytest.mark.parametrize("number", [-1, N])
def test_searches_that_do_not_exist_are_refused(number):
    searches, numbers = native.Searches(np.ones((N, Q)), np.ones((N, Q))), np.array([0, number])
    with pytest.raises(ValueError, match="numbers holds"):
        searches.trials(numbers)
    with pytest.raises(ValueError, match="numbers holds"):
        searches.points(numbers)
    with pytest.raises(ValueError, match="numbers holds"):
        searches.advance(numbers, np.ones(2), np.ones((2, Q)), 1e-6)
    for values, gradients in ((3, (2, Q)), (2, (3, Q)), (2, (2, Q + 1))):
        with pytest.raises(ValueError, match="expected"):
            searches.advance(np.arange(2), np.ones(values), np.ones(gradients), 1e-6)
