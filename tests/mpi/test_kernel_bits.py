"""A kernel of anybody's under MPI: the same bits on any number of ranks and threads, and the page that tells how."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.chunks import chunk_count
from mpigp.gp.bound import BOUNDS
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import Regression, model_of
from mpigp.kernels.numpy_backend import NumpyBackend
from mpigp.numerics.reproducible_sum import LEAST_EXPONENT, Windows
from tests.support import matern
from tests.support.calling import read, write
from tests.support.fits import Case, Made, differences, fit, made
from tests.support.inputs import Inputs, write_inputs
from tests.support.kernel_page import NAME, write_module
from tests.support.launching import run, several
from tests.support.problems import Problem, evaluate, evaluate_on_ranks, make
from tests.support.refusals import assert_refused

N, M, Q, D = 277, 7, 2, 3  # a prime: nothing divides it; five chunks
HALF, ITERATIONS = 6, 12
KERNEL = ["--kernel", NAME]
LEARN = ["--hold", 4, "--tolerance", 0, "--gradient-tolerance", 0, *KERNEL]
DECOMPOSITIONS = [(3, 1), (2, 2)]  # ranks, threads
OF_EVALUATIONS = [(1, 2), (2, 1), (5, 1), (3, 2)]
HALVES = 320  # rows, five chunks


def cancelling() -> Problem:
    """Return rows of a regression whose second half takes back the first, so that sums are tiny beside their terms.

    The ratio of signal to noise is so large that gradients are whitened: Σ A_i E_i is summed too.
    """
    rng = np.random.default_rng(7)
    X, Y, rest = rng.normal(size=(HALVES, Q)), 1e14 * rng.normal(size=(HALVES, D)), rng.normal(size=(HALVES, D))
    parameters = Globals(rng.normal(size=(M, Q)), 1.0, np.ones(Q), 1e12)
    return Problem(np.tile(X, (2, 1)), np.empty(0), np.concatenate([Y, rest - Y]), parameters)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the page's module, which Python finds, data, and models for new rows."""
    folder = write_module(tmp_path_factory.mktemp("inputs"))
    rng = np.random.default_rng(42)
    X, Y = rng.normal(size=(N, Q)), rng.normal(size=(N, D))
    write(folder / "certain.h5", X=X, Y=Y)
    write(folder / "uncertain.h5", X=X, X_variance=rng.uniform(0.01, 0.5, size=X.shape))
    write(folder / "holes.h5", Y=np.where(rng.random(Y.shape) < 0.3, np.nan, Y)[:90])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        commands = []
        for model in ("regression", "gplvm"):
            data = write_inputs(folder / model, model, N, M, Q, D)
            commands.append(fit(data, folder / f"{model}.h5", model, *LEARN, "--max-iter", 20, m=M, q=Q))
        for (outcome,) in several(folder / "told", 1, commands):
            assert outcome.code == 0, outcome.stderr
        yield folder


def write_cancelling(folder: Path) -> Inputs:
    X, _, Y, parameters = cancelling()
    data = write(folder / "cancelling.h5", X=X, Y=Y)
    named = {"Z": parameters.Z, "beta": parameters.beta, "kernel/variance": 1.0, "kernel/alpha": parameters.alpha}
    inputs = Inputs(data, write(folder / "cancelling-params.h5", **named))
    with h5py.File(inputs.params, "r+") as file:
        file.attrs["model"] = "regression"
    return inputs


def learn(folder: Path, model: str, iterations: int, *options: object) -> list[object]:
    """Return the arguments of a fit."""
    inputs = write_inputs(folder / model, model, N, M, Q, D)
    return fit(inputs, Path(), model, *LEARN, "--max-iter", iterations, *options, m=M, q=Q)


@pytest.fixture(scope="module")
def cases(folder: Path) -> list[Case]:
    found = []
    for model in ("regression", "gplvm"):
        inputs = write_inputs(folder / model, model, N, M, Q, D)
        found.append(Case(f"{model}-evaluate", ["evaluate", *inputs.arguments, "--kernel", NAME]))
        found.append(Case(f"{model}-fit", learn(folder, model, ITERATIONS)))
        found.append(Case(f"{model}-half", learn(folder, model, HALF)))
        for name in ("certain", "uncertain"):
            found.append(Case(f"{model}-{name}", ["predict", folder / f"{model}.h5", folder / f"{name}.h5", *KERNEL]))
    found.append(Case("cancelling-evaluate", ["evaluate", *write_cancelling(folder).arguments, "--kernel", NAME]))
    for name in ("embed", "reconstruct"):
        found.append(Case(name, [name, folder / "gplvm.h5", folder / "holes.h5", *KERNEL]))
    return found


