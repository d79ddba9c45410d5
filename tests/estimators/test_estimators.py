"""The estimators in one process: scikit-learn's conventions, the same bits as the commands, model files, input."""

from __future__ import annotations

import doctest
import pickle
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

import mpigp
from mpigp import BayesianGPLVM, SparseGPRegression, estimators
from mpigp.cli import execute
from mpigp.errors import InputError
from tests.support.launching import ROOT, start

N, M, Q, D = 150, 6, 2, 3
ITERATIONS = 40
KINDS = {"regression": SparseGPRegression, "gplvm": BayesianGPLVM}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, Q))
    Y = np.sin(X @ rng.normal(size=(Q, D))) * [1.0, 2.0, 30.0] + [0.0, -1.0, 5.0]
    return {"X": X, "Y": Y + 0.05 * rng.normal(size=(N, D)), "new": rng.normal(size=(40, Q))}


@pytest.fixture(scope="module")
def file(data: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["Y"], file["y"] = data["X"], data["Y"], data["Y"][:, 0]
    return path


@pytest.fixture(scope="module")
def regression(data: dict[str, np.ndarray]) -> SparseGPRegression:
    return SparseGPRegression(M, max_iter=ITERATIONS, hold=5).fit(data["X"], data["Y"])


@pytest.fixture(scope="module")
def gplvm(data: dict[str, np.ndarray]) -> BayesianGPLVM:
    return BayesianGPLVM(M, latent=Q, max_iter=ITERATIONS, hold=5).fit(data["Y"])


def datasets(path: Path) -> dict[str, np.ndarray]:
    """Return what a model file holds of the model: not of its checkpoint, nor of the run."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
    return {
        name: values for name, values in found.items() if not name.startswith(("checkpoint", "trace/seconds", "timing"))
    }


def assert_same_bits(one: Any, other: Any) -> None:
    one, other = np.asarray(one), np.asarray(other)
    assert (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())


# conventions


@parametrize_with_checks([SparseGPRegression(), BayesianGPLVM()])  # all of them: there is nothing to except
def test_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("module", [estimators, estimators.regression, estimators.gplvm])
def test_examples_run(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_the_example_of_the_documentation_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = re.findall("```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["regression"].score(found["X"][1:], found["Y"][1:]) > 0.9  # the first row is no longer whole
    assert found["latent"].shape == (1000, 2)


@pytest.mark.parametrize("kind", KINDS.values())
def test_clones_share_the_communicator(kind: Any) -> None:
    comm = MPI.COMM_SELF.Dup()
    try:
        estimator = kind(7, jitter=1e-5, fixed=("Z",), comm=comm)
        copy = clone(estimator)
        assert copy.comm is comm
        assert copy.get_params() == estimator.get_params()
        assert copy is not estimator
        assert estimator.set_params(inducing=3).inducing == 3
    finally:
        comm.Free()


def test_fitted_estimators_are_pickled(
    data: dict[str, np.ndarray], regression: SparseGPRegression, gplvm: BayesianGPLVM, tmp_path: Path
) -> None:
    one, other = pickle.loads(pickle.dumps(regression)), pickle.loads(pickle.dumps(gplvm))
    assert_same_bits(one.predict(data["new"]), regression.predict(data["new"]))
    assert_same_bits(other.transform(data["Y"][:9]), gplvm.transform(data["Y"][:9]))
    other.save(tmp_path / "model.h5")
    assert_same_bits(mpigp.load(tmp_path / "model.h5").embedding_, gplvm.embedding_)


def test_pipelines_and_searches(data: dict[str, np.ndarray]) -> None:
    X, y = data["X"], data["Y"][:, 0]
    pipeline = make_pipeline(StandardScaler(), SparseGPRegression(M, max_iter=ITERATIONS, hold=5))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.5
    search = GridSearchCV(pipeline, {"sparsegpregression__inducing": [1, 12]}, cv=3).fit(X, y)
    assert search.best_params_ == {"sparsegpregression__inducing": 12}
    reduced = make_pipeline(StandardScaler(), BayesianGPLVM(M, max_iter=5)).fit_transform(data["Y"])
    assert reduced.shape == (N, 2)


def test_names_of_the_latent_columns(gplvm: BayesianGPLVM) -> None:
    assert gplvm.get_feature_names_out().tolist() == ["bayesiangplvm0", "bayesiangplvm1"]


def test_without_convergence_there_is_a_warning(data: dict[str, np.ndarray]) -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        SparseGPRegression(M, max_iter=3).fit(data["X"], data["Y"])


def test_verbose_shows_the_iterations(data: dict[str, np.ndarray], capfd: pytest.CaptureFixture) -> None:
    for verbose in (0, 1):
        SparseGPRegression(M, max_iter=5, verbose=verbose).fit(data["X"], data["Y"])
        assert ("iteration 1 " in capfd.readouterr().err) == bool(verbose)


def test_random_states(data: dict[str, np.ndarray]) -> None:
    def Z(random_state: Any) -> bytes:
        model = SparseGPRegression(M, max_iter=0, random_state=random_state)
        return model.fit(data["X"], data["Y"]).Z_.tobytes()

    assert Z(0) == Z(np.int64(0)) != Z(1)
    assert Z(np.random.RandomState(4)) == Z(np.random.RandomState(4)) != Z(np.random.RandomState(5))
    assert Z(None) != Z(None)


# what comes back


@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, D)])
def test_predictions_have_the_shape_of_y(shape: tuple[int, ...], data: dict[str, np.ndarray], tmp_path: Path) -> None:
    y = data["Y"].ravel()[: np.prod(shape)].reshape(shape)
    model = SparseGPRegression(M, max_iter=3).fit(data["X"], y)
    model.save(tmp_path / "model.h5")
    for each in (model, mpigp.load(tmp_path / "model.h5")):
        mean, std = each.predict(data["new"], return_std=True)
        assert mean.shape == std.shape == each.predict(data["new"]).shape == (40, *shape[1:])


def test_standard_deviations_hold_the_noise() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(2000, 1))
    Y = np.column_stack([np.sin(X[:, 0]), 10 * np.cos(X[:, 0])]) + rng.normal(size=(2000, 2)) * [0.1, 1.0]
    mean, std = SparseGPRegression(15, max_iter=200).fit(X, Y).predict(X, return_std=True)
    np.testing.assert_allclose(std.mean(axis=0), [0.1, 1.0], rtol=0.05)  # 2000 rows know a deviation to 1.6 %
    within = (np.abs(Y - mean) < 1.96 * std).mean(axis=0)
    np.testing.assert_allclose(within, 0.95, atol=0.02)  # four standard errors


def test_attributes(data: dict[str, np.ndarray], regression: SparseGPRegression, gplvm: BayesianGPLVM) -> None:
    for model in (regression, gplvm):
        assert model.Z_.shape == (M, Q)
        assert model.alpha_.shape == (Q,)
        assert model.variance_ > 0
        assert model.beta_ > 0
        assert model.n_iter_ == len(model.trace_.bound) == ITERATIONS
        assert model.bound_ == model.trace_.bound[-1] > model.trace_.bound[0]
    assert (regression.n_features_in_, gplvm.n_features_in_) == (Q, D)
    assert gplvm.embedding_.shape == gplvm.embedding_variance_.shape == (N, Q)
    assert (gplvm.embedding_variance_ > 0).all()
    assert regression.score(data["X"], data["Y"]) > 0.8


def test_there_and_back_through_latent_points(data: dict[str, np.ndarray], gplvm: BayesianGPLVM) -> None:
    Y = data["Y"]
    latent, std = gplvm.transform(Y, return_std=True)
    assert latent.shape == std.shape == (N, Q)
    mean, deviation = gplvm.inverse_transform(latent, return_std=True)
    assert mean.shape == deviation.shape == Y.shape
    assert ((mean - Y) ** 2).mean(axis=0) == pytest.approx(0, abs=0.1 * Y.var(axis=0).max())
    assert gplvm.score(Y) == gplvm.score_samples(Y).mean()
    assert gplvm.score_samples(Y).shape == (N,)
    assert gplvm.score(Y) > gplvm.score(Y[:, ::-1])  # rows that are not of this kind


def test_missing_entries_are_filled_in(data: dict[str, np.ndarray], gplvm: BayesianGPLVM) -> None:
    Y = data["Y"].copy()
    Y[::2, 1] = np.nan
    assert np.isfinite(gplvm.transform(Y)).all()
    mean, std = gplvm.reconstruct(Y, return_std=True)
    assert mean.shape == std.shape == Y.shape
    wrong = mean[::2, 1] - data["Y"][::2, 1]
    assert np.mean(wrong**2) < 0.5 * data["Y"][:, 1].var()
    assert std[::2, 1].mean() > std[1::2, 1].mean()  # what was missing is less certain


# the commands


def command(*words: object) -> None:
    assert execute([str(word) for word in words]) == 0


@pytest.mark.parametrize("model", KINDS)
def test_the_same_bits_as_the_commands(model: str, file: Path, data: dict[str, np.ndarray], tmp_path: Path) -> None:
    """With options that all differ from the defaults."""
    latent = {"gplvm": ["--latent", Q, "--init", "random"], "regression": []}[model]
    command(
        "fit", file, "-o", tmp_path / "command.h5", "--model", model, "--inducing", M, *latent,
        "--max-iter", ITERATIONS, "--hold", 5, "--optimizer", "scg",
        "--placement", "kmeans", "--fixed", "beta", "--seed", 3, "--restarts", 2, "--bound", "rows",
        "--standardize", "center", "--jitter", 1e-5, "--tolerance", 1e-7, "--gradient-tolerance", 1e-3,
    )  # fmt: skip
    more = {"gplvm": {"latent": Q, "init": "random"}, "regression": {}}[model]
    estimator = KINDS[model](
        M, max_iter=ITERATIONS, hold=5, optimizer="scg", placement="kmeans", fixed=("beta",), random_state=3,
        restarts=2, standardize="center", jitter=1e-5, tolerance=1e-7, gradient_tolerance=1e-3, bound="rows",
        **more,
    )  # fmt: skip
    estimator.fit(*([data["X"]] if model == "regression" else []), data["Y"])
    estimator.save(tmp_path / "saved.h5")
    ours, theirs = datasets(tmp_path / "saved.h5"), datasets(tmp_path / "command.h5")
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert_same_bits(ours[name], theirs[name])
    loaded = mpigp.load(tmp_path / "command.h5")
    unknown = {"max_iter", "tolerance", "gradient_tolerance"}  # to a checkpoint, which goes on with others
    ours, theirs = estimator.get_params(), loaded.get_params()
    assert {name: ours[name] for name in ours.keys() - unknown} == {
        name: theirs[name] for name in ours.keys() - unknown
    }


def test_commands_take_what_was_saved(
    file: Path, data: dict[str, np.ndarray], regression: SparseGPRegression, gplvm: BayesianGPLVM, tmp_path: Path
) -> None:
    one, other, found = tmp_path / "regression.h5", tmp_path / "gplvm.h5", tmp_path / "found.h5"
    regression.save(one)
    gplvm.save(other)
    for path in (one, other):
        command("info", path)
        command("report", path, "-o", tmp_path / "report.html")
        command("evaluate", file, "--params", path, "-o", found)
        with h5py.File(found) as gradients:
            assert gradients["bound"][()] == mpigp.load(path).bound_
    command("predict", one, file, "-o", found)
    with h5py.File(found) as predicted:
        mean, std = regression.predict(data["X"], return_std=True)
        assert_same_bits(predicted["mean"][()], mean)
        assert_same_bits(np.sqrt(predicted["y_variance"][()]), std)
    command("embed", other, file, "-o", found)
    with h5py.File(found) as embedded:
        assert_same_bits(embedded["latent/mu"][()], gplvm.transform(data["Y"]))
    command("reconstruct", other, file, "-o", found)
    with h5py.File(found) as reconstructed:
        assert_same_bits(reconstructed["mean"][()], gplvm.reconstruct(data["Y"]))


@pytest.mark.parametrize("model", KINDS)
def test_saved_and_loaded_it_is_the_same(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    estimator = request.getfixturevalue(model)
    estimator.save(tmp_path / "one.h5")
    loaded = mpigp.load(tmp_path / "one.h5")
    assert type(loaded) is type(estimator)
    assert loaded.get_params() == estimator.get_params()
    loaded.save(tmp_path / "two.h5")
    one, two = datasets(tmp_path / "one.h5"), datasets(tmp_path / "two.h5")
    assert one.keys() == two.keys()
    for name in one:
        assert_same_bits(one[name], two[name])
    for name in ("Z_", "alpha_", "variance_", "beta_", "bound_", "n_iter_", "n_features_in_"):
        assert_same_bits(getattr(loaded, name), getattr(estimator, name))
    assert loaded.trace_ == estimator.trace_


# what is given


def test_datasets_are_as_good_as_arrays(
    file: Path, data: dict[str, np.ndarray], regression: SparseGPRegression, gplvm: BayesianGPLVM
) -> None:
    with h5py.File(file) as given:
        X, Y, y = given["X"], given["Y"], given["y"]
        assert_same_bits(clone(regression).fit(X, Y).predict(X), regression.predict(data["X"]))
        flat = clone(regression).fit(X, y).predict(X)
        assert_same_bits(flat, clone(regression).fit(X, data["Y"][:, 0]).predict(data["X"]))
        assert_same_bits(clone(gplvm).fit_transform(Y), gplvm.embedding_)
        assert_same_bits(gplvm.transform(Y), gplvm.transform(data["Y"]))
        assert_same_bits(gplvm.inverse_transform(X), gplvm.inverse_transform(data["X"]))
        with pytest.raises(ValueError, match=r"/Y.*features"):
            regression.predict(Y)
        for method in (gplvm.transform, gplvm.inverse_transform):
            with pytest.raises(ValueError, match=r"/y.*dimensions"):
                method(y)


def test_what_was_given_is_not_changed(data: dict[str, np.ndarray]) -> None:
    X, Y = data["X"].copy(), data["Y"].copy()
    SparseGPRegression(M, max_iter=2).fit(X, Y).predict(X)
    model = BayesianGPLVM(M, max_iter=2).fit(Y)
    model.inverse_transform(model.transform(Y))
    assert_same_bits(X, data["X"])
    assert_same_bits(Y, data["Y"])


def test_blas_keeps_its_threads(data: dict[str, np.ndarray]) -> None:
    """A fit has BLAS to itself on one thread, and a notebook has it back."""
    with threadpool_limits(2, "blas"):
        SparseGPRegression(M, max_iter=2).fit(data["X"], data["Y"]).predict(data["X"])
        found = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
        assert found
        assert set(found) == {2}


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_what_is_no_number_is_refused(bad: float, data: dict[str, np.ndarray], tmp_path: Path) -> None:
    """But for NaN in data of a GPLVM, where an entry is missing."""
    Y = data["Y"].copy()
    Y[77, 1] = bad
    fits = [lambda Y: SparseGPRegression(M).fit(data["X"], Y), lambda Y: SparseGPRegression(M).fit(Y, data["X"])]
    for fit in fits + ([] if np.isnan(bad) else [BayesianGPLVM(M).fit]):
        with pytest.raises(ValueError, match=r"NaN|infinity|beyond"):
            fit(Y)
        with h5py.File(tmp_path / "bad.h5", "w") as file:
            file["Y"] = Y
            with pytest.raises(ValueError, match="row 77"):
                fit(file["Y"])


def test_missing_entries_are_learned_around(data: dict[str, np.ndarray], file: Path, tmp_path: Path) -> None:
    """As `fit --missing` does, and from a dataset too."""
    Y = data["Y"].copy()
    Y[::4, 1] = np.nan
    Y[1::4, 2] = np.nan
    model = BayesianGPLVM(M, latent=Q, max_iter=ITERATIONS, hold=5).fit(Y)
    with h5py.File(tmp_path / "data.h5", "w") as holes:
        holes["Y"] = Y
        assert_same_bits(clone(model).fit_transform(holes["Y"]), model.embedding_)
    command(
        "fit", tmp_path / "data.h5", "-o", tmp_path / "command.h5", "--model", "gplvm", "--inducing", M, "--latent", Q,
        "--max-iter", ITERATIONS, "--hold", 5, "--missing",
    )  # fmt: skip
    model.save(tmp_path / "saved.h5")
    ours, theirs = datasets(tmp_path / "saved.h5"), datasets(tmp_path / "command.h5")
    assert ours.keys() == theirs.keys()
    for name in theirs:
        assert_same_bits(ours[name], theirs[name])
    missing = np.isnan(Y)
    wrong = (model.reconstruct(Y) - data["Y"])[missing] / np.broadcast_to(data["Y"].std(axis=0), Y.shape)[missing]
    assert np.mean(wrong**2) < 0.5  # a column's mean has 1


def test_few_rows_get_as_many_inducing_points(data: dict[str, np.ndarray]) -> None:
    assert SparseGPRegression(max_iter=2).fit(data["X"][:9], data["Y"][:9]).Z_.shape == (9, Q)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"inducing": 0}, "inducing"),
        ({"optimizer": "adam"}, "optimizer.*lbfgs"),
        ({"placement": "grid"}, "placement.*greedy"),
        ({"standardize": "maybe"}, "standardize.*center"),
        ({"fixed": ("gamma",)}, "fixed.*gamma.*alpha"),
        ({"restarts": 0}, "restarts"),
        ({"jitter": -1.0}, "jitter"),
        ({"threads": 0}, "threads"),
        ({"latent": 0}, "latent"),
        ({"latent": D + 1}, "latent.*random"),
        ({"init": "nowhere.h5"}, "nowhere.h5"),
    ],
)
def test_bad_parameters_are_named(given: dict[str, Any], said: str, data: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=said) as error:
        BayesianGPLVM(**given).fit(data["Y"])
    assert "--" not in str(error.value)


def test_what_is_no_model_is_not_loaded(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model"):
        mpigp.load(file)
    with pytest.raises(InputError, match="does not exist"):
        mpigp.load(tmp_path / "none.h5")
    with h5py.File(tmp_path / "params.h5", "w") as params:
        params.attrs["model"] = "regression"
    with pytest.raises(InputError, match="no learned model"):
        mpigp.load(tmp_path / "params.h5")


def test_a_file_that_cannot_be_written_is_named(regression: SparseGPRegression, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        regression.save(tmp_path / "nowhere" / "model.h5")


# the import


def python(code: str) -> Any:
    outcome = start(sys.executable, "-c", code)
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout.strip()


def test_the_import_is_light() -> None:
    code = "import sys, mpigp; print([name for name in ('mpi4py.MPI', 'sklearn', 'numpy') if name in sys.modules])"
    assert python(code) == "[]"
    assert "BayesianGPLVM" in python("import mpigp; print(dir(mpigp))")
    code = "import sys; import mpigp.cli, mpigp.commands.fit; print('sklearn' in sys.modules)"
    assert python(code) == "False"


def test_without_scikit_learn_it_says_what_to_install() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
try:
    from mpigp import load
except ImportError as error:
    print(error)
"""
    assert python(code) == "mpigp.load needs scikit-learn: pip install 'mpigp[sklearn]'"
    with pytest.raises(AttributeError, match="nothing"):
        mpigp.nothing  # noqa: B018
