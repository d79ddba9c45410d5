"""The experiments that learn models: their tables against the models themselves, and numbers that no rank decides."""

from __future__ import annotations

import json
import re
import stat
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from matplotlib.image import imread
from mpi4py import MPI
from sklearn.decomposition import PCA

from experiments import command, peer
from experiments.regression import Rows, beside
from experiments.source import Source
from mpigp import BayesianGPLVM, SparseGPRegression
from mpigp.mpi.distributed_rows import DistributedRows, fingerprint
from mpigp.mpi.processes import SIZE_VARIABLES
from tests.experiments.test_density import quadrature
from tests.support.calling import write
from tests.support.launching import ROOT, mpiexec, start
from tests.support.refusals import only_line

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

OIL = ["--inducing", 6, "--latent", 3, "--iterations", 15, "--repeats", 2]
FLIGHTS = ["--sizes", "60,90,5000", "--test", 100, "--inducing", "5,8", "--iterations", 10, "--trees", 3]
DIGITS = ["--inducing", 5, "--latent", 2, "--iterations", 60]
UCI = ["--inducing", "5,8", "--iterations", 10, "--seeds", "0,1"]


def call(kind: str, *words: object) -> int:
    with pytest.raises(SystemExit) as end:
        command.main(kind, [str(word) for word in words])
    return int(end.value.code or 0)


def conducted(kind: str, folder: Path, *words: object) -> dict[str, Any]:
    """Run an experiment, and return what it wrote."""
    assert call(kind, *words, "-o", folder) == 0
    return json.loads((folder / f"{kind}.json").read_text())


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small data file for each experiment."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    Y = 10 * np.sin(X[:, :1]) + 4 * X[:, 1:2] + rng.normal(size=(400, 1))
    labels = rng.integers(3, size=260) * 2  # 0, 2 and 4: places are not labels
    images = np.array([np.sin(np.linspace(0, 3 + label, 8)) for label in range(5)])[labels]
    images = images + 0.4 * rng.normal(size=(260, 1)) * np.linspace(-1, 1, 8) + 0.3 * rng.normal(size=(260, 8))
    oil, kinds = Source(None, 150).oilflow()
    return {
        "oilflow": write(folder / "oil.h5", Y=oil, labels=kinds),
        "flights": write(folder / "flights.h5", X=X, Y=Y),
        "uci": write(folder / "uci.h5", X=X, Y=Y, test_mask=1 * (rng.random((400, 2)) < 0.2)),
        "digits": write(
            folder / "digits.h5", Y=images[:200], labels=labels[:200], Ytest=images[200:], labels_test=labels[200:]
        ),
    }


WORDS = {"oilflow": OIL, "flights": FLIGHTS, "digits": DIGITS, "uci": UCI}


# what all have in common