@pytest.fixture(scope="module")
def alone(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(cases, tmp_path_factory.mktemp("alone"), 1, 1)


@pytest.mark.parametrize(("ranks", "threads"), DECOMPOSITIONS)
def test_everything_has_the_same_bits(
    ranks: int, threads: int, folder: Path, cases: list[Case], alone: Made, tmp_path: Path
) -> None:
    resumed = []
    for model in ("regression", "gplvm"):
        shutil.copy(alone.folder / f"{model}-half.h5", tmp_path / f"{model}-resumed.h5")
        resumed.append(Case(f"{model}-resumed", learn(folder, model, ITERATIONS, "--resume")))
    made([*cases, *resumed], tmp_path, ranks, threads)
    for case in cases:
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name
    for model in ("regression", "gplvm"):  # taken up from one rank's checkpoint
        assert differences(alone.folder / f"{model}-fit.h5", tmp_path / f"{model}-resumed.h5") == []


@pytest.mark.parametrize(("ranks", "threads"), OF_EVALUATIONS)
def test_evaluations_have_the_same_bits(
    ranks: int, threads: int, cases: list[Case], alone: Made, tmp_path: Path
) -> None:
    evaluations = [case for case in cases if case.name.endswith("evaluate")]
    assert len(evaluations) == 3
    made(evaluations, tmp_path, ranks, threads)
    for case in evaluations:
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name


@pytest.mark.parametrize("borders", [(0, 640), (0, 320, 640), (0, 64, 448, 640)], ids=len)
def test_terms_of_ranks_cancel(borders: tuple[int, ...]) -> None:
    """Ranks agree on the places of the terms that they added, not of their sums, which are far below."""
    model, problem = model_of("regression", matern.NAME), cancelling()
    one, (*_, tops, words) = evaluate_on_ranks(model, problem, 1e-8, (0, *borders))  # the first rank has no rows
    other, (*_, other_tops, other_words) = evaluate_on_ranks(model, problem, 1e-8, (0, 320, 320, 640), threads=2)
    assert tops.tobytes() == other_tops.tobytes() and words.tobytes() == other_words.tobytes()
    assert one.gradient.pack().tobytes() == other.gradient.pack().tobytes()
    sums = Windows().floats(np.append(tops, words[:-1]), np.ones(len(tops)))
    of_residuals = slice(M * Q + Q, None)
    units = np.ldexp(1.0, 32 * tops.astype(int) + LEAST_EXPONENT)[of_residuals]  # which some term reaches
    assert (np.abs(sums[of_residuals]) < 1e-3 * units).all() and np.count_nonzero(sums[of_residuals]) == M * D


@pytest.mark.parametrize("bound", BOUNDS)
def test_statistics_may_be_summed_in_windows_too(bound: str) -> None:
    """As those of a kernel would be that no number bounds."""
    backend, problem = NumpyBackend(matern.Matern52(), matern.NAME), make(N, M, Q, D)
    in_fixed_point = evaluate(Regression(backend, bound), *problem, 1e-8)
    backend.statistics_summation = Windows()
    one, reduced = evaluate_on_ranks(Regression(backend, bound), problem, 1e-8, (0, N, N))
    other, reduced_by_others = evaluate_on_ranks(Regression(backend, bound), problem, 1e-8, (0, 64, 192, N), threads=2)
    assert [words.tobytes() for words in reduced[-4:]] == [words.tobytes() for words in reduced_by_others[-4:]]
    assert (one.bound, one.gradient.pack().tobytes()) == (other.bound, other.gradient.pack().tobytes())
    assert one.bound == pytest.approx(in_fixed_point.bound, rel=1e-13)  # which resolves them to 2⁻⁶¹ of n
    gradient = in_fixed_point.gradient.pack()
    np.testing.assert_allclose(one.gradient.pack(), gradient, rtol=0, atol=1e-11 * np.abs(gradient).max())


def test_the_files_hold_numbers_and_there_are_chunks_for_three_ranks(cases: list[Case], alone: Made) -> None:
    """Equal files would prove nothing if they were empty, or of one rank's rows."""
    assert chunk_count(N) == 5
    for case in cases:
        found = [np.asarray(values) for values in read(alone.folder / f"{case.name}.h5").values()]
        numbers = [values for values in found if values.dtype.kind == "f"]
        assert len(numbers) >= 3
        assert all(np.isfinite(values).all() for values in numbers), case.name
        assert any(np.ptp(values) > 0 for values in numbers), case.name
    with h5py.File(alone.folder / "gplvm-fit.h5") as file:
        assert file.attrs["kernel"] == NAME


def test_a_kernel_that_is_not_found_ends_all_ranks_with_one_line(folder: Path, tmp_path: Path) -> None:
    learning = [*learn(folder, "regression", 1), "-o", tmp_path / "model.h5", "--kernel", "no_such_module:Name"]
    predict = ["predict", folder / "regression.h5", folder / "certain.h5", "-o", tmp_path / "out.h5"]
    fitted, predicted = several(tmp_path / "told", 2, [learning, predict])
    assert_refused(fitted[0], "--kernel: is 'no_such_module:Name': ModuleNotFoundError")
    assert_refused(predicted[0], "regression.h5: attribute kernel: is 'gaussian:Gaussian', which is not built in")
    assert [outcome.stdout + outcome.stderr for outcome in (fitted[1], predicted[1])] == ["", ""]
    ended = run(2, *predict, *KERNEL, environment={"PYTHONPATH": ""})
    assert_refused(ended, "--kernel: is 'gaussian:Gaussian': ModuleNotFoundError")
