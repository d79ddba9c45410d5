"""Kernels of anybody's: the example of docs/kernels.md against the compiled RBF kernel, checks, names, refusals."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from sklearn.base import clone

import mpigp
from mpigp.errors import InputError
from mpigp.files.model_file import open_model
from mpigp.gp.bound import BOUNDS
from mpigp.gp.statistics import Model, model_of
from mpigp.kernels import Kernel, LatentKernel, WrongKernel, check
from mpigp.kernels.registry import find
from mpigp.mpi.evaluator import EvaluationFailed, Evaluator
from mpigp.mpi.rows import Rows, find_patterns
from tests.support import matern, reference
from tests.support.calling import answer, command, read, write
from tests.support.inputs import write_inputs
from tests.support.kernel_page import NAME, write_module
from tests.support.modelfiles import write_model
from tests.support.problems import LATENT, REGRESSION, Problem, change, evaluate, make

both = pytest.mark.parametrize("model", [REGRESSION, LATENT], ids=lambda model: model.name)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the page's module, which Python finds."""
    folder = write_module(tmp_path_factory.mktemp("modules"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
    sys.modules.pop("gaussian", None)


@pytest.fixture
def gaussian() -> LatentKernel:
    return find(NAME)


def halved(problem: Problem) -> Problem:
    """Return the problem at which the page's kernel, exp(−Σ α u²), is the RBF kernel of the problem given."""
    return change(problem, alpha=0.5 * problem.parameters.alpha)


# The checks


@pytest.mark.parametrize("q", [1, 2, 3])
def test_the_kernels_pass_their_check(gaussian: LatentKernel, q: int) -> None:
    check(gaussian, q)
    check(matern.Matern52(), q)


RETURNED = {"covariance_gradient": 2, "psi1_gradient": 4, "psi2_gradient": 4}
MISTAKES = [(method, None) for method in ("covariance", "psi1", "psi2")] + [
    (method, place) for method, count in RETURNED.items() for place in range(count)
]


@pytest.mark.parametrize(("method", "place"), MISTAKES)
def test_the_check_finds_a_formula_that_is_off_by_a_little(
    gaussian: LatentKernel, method: str, place: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(type(gaussian), method)

    def off(self, *arguments, **named):
        found = right(self, *arguments, **named)
        if place is None:
            return found * (1 + 1e-5 * (found < 0.9))  # k(x, x) stays 1
        return tuple(each * (1 + 1e-5 * (number == place)) for number, each in enumerate(found))

    off.__name__ = method
    monkeypatch.setattr(type(gaussian), method, off)
    where = method if place is None else f"{method}: by {('Z', 'alpha', 'mu', 'S')[place]}"
    if method == "covariance":  # its gradient, which calls it, goes along, but ψ1 no longer belongs to it
        where = "psi1"
    with pytest.raises(WrongKernel, match=rf"^{where}\b.*: entry \("):
        check(gaussian, tolerance=1e-6)


class Wrong(Kernel):
    """A kernel that is not one, by what `covariance` makes of u² (m, n)."""

    def __init__(self, formula) -> None:
        self.formula = formula

    def covariance(self, Z, X, alpha):
        return self.formula(np.square(Z[:, None] - X) @ alpha)

    def covariance_gradient(self, Z, X, alpha, weights):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (lambda u: 2 * np.exp(-u), r"^covariance: k\(x, x\): entry .* unit variance"),
        (lambda u: np.exp(-u).T[:2], r"^covariance: is float64 \(2, 5\), not an array of float64 \(5, 4\)"),
        (lambda u: np.exp(-u).astype(np.float32), "^covariance: is float32"),
        (lambda u: np.exp(-u).tolist(), "^covariance: is list"),
        (lambda u: np.cos(3 * u) + np.arange(u.shape[1]) * (u > 0), r"^covariance: k\(x, x'\): entry"),
        (lambda u: (u < 1).astype(float), "^covariance: K has the eigenvalue -"),
        (
            lambda u: np.exp(-u) / (u < 1e3) * np.where(u.max() < 1e-6, np.nan, 1.0),
            "^covariance: is not finite at alpha",
        ),
    ],
)
def test_the_check_says_why_a_function_is_no_kernel(formula, message: str) -> None:
    with pytest.raises(WrongKernel, match=message):
        check(Wrong(formula))


def test_the_check_finds_rows_that_see_each_other(gaussian: LatentKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    right = type(gaussian).psi1
    monkeypatch.setattr(
        type(gaussian), "psi1", lambda self, Z, mu, S, alpha: right(self, Z, mu, S, alpha) * (len(mu) > 1)
    )
    with pytest.raises(WrongKernel, match=r"^psi1 of one row: entry .* among other rows"):
        check(gaussian)


# Against the compiled kernel. Both round at 1e-16 times the condition number of K_mm, 1e7 at most (test_gradients.py).
# With 33 inducing points a chunk of the GPLVM is more than one block.


@both
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (63, 5, 1, 3), (65, 7, 3, 2), (130, 33, 6, 1), (200, 13, 4, 5)], ids=str
)
@pytest.mark.parametrize("bound", BOUNDS)
def test_bound_and_gradients_are_those_of_the_compiled_kernel(model: Model, shape: tuple[int, ...], bound: str) -> None:
    problem = make(*shape)
    compiled = evaluate(model_of(model.name, bound=bound), *problem, 1e-6)
    ours = evaluate(model_of(model.name, NAME, bound), *halved(problem), 1e-6)
    assert ours.jitter == compiled.jitter
    assert ours.bound == pytest.approx(compiled.bound, rel=1e-10)
    expected = compiled.gradients() | {"alpha": 2 * compiled.gradients()["alpha"]}
    for name, found in ours.gradients().items():
        np.testing.assert_allclose(
            found, expected[name], rtol=0, atol=1e-8 * np.abs(expected[name]).max(), err_msg=name
        )