def timeless(value: Any) -> Any:
    """Return what was found without what is of the run."""
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if name not in ("seconds", "ranks", "made")}
    return [timeless(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", [kind for kind in WORDS if kind != "uci"])
def test_ranks_change_no_number(
    kind: str, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # experiments are run from a checkout
    (tmp_path / "two").mkdir()
    words = [inputs[kind], *WORDS[kind]]
    outcome = mpiexec(2, "-m", f"experiments.{kind}", *words, "-o", tmp_path / "two")
    assert (outcome.code, outcome.stderr) == (0, "")
    one, two = conducted(kind, tmp_path, *words), json.loads((tmp_path / "two" / f"{kind}.json").read_text())
    assert two["ranks"] == two["made"]["machine"]["ranks"] == 2
    assert two["made"]["command"].startswith(f"python -m experiments.{kind} ")
    assert timeless(one) == timeless(two)


@pytest.mark.parametrize(
    ("words", "said"), [(["--latent", 13], "--latent: is 13"), (["--rates", 1], "unrecognized arguments: --rates 1")]
)
def test_ranks_refuse_in_one_line(
    words: list, said: str, inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    outcome = mpiexec(2, "-m", "experiments.oilflow", inputs["oilflow"], *words, "-o", tmp_path)
    assert outcome.code == 2 and len(outcome.ours) == 1 and said in outcome.ours[0]


@pytest.mark.parametrize("kind", WORDS)
def test_the_files_are_whole_and_agree(
    kind: str, inputs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    assert call(kind, inputs[kind], *WORDS[kind], "-o", tmp_path, "--json") == 0
    *text, last = capfd.readouterr().out.splitlines()
    told, kept = json.loads(last), json.loads((tmp_path / f"{kind}.json").read_text())
    assert kept.pop("runs") is not None
    written = told.pop("written")
    assert kept == told and kept["experiment"] == kind and kept["data"] == str(inputs[kind])
    assert written == [str(tmp_path / f"{kind}.{suffix}") for suffix in ("json", "txt", "png", "svg")]
    assert (tmp_path / f"{kind}.txt").read_text().splitlines() == text[: -len(written)]
    assert re.fullmatch(r"[\d.]+ s on 1 ranks of 1 threads, .+, \d{4}-\d\d-\d\d", text[-len(written) - 1])
    picture = imread(tmp_path / f"{kind}.png")
    assert picture.shape[1] > 800 and picture[..., :3].std() > 0.05
    assert (tmp_path / f"{kind}.png").stat().st_size < 100_000
    assert not re.search(r"(href|src)=\"(?!#|data:)", (tmp_path / f"{kind}.svg").read_text()), (
        "refers to something outside"
    )


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("oilflow", ["--rates", "0.1"], "unrecognized arguments: --rates 0.1"),
        ("oilflow", ["--inducing", "5,6"], "argument --inducing: invalid int value: '5,6'"),
        ("oilflow", ["--inducing", 151], "--inducing: is 151"),
        ("oilflow", ["--latent", 13], "--latent: is 13"),
        ("oilflow", ["--repeats", 0], "--repeats"),
        ("oilflow", ["--peer-iterations", 0], "--peer-iterations"),
        ("oilflow", ["--peer-python", "/none/python"], "--peer-python: /none/python"),
        ("oilflow", ["--rows", 10], "--rows"),
        ("oilflow", ["--jitter", "nan"], "--jitter"),
        ("oilflow", ["--seed", -1], "--seed"),
        ("flights", ["--sizes", "x"], "--sizes"),
        ("flights", ["--sizes", "0"], "--sizes"),
        ("flights", ["--sizes", "30,30"], "twice"),
        ("flights", ["--sizes", "400,500"], "more than one size"),
        ("flights", ["--test", 390], "--test"),
        ("flights", ["--trees", 0], "--trees"),
        ("flights", ["--rows", 10], "--rows"),
        ("flights", ["--y", "X"], "has 3 columns"),
        ("flights", ["--latent", 2], "unrecognized arguments: --latent 2"),
        ("digits", ["--latent", 8], "--latent: is 8"),
        ("digits", ["--iterations", 0], "--iterations"),
        ("uci", ["--kernels", "rbf,cubic"], "--kernels: unknown kernel 'cubic'"),
        ("uci", ["--kernels", ""], "--kernels: is empty"),
        ("uci", ["--bounds", "titsias,tight"], "--bounds: holds tight: choose among"),
        ("uci", ["--inducing", 380], "--inducing: holds 380, but there are"),
        ("uci", ["--seeds", "1,2"], "--seeds: holds 2: /test_mask has 2 splits"),
        ("uci", ["--seeds", "0,0"], "--seeds: holds a number twice"),
        ("uci", ["--seeds", "-1"], "--seeds: is -1"),
        ("uci", ["--seconds", 0], "--seconds: is 0"),
        ("uci", ["--iterations", 0], "--iterations"),
        ("uci", ["--gpflow", "/none/python"], "--gpflow: /none/python cannot import gpflow"),
        ("uci", ["--kernels", "experiments.none:K"], "--kernels: is 'experiments.none:K'"),
    ],
)
def test_what_has_no_meaning_is_refused_in_one_line(
    kind: str, words: list, said: str, inputs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    assert call(kind, inputs[kind], *WORDS[kind], *words, "-o", tmp_path) == 2
    out, err = capfd.readouterr()
    assert out == "" and said in only_line(err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("flights", {}, "DATA is missing"),
        ("digits", {}, "DATA is missing"),
        ("uci", {}, "DATA is missing"),
        ("uci", {"test_mask": np.ones((400, 2))}, "/test_mask: of 400 rows, 400 are left to predict and 0 to learn"),
        ("uci", {"test_mask": np.full((400, 2), 2)}, "/test_mask: is no mask of 400 rows"),
        ("uci", {"test_mask": np.eye(300, 2)}, "/test_mask: is no mask of 400 rows"),
        ("uci", {"Y": np.zeros((400, 2))}, "has 2 columns"),
        ("digits", {"Ytest": None}, "/Ytest: there is no such dataset"),
        ("digits", {"labels": np.zeros(200)}, "two classes"),
        ("digits", {"labels": np.zeros(7)}, "has 7 labels for 200 rows"),
        ("digits", {"labels": np.linspace(0, 1, 200)}, "not whole"),
        ("digits", {"labels_test": np.full(60, 7)}, "/labels_test: holds 7"),
        ("digits", {"Ytest": np.zeros((60, 9))}, "many pixels"),
        ("oilflow", {"labels": np.zeros(7)}, "has 7 labels for 150 rows"),
        ("oilflow", {"Y": np.zeros((1, 5)), "labels": None}, "--inducing"),
    ],
)
def test_data_that_will_not_do_are_refused(
    kind: str, change: dict, said: str, inputs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    data = []
    if change:
        with h5py.File(inputs[kind]) as file:
            kept = {name: item[()] for name, item in file.items()} | change
        data = [write(tmp_path / "data.h5", **{name: values for name, values in kept.items() if values is not None})]
    assert call(kind, *data, *WORDS[kind], "-o", tmp_path) == 2
    out, err = capfd.readouterr()
    assert out == "" and said in only_line(err)


def test_packages_that_are_missing_are_named(
    inputs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, extra in (("sklearn", "sklearn"), ("matplotlib", "report")):
        monkeypatch.setattr(command, "find_spec", lambda name, gone=package: None if name == gone else find_spec(name))
        assert call("digits", inputs["digits"], *DIGITS, "-o", tmp_path) == 2
        assert f"needs {package}: pip install 'mpigp[{extra}]'" in capfd.readouterr().err


# oil flow


def wrong_neighbours(points: np.ndarray, labels: np.ndarray) -> int:
    distance = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    return int((labels[distance.argmin(axis=1)] != labels).sum())


def test_a_line_of_oil_flow_is_what_a_fit_gives(inputs: dict[str, Path], tmp_path: Path) -> None:
    found = conducted("oilflow", tmp_path, inputs["oilflow"], *OIL, "--seed", 3)
    Y, labels = Source(str(inputs["oilflow"])).oilflow()
    assert labels is not None and found["errors_in_data"] == wrong_neighbours(Y, labels)
    assert [line["seed"] for line in found["table"]] == [3, 4] and found["peer"] is None
    for line, run in zip(found["table"], found["runs"]["ours"], strict=True):
        model = BayesianGPLVM(6, latent=3, max_iter=15, standardize="center", random_state=line["seed"]).fit(Y)
        assert line["bound"] == model.bound_ and run["alpha"] == model.alpha_.tolist() and not run["converged"]
        order = np.argsort(model.alpha_)[::-1][:2]
        points, weights = model.embedding_[:, order], model.alpha_[order]
        assert np.array_equal(run["points"], points)
        assert [line["largest"], line["second"]] == weights.tolist()
        assert line["errors"] == wrong_neighbours(points, labels)
        assert line["errors_scaled"] == wrong_neighbours(points * np.sqrt(weights), labels)
    assert "nothing is recorded" in (tmp_path / "oilflow.txt").read_text()


def test_without_labels_there_are_no_errors(tmp_path: Path) -> None:
    data = write(tmp_path / "data.h5", Y=Source(None, 80).oilflow()[0])
    found = conducted("oilflow", tmp_path, data, *OIL)
    assert found["errors_in_data"] is None and found["table"][0]["errors"] is None


def test_what_gpy_found_is_recorded_for_the_oil_flow_that_is_made(tmp_path: Path) -> None:
    found = conducted("oilflow", tmp_path, "--iterations", 3, "--repeats", 1)
    ours, theirs = found["table"]
    assert found["peer"]["recorded"] and theirs["program"] == f"GPy {found['peer']['version']}"
    assert theirs["bound"] > ours["bound"], "three iterations cannot be as good"
    assert ours["reached"] is None and theirs["reached"]["evaluations"] <= theirs["evaluations"]
    assert theirs["errors"] == wrong_neighbours(
        np.array(found["runs"]["peer"]["points"]), np.array(found["runs"]["labels"])
    )
    assert "recorded" in (tmp_path / "oilflow.txt").read_text()
    few = conducted("oilflow", tmp_path, "--iterations", 3, "--repeats", 1, "--latent", 2)
    assert few["peer"] is None, "what was recorded is of another model"


def test_all_that_is_recorded_is_whole() -> None:
    recorded = json.loads(peer.RECORDED.read_text())
    Y = Source(None).oilflow()[0]
    assert fingerprint(DistributedRows(MPI.COMM_SELF, len(Y), Y)) in recorded
    for each in recorded.values():
        trace = each["trace"]
        assert np.shape(each["points"]) == (1000, 2) and len(each["alpha"]) == each["latent"]
        assert sorted(trace["bound"]) == trace["bound"] and trace["bound"][-1] == round(each["bound"], 2)
        assert trace["evaluations"][-1] == each["evaluations"]
        assert trace["seconds"][-1] <= each["seconds"]


def stand_in(folder: Path, said: str) -> Path:
    """Return a program that imports anything, and says the same of all data."""
    path = folder / "python"
    path.write_text(f'#!{sys.executable}\nimport sys\nif sys.argv[1] != "-c":\n    {said}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_gpy_runs_in_an_environment_of_its_own(
    inputs: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    said = {"seconds": [0.5, 1.0, 1.5], "bound": [-1e9, -1e6, -1e5], "total_seconds": 2.0, "status": "converged",
            "alpha": [0.1, 3.0, 1.0], "mu": np.arange(450.0).reshape(150, 3).tolist(), "version": "0.0"}  # fmt: skip
    python = stand_in(tmp_path, f"print('hello'); print({json.dumps(json.dumps(said))})")
    found = conducted("oilflow", tmp_path, inputs["oilflow"], *OIL, "--peer-python", python)
    ours, _, theirs = found["table"]
    assert found["peer"] == {"version": "0.0", "recorded": False} and theirs["bound"] == -1e5
    assert (theirs["largest"], theirs["second"], theirs["evaluations"], theirs["seconds"]) == (3.0, 1.0, 3, 2.0)
    assert found["runs"]["peer"]["points"][0] == [1.0, 2.0]
    trace = found["runs"]["ours"][0]["trace"]
    first = next(k for k, bound in enumerate(trace["bound"]) if bound >= -1e5)
    assert ours["reached"] == {name: trace[name][first] for name in ("evaluations", "seconds")}
    capfd.readouterr()
    assert call("oilflow", inputs["oilflow"], *OIL, "--peer-python", sys.executable, "-o", tmp_path) == 2
    assert "cannot import GPy (ModuleNotFoundError: No module named 'GPy')" in capfd.readouterr().err


def test_a_peer_that_fails_is_told(inputs: dict[str, Path], tmp_path: Path) -> None:
    python = stand_in(tmp_path, "sys.exit('no memory')")
    with pytest.raises(RuntimeError, match="GPy ended with exit code 1: no memory"):
        peer.learn(str(python), np.ones((5, 2)), 1, 2, 3, timeout=600)


# flights


def test_the_scores_of_flights_are_those_of_the_methods(inputs: dict[str, Path], tmp_path: Path) -> None:
    found = conducted("flights", tmp_path, inputs["flights"], *FLIGHTS, "--seed", 5)
    with h5py.File(inputs["flights"]) as file:
        order = np.random.default_rng(5).permutation(400)
        X, Y = file["X"][()][order], file["Y"][:, 0][order]
    lines = {(line["rows"], line["method"]): line for line in found["table"]}
    assert [*dict.fromkeys(rows for rows, _ in lines)] == [60, 90, 300], "5000 stands for all that are left"
    assert len(lines) == len(found["table"]) == 3 * 7

    def check(line: dict, mean: Any, variance: Any) -> None:
        square = (Y[:100] - mean) ** 2
        assert line["rmse"] == pytest.approx(np.sqrt(square.mean()), rel=1e-9)
        nlpd = 0.5 * np.mean(np.log(2 * np.pi * variance) + square / variance)
        assert line["nlpd"] == pytest.approx(nlpd, rel=1e-9)

    for rows in (60, 90, 300):
        train, held = slice(100, 100 + rows), slice(100, 100 + rows // 10)
        rest = slice(held.stop, train.stop)
        check(lines[rows, "mean"], Y[train].mean(), np.mean((Y[held] - Y[rest].mean()) ** 2))
        design = np.column_stack([X, np.ones(400)])
        wide, narrow = (np.linalg.lstsq(design[part], Y[part], rcond=None)[0] for part in (train, rest))
        check(lines[rows, "linear"], design[:100] @ wide, np.mean((Y[held] - design[held] @ narrow) ** 2))
        for m in (5, 8):
            model = SparseGPRegression(m, max_iter=10, random_state=5).fit(X[train], Y[train])
            mean, std = model.predict(X[:100], return_std=True)
            check(lines[rows, f"GP, m = {m}"], mean, std**2)
            assert lines[rows, f"GP, m = {m}"]["bound"] == model.bound_
    for method in ("ridge", "gradient boosting", "random forest"):
        assert lines[300, method]["rmse"] < lines[300, "mean"]["rmse"]


def test_a_variance_is_of_rows_that_were_not_learned() -> None:
    class Memory:
        """Knows the rows that it has seen, and nothing else."""

        def fit(self, X: np.ndarray, Y: np.ndarray) -> Memory:
            self.known = dict(zip(X[:, 0], Y, strict=True))
            return self

        def predict(self, X: np.ndarray) -> list[float]:
            return [self.known.get(x, 0.0) for x in X[:, 0]]

    rows = Rows(np.arange(40.0)[:, None], np.full(40, 3.0))
    mean, variance, seconds = beside(Memory, rows, rows.X)
    assert seconds >= 0 and variance == 9.0 and np.array_equal(mean, rows.Y)


# digits


def test_digits_go_to_the_likeliest_class(inputs: dict[str, Path], tmp_path: Path) -> None:
    found = conducted("digits", tmp_path, inputs["digits"], *DIGITS)
    with h5py.File(inputs["digits"]) as file:
        Y, labels, new, true = (file[name][()] for name in ("Y", "labels", "Ytest", "labels_test"))
    gplvm, by_bounds, linear, neighbour = found["runs"]["chosen"].values()
    parts = {label: Y[labels == label] for label in (0, 2, 4)}
    prior = np.log([len(part) / 200 for part in parts.values()])
    models = [BayesianGPLVM(5, latent=2, max_iter=60, standardize="center").fit(part) for part in parts.values()]
    bounds = np.stack([model.score_samples(new) for model in models], axis=1)
    assert by_bounds == (2 * np.argmax(bounds + prior, axis=1)).tolist()
    exact = np.stack([quadrature(model.posterior_, new) for model in models], axis=1) + prior
    clear = np.diff(np.sort(exact, axis=1)[:, -2:])[:, 0] > 0.5  # nats between the two likeliest
    assert clear.sum() > 50
    assert (np.array(gplvm) == 2 * np.argmax(exact, axis=1))[clear].all()
    densities = [PCA(2).fit(part).score_samples(new) for part in parts.values()]
    assert linear == (2 * np.argmax(np.stack(densities, axis=1) + prior, axis=1)).tolist()
    assert neighbour == labels[((new[:, None] - Y) ** 2).sum(axis=2).argmin(axis=1)].tolist()
    for line, chosen in zip(found["table"], (gplvm, by_bounds, linear, neighbour), strict=True):
        wrong = np.array(chosen) != true
        assert line["wrong"] == wrong.sum() and line["error"] == wrong.mean() < 0.5
        assert line["by_class"] == [wrong[true == label].sum() for label in (0, 2, 4)]
    assert [(fit["label"], fit["digits"]) for fit in found["fits"]] == [(c, len(part)) for c, part in parts.items()]
    assert [fit["bound"] for fit in found["fits"]] == [model.bound_ for model in models]


def test_a_rare_class_needs_more_evidence() -> None:
    from experiments.digits import Digits, choose

    digits = Digits(np.zeros((10, 1)), np.array([3] * 9 + [7]), np.zeros((2, 1)), np.array([3, 7]))
    assert choose(digits, np.log([[0.2, 0.8], [0.05, 0.95]])).tolist() == [3, 7]


# scaling


@pytest.mark.slow
def test_scaling_answers_its_three_questions(tmp_path: Path) -> None:
    words = ["--counts", 2, "--rows", 401, "--inducing", 5, "--repeats", 1, "--evaluations", 2]
    outcome = start(sys.executable, "-m", "experiments.scaling", *words, "-o", tmp_path, cwd=ROOT)
    assert (outcome.code, outcome.stderr) == (0, "")
    found = json.loads((tmp_path / "scaling.json").read_text())
    table, text = found["table"], (tmp_path / "scaling.txt").read_text().splitlines()
    assert [(line["model"], line["kind"], line["ranks"], line["rows"]) for line in table] == [
        (model, kind, 2, rows) for model in ("regression", "gplvm") for kind, rows in (("strong", 401), ("weak", 400))
    ]
    for line, shown in zip(table, text[1:], strict=False):
        assert line["seconds"] > 0 and len(line["load"]["seconds"]) == 2 and min(line["load"]["seconds"]) > 0
        assert sum(line["load"]["rows"]) == line["rows"]
        assert shown.split()[:4] == [line["model"], line["kind"], "2", str(line["rows"])]
    assert imread(tmp_path / "scaling.png")[..., :3].std() > 0.05


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--counts", "0,1"], "--counts"),
        (["--counts", "2,2"], "--counts"),
        (["--evaluations", 0], "--evaluations"),
        (["--rows", 199], "--rows: is 199: give at least 100 for each of 2 ranks"),
        (["data.h5"], "data.h5: scaling makes its data"),
        (["--seed", 1], "unrecognized arguments: --seed"),
    ],
)
def test_scaling_refuses_what_has_no_meaning(
    words: list, said: str, tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)  # which MPI in this process may have left
    assert call("scaling", *words, "-o", tmp_path) == 2
    out, err = capfd.readouterr()
    assert out == "" and said in only_line(err)
    monkeypatch.setenv(SIZE_VARIABLES[0], "2")
    assert call("scaling", "-o", tmp_path) == 2
    assert "leave out mpiexec" in capfd.readouterr().err