def test_regression_keeps_its_digits_at_little_noise() -> None:
    """Beyond MAX_COND_UNWHITENED_GRADIENT, where unwhitened sums lose them: against the dense n × n formula."""
    Z, X = np.linspace(0, 6, 30)[:, None], np.random.default_rng(1).uniform(0, 6, size=(100, 1))
    problem = Problem(X, np.ones_like(X), np.sin(2 * X), make(1, 1, 1, 1).parameters)
    problem = change(problem, Z=Z, alpha=np.array([1 / 0.6**2]), variance=1.0, beta=1e6)
    compiled = evaluate(REGRESSION, *problem, 1e-8)
    ours = evaluate(model_of("regression", NAME), *halved(problem), 1e-8)
    dense = reference.dense_regression_bound(X, problem.Y, **problem.parameters._asdict(), jitter=1e-8)
    assert ours.bound == pytest.approx(dense, rel=1e-9)
    np.testing.assert_allclose(
        ours.gradient.Z, compiled.gradient.Z, rtol=0, atol=1e-5 * np.abs(compiled.gradient.Z).max()
    )


@pytest.mark.parametrize("bound", BOUNDS)
def test_missing_entries_are_left_out_as_by_the_compiled_kernel(bound: str) -> None:
    mu, S, Y, parameters = make(150, 8, 2, 4)
    Y[np.random.default_rng(0).random(Y.shape) < 0.2] = np.nan

    def found(model: Model, alpha: np.ndarray) -> list[np.ndarray]:
        patterns = find_patterns(MPI.COMM_SELF, Y)
        rows = Rows(MPI.COMM_SELF, len(Y), mu.copy(), S.copy(), np.nan_to_num(Y), patterns)
        result = Evaluator(MPI.COMM_SELF, model, rows, 8, 2)(parameters._replace(alpha=alpha), 1e-6)
        return [np.array(result.bound), result.gradient.Z, rows.gradients["mu"], rows.gradients["S"]]

    compiled = found(model_of("gplvm", bound=bound), parameters.alpha)
    for one, other in zip(found(model_of("gplvm", NAME, bound), 0.5 * parameters.alpha), compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9 * np.abs(other).max())


def models(folder: Path, model: str) -> tuple[Path, Path]:
    """Return the model of the compiled kernel, and the same of the page's."""
    problem = make(120, 9, 2, 3)
    compiled = write_model(folder / "compiled.h5", model_of(model), problem, 1e-6)
    return compiled, write_model(folder / "ours.h5", model_of(model, NAME), halved(problem), 1e-6)


COMMANDS = [
    ("regression", "predict", ("X",)),
    ("regression", "predict", ("X", "X_variance")),
    ("gplvm", "predict", ("X",)),
    ("gplvm", "predict", ("X", "X_variance")),
    ("gplvm", "embed", ("Y",)),
    ("gplvm", "reconstruct", ("Y",)),
]


@pytest.mark.parametrize(("model", "name", "datasets"), COMMANDS)
def test_new_rows_are_treated_as_by_the_compiled_kernel(
    model: str, name: str, datasets: tuple[str, ...], tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    Y = rng.normal(size=(70, 3))
    Y[::3, 1] = np.nan
    new = {"X": rng.normal(size=(70, 2)), "X_variance": rng.uniform(0, 1, size=(70, 2)), "Y": Y}
    new = {dataset: new[dataset] for dataset in datasets}
    compiled, ours = models(tmp_path, model)
    expected, found = answer(name, compiled, **new), answer(name, ours, "--kernel", NAME, **new)
    assert expected.keys() == found.keys()
    # Predictions agree to rounding; latent points as far as embed's own tolerance of 1e-6 takes each.
    tolerance = 1e-8 if name == "predict" else 1e-3
    for dataset in found:
        np.testing.assert_allclose(
            found[dataset], expected[dataset], rtol=0, atol=tolerance * np.abs(expected[dataset]).max(), err_msg=dataset
        )


def test_joint_draws_have_the_covariance_of_the_kernel(tmp_path: Path) -> None:
    X = np.random.default_rng(6).normal(size=(10, 2))
    draws = []
    for model, name in zip(models(tmp_path, "regression"), (None, NAME), strict=True):
        with open_model(model) as file:
            draws.append(file.posterior(name).sample(X, 5, seed=1))
    np.testing.assert_allclose(draws[1], draws[0], rtol=0, atol=1e-4)  # the root of a covariance loses half the digits


# Matérn 5/2


def matern_kernel(A, B, variance, alpha):
    a = np.sqrt(5 * (alpha * (A[:, None, :] - B) ** 2).sum(axis=2))
    return variance * (1 + a + a**2 / 3) * np.exp(-a)


def test_the_gradients_of_matern_agree_with_complex_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make(130, 9, 2, 2)
    result = evaluate(model_of("regression", "matern52"), *problem, 1e-6)
    monkeypatch.setattr(reference, "kernel", matern_kernel)
    values = {"X": problem.mu, "Y": problem.Y, **problem.parameters._asdict(), "jitter": 1e-6}
    assert result.bound == pytest.approx(reference.regression_bound(**values), rel=1e-10)
    for name, found in result.gradients().items():
        expected = reference.complex_step(reference.regression_bound, values, name)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max(), err_msg=name)


# Fits


@pytest.mark.parametrize("model", ["regression", "gplvm"])
def test_a_fit_keeps_its_kernel_and_resumes_to_the_same_bits(model: str, tmp_path: Path) -> None:
    data = write_inputs(tmp_path, model, 150, 6, 2, 2).data
    learn = ["fit", data, "--model", model, "--inducing", 6, "--kernel", NAME, "--hold", 3]
    learn += ["--latent", 2] if model == "gplvm" else []
    command(*learn, "-o", tmp_path / "whole.h5", "--dry-run")
    assert not (tmp_path / "whole.h5").exists()
    command(*learn, "-o", tmp_path / "whole.h5", "--max-iter", 14)
    for more in (["--max-iter", 7], ["--max-iter", 14, "--resume"]):
        command(*learn, "-o", tmp_path / "resumed.h5", *more)
    with h5py.File(tmp_path / "resumed.h5") as file:
        assert file.attrs["kernel"] == NAME
    whole, resumed = read(tmp_path / "whole.h5"), read(tmp_path / "resumed.h5")
    timed = {"trace/seconds", "timing/phases", "checkpoint/options"}
    assert [name for name in whole.keys() - timed if whole[name].tobytes() != resumed[name].tobytes()] == []
    bounds = whole["trace/bound"]
    assert len(bounds) == 14 and bounds[-1] > bounds[0] + 1


def test_the_compiled_kernel_leaves_no_mark_in_model_files(tmp_path: Path) -> None:
    data = write_inputs(tmp_path, "regression", 20, 3, 1, 1).data
    command("fit", data, "-o", tmp_path / "model.h5", "--model", "regression", "--inducing", 3, "--max-iter", 1)
    with h5py.File(tmp_path / "model.h5") as file:
        assert "kernel" not in file.attrs


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_take_save_load_and_pickle_a_kernel(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, size=(200, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    for kernel in (NAME, "matern52", "rbf[0] + linear"):
        model = clone(mpigp.SparseGPRegression(20, kernel=kernel, max_iter=60)).fit(X, y)
        assert model.score(X, y) > 0.95
        model.save(tmp_path / "model.h5")
        for again in (mpigp.load(tmp_path / "model.h5", kernel=kernel), pickle.loads(pickle.dumps(model))):
            assert again.kernel == kernel
            np.testing.assert_array_equal(again.predict(X), model.predict(X))
    Y = np.column_stack([np.sin(X[:, 0]), np.cos(X[:, 0]), X[:, 0]])
    latent = mpigp.BayesianGPLVM(8, latent=1, kernel=NAME, max_iter=40).fit(Y)
    assert np.abs(latent.inverse_transform(latent.transform(Y[:5])) - Y[:5]).max() < 0.5


def test_a_gradient_that_is_no_number_is_a_failed_evaluation(
    gaussian: LatentKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that an optimiser takes a shorter step, instead of a wrong one."""
    right = type(gaussian).covariance_gradient
    monkeypatch.setattr(
        type(gaussian), "covariance_gradient", lambda *arguments: tuple(each * np.nan for each in right(*arguments))
    )
    with pytest.raises(EvaluationFailed, match="the gradient has no value"):
        evaluate(model_of("regression", NAME), *make(5, 2, 1, 1), 1e-6)


# Refusals


NAMES = {
    "no_such_module:Name": "No module named 'no_such_module': install the module, or put its folder on PYTHONPATH",
    "gaussian:Other": "has no attribute 'Other'",
    "gaussian:np": "that is no mpigp.kernels.Kernel",
    "mpigp.kernels:Kernel": "abstract",
    "broken:Name": "ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_to_no_kernel_is_refused_in_one_line(
    name: str, folder: Path, tmp_path: Path, refused
) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    data, params = write_inputs(tmp_path, "regression", 20, 3, 1, 1)
    output = tmp_path / "model.h5"
    learn = ["fit", data, "-o", output, "--model", "regression", "--inducing", 3, "--kernel", name]
    line = refused(*learn)
    assert "--kernel: is " in line and NAMES[name] in line
    assert NAMES[name] in refused("evaluate", data, "--params", params, "--kernel", name)
    with h5py.File(params, "r+") as file:
        file.attrs["kernel"] = name
    line = refused("evaluate", data, "--params", params)
    assert f"{params}: attribute kernel: is {name!r}, which is not built in: if you trust that module" in line
    assert not output.exists()


def test_a_model_file_does_not_decide_what_is_imported(folder: Path, tmp_path: Path, refused) -> None:
    """Its kernel is a name in a file of anybody's; only the user's own `--kernel` imports it."""
    (folder / "stranger.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nfrom gaussian import Gaussian\n")
    inputs = write_inputs(tmp_path, "gplvm", 50, 3, 2, 3)
    model, output, name = tmp_path / "model.h5", tmp_path / "out.h5", "stranger:Gaussian"
    learn = ["fit", inputs.data, "--model", "gplvm", "--latent", 2, "--inducing", 3, "--max-iter", 2]
    command(*learn, "-o", model)
    with h5py.File(model, "r+") as file:
        file.attrs["kernel"] = name
        file.attrs["estimator"] = '{"kernel": "stranger:Gaussian", "fixed": [], "checkpoint": "elsewhere.h5"}'
    new = write(tmp_path / "new.h5", X=np.zeros((2, 2)), Y=np.zeros((2, 3)))
    readers = [[each, model, new, "-o", output] for each in ("predict", "embed", "reconstruct")]
    for words in [*readers, ["evaluate", inputs.data, "--params", model]]:
        assert "not built in: if you trust that module, name it by --kernel" in refused(*words)
    for words in readers:
        assert f"--kernel: is 'rbf', and that of {model} is {name!r}" in refused(*words, "--kernel", "rbf")
    with pytest.raises(InputError, match="not built in"):
        mpigp.load(model)
    for words in (
        ["info", model],
        ["report", model, "-o", tmp_path / "page.html"],
        [*learn, "-o", output, "--init", model],
    ):
        command(*words)
    assert not (tmp_path / "imported").exists()
    loaded = mpigp.load(model, kernel=name)
    assert (tmp_path / "imported").exists() and loaded.kernel == name
    assert loaded.checkpoint is None  # a file names no output
    for words in readers:
        command(*words, "--kernel", name)


def test_what_a_kernel_cannot_do_is_refused_in_one_line(tmp_path: Path, refused) -> None:
    data = write_inputs(tmp_path, "regression", 50, 3, 2, 3).data
    output = tmp_path / "model.h5"
    learn = ["fit", data, "-o", output, "--inducing", 3, "--max-iter", 2]
    line = refused(*learn, "--model", "gplvm", "--latent", 2, "--kernel", "matern52")
    assert "--kernel: matern52 has no psi statistics, it serves regression alone" in line
    line = refused(*learn, "--model", "gplvm", "--latent", 2, "--kernel", matern.NAME)
    assert f"--kernel: is {matern.NAME!r}, which has no psi statistics: it serves regression alone" in line
    for unknown in ("nothing", "gaussian:"):
        assert "package.module:Name" in refused(*learn, "--model", "regression", "--kernel", unknown)
    command(*learn, "--model", "regression", "--kernel", "matern52")
    new = write(tmp_path / "new.h5", X=np.zeros((2, 2)), X_variance=np.ones((2, 2)))
    line = refused("predict", output, new, "-o", tmp_path / "out.h5")
    assert "/X_variance: the kernel matern52 has no psi statistics" in line
    line = refused(*learn, "--model", "regression", "--resume")
    assert "was made with kernel = 'matern52', not 'rbf'" in line


def test_an_instance_serves_as_a_kernel_too(folder: Path) -> None:
    (folder / "made.py").write_text("from gaussian import Gaussian\n\nours = Gaussian()\n")
    assert isinstance(find("made:ours"), LatentKernel)
    with pytest.raises(InputError, match="missing 1 required positional argument"):
        find(f"{__name__}:Wrong")  # its class asks for an argument
