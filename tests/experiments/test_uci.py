"""Regression against the CPU's clock: records by a clock that is told, splits, and scores against the models'."""

from __future__ import annotations

import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from experiments import peer_process
from experiments.regression import Rows
from experiments.splits import Split, held_out, split
from experiments.timed_training import BATCH, Recorder, Task, blocks, minibatches, scored
from experiments.uci import Study, peers, posterior_of, table, theirs
from mpigp import SparseGPRegression
from mpigp.fit.loop import Fit
from tests.experiments.test_experiments import call, conducted, stand_in
from tests.support.calling import write
from tests.support.launching import ROOT, mpiexec

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

WORDS = ["--inducing", 6, "--iterations", 8, "--test", 0.25]
TASK = Task("matern52", [600.0], 8, 0)


def made_rows() -> Rows:
    """Rows of an easy function, in units far from standardized."""
    rng = np.random.default_rng(2)
    X = 5 + 3 * rng.normal(size=(200, 3))
    return Rows(X, 100 + 40 * np.sin(X[:, 0] / 2) + 5 * X[:, 1] + rng.normal(size=200))


def made_split(seed: int = 0) -> Split:
    rows = made_rows()
    return split(rows, held_out(200, None, 0.25, seed), seed)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = made_rows()
    return write(tmp_path / "data.h5", X=rows.X, Y=rows.Y[:, None])


# the clock


class Clock:
    """Time that passes when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_scoring_takes_none_of_the_time_and_marks_between_two_iterations_share_a_record() -> None:
    clock = Clock()
    recorder = Recorder([1, 2, 5, 10], clock)
    clock.now += 50  # of preparation
    recorder.begin()

    def score() -> dict[str, float]:
        clock.now += 1000
        return {"rmse": clock.now}

    ends = []
    for iteration in range(1, 6):
        clock.now += 2.5
        ends.append(recorder(iteration, score))
    assert [record["seconds"] for record in recorder.records] == [2.5, 5.0, 10.0]
    assert [record["iterations"] for record in recorder.records] == [1, 2, 4]
    assert ends == [False, False, False, True, True] and recorder.ending(100) == "out of time"


def test_the_last_iteration_has_one_record() -> None:
    clock = Clock()
    recorder = Recorder([1, 60], clock)
    clock.now += 3
    assert not recorder(1, lambda: {"rmse": 2.0})
    recorder.finish(1, lambda: {"rmse": 2.0})
    assert len(recorder.records) == 1 and recorder.ending(100) == "converged"
    clock.now += 3
    recorder.finish(9, lambda: {"rmse": 1.0})
    assert recorder.records[-1] == {"seconds": 6.0, "iterations": 9, "rmse": 1.0}
    assert recorder.ending(9) == "out of iterations"


def test_scores_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(FloatingPointError, match="after 3 iterations"):
        Recorder([0.0])(3, lambda: {"nlpd": float("nan")})


def test_an_epoch_of_minibatches_has_every_row_once() -> None:
    n = 3 * BATCH
    first, second = (np.concatenate([*islice(minibatches(n, seed), 3)]) for seed in (0, 1))
    assert sorted(first) == sorted(second) == [*range(n)] and (first != second).any()
    assert [len(batch) for batch in islice(minibatches(10, 0), 3)] == [10, 10, 10]
    assert len({len(batch) for batch in islice(minibatches(n + 5, 0), 7)}) == 1, "a graph is made for one size"
    assert np.concatenate([np.arange(n)[block] for block in blocks(n)]).tolist() == [*range(n)]


# splits


def test_a_split_is_standardized_by_the_rows_to_learn_from() -> None:
    rows, mask = made_rows(), held_out(200, None, 0.25, 4)
    part = split(rows, mask, 4)
    assert mask.sum() == len(part.test.Y) == 50
    for values in part.training:
        assert np.allclose([values.mean(axis=0), values.std(axis=0) - 1], 0, atol=1e-12)
    learned = rows.Y[mask == 0]
    assert part.scale == pytest.approx(learned.std())
    assert np.allclose(np.sort(part.test.Y * part.scale + learned.mean()), np.sort(rows.Y[mask == 1]))
    assert (held_out(200, None, 0.25, 5) != mask).any()
    assert np.array_equal(held_out(200, np.eye(200, 3), 0.25, 2), np.eye(200)[2]), "the mask decides"


def test_scores_come_back_to_the_units_of_the_data() -> None:
    rng, part = np.random.default_rng(0), made_split()
    Y, mean, variance = rng.normal(size=50), rng.normal(size=50), rng.random(50) + 0.1
    found = part.in_units(scored(Y, mean, variance))
    wanted = scored(Y * part.scale + 7, mean * part.scale + 7, variance * part.scale**2)
    assert found == pytest.approx(wanted, rel=1e-12)


def test_peers_start_where_mpigp_starts() -> None:
    problem = made_split().start(6, 3)
    model = SparseGPRegression(6, max_iter=0, standardize="none", random_state=3).fit(problem.X, problem.Y)
    assert np.array_equal(problem.Z, model.Z_)
    started = [*model.alpha_, model.variance_, model.beta_]
    assert [*problem.alpha, problem.variance, problem.beta] == pytest.approx(started, rel=1e-12)


# the experiment


def test_the_last_records_are_those_of_fits(data: Path, tmp_path: Path) -> None:
    found = conducted("uci", tmp_path, data, *WORDS, "--kernels", "rbf,matern52", "--seeds", "1,3")
    rows, lines = made_rows(), {line["method"]: line for line in found["table"]}
    assert [*lines] == ["linear", "gradient boosting", "mpigp, rbf, m = 6", "mpigp, matern52, m = 6"]
    for kernel in ("rbf", "matern52"):
        rmse = []
        for seed in (1, 3):
            test = held_out(200, None, 0.25, seed) == 1
            order = np.random.default_rng(seed).permutation(200)
            learned, new = order[~test[order]], order[test[order]]
            model = SparseGPRegression(6, kernel=kernel, max_iter=8, random_state=seed)
            mean, std = model.fit(rows.X[learned], rows.Y[learned]).predict(rows.X[new], return_std=True)
            run = next(run for run in found["runs"] if run["seed"] == seed and f", {kernel}," in run["method"])
            assert run["status"] == "out of iterations" and run["records"][-1]["iterations"] == 8
            assert run["records"][-1]["bound"] == pytest.approx(model.bound_, rel=1e-9)
            for name, value in scored(rows.Y[new], mean, std**2).items():
                assert run["records"][-1][name] == pytest.approx(value, rel=1e-6)
            rmse.append(run["records"][-1]["rmse"])
        line = lines[f"mpigp, {kernel}, m = 6"]
        assert line["rmse"] == pytest.approx(np.mean(rmse)) and line["rmse_sd"] == pytest.approx(np.std(rmse, ddof=1))
        assert line["endings"] == {"out of iterations": 2}
    assert lines["gradient boosting"]["rmse"] < lines["linear"]["rmse"] and lines["linear"]["bound"] is None


def test_a_fit_ends_when_its_time_is_used_up(data: Path, tmp_path: Path) -> None:
    found = conducted("uci", tmp_path, data, *WORDS[:2], "--test", 0.25, "--seconds", 1e-9)
    run = found["runs"][-1]
    assert run["status"] == "out of time" and [record["iterations"] for record in run["records"]] == [1]


def test_a_record_on_the_way_is_of_the_fit_that_ends_there_and_changes_nothing() -> None:
    problem, seen = made_split().start(6, 0), {}

    def after(fit: Fit) -> None:
        seen[fit.iteration] = fit.bound, posterior_of(MPI.COMM_SELF, fit, TASK).predict(problem.X_new).mean

    def learned(iterations: int, **more: Any) -> SparseGPRegression:
        given = {"kernel": TASK.kernel, "standardize": "none", "hold": 3, **more}
        return SparseGPRegression(6, max_iter=iterations, **given).fit(problem.X, problem.Y)

    watched = learned(8, callback=after)
    for iterations in (2, 5, 8):
        model = learned(iterations)
        bound, mean = seen[iterations]
        assert bound == model.bound_ and np.array_equal(mean, model.predict(problem.X_new))
    assert watched.bound_ == model.bound_


def test_more_ranks_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    outcome = mpiexec(2, "-m", "experiments.uci", data, *WORDS, "-o", tmp_path)
    assert outcome.code == 2 and len(outcome.ours) == 1 and "uci: measures the CPU seconds of one" in outcome.ours[0]


# peers


def test_what_peers_say_is_in_the_table(data: Path, tmp_path: Path) -> None:
    record = {"seconds": 2.0, "iterations": 7, "bound": -5.0, "rmse": 1.0, "nlpd": 1.5}
    said = {"version": "0.0", "records": [{**record, "seconds": 1.0}, record], "status": "out of time"}
    python = stand_in(tmp_path, f"print('hello'); print({json.dumps(json.dumps(said))})")
    found = conducted("uci", tmp_path, data, *WORDS, "--gpflow", python, "--gpytorch", python)
    scale = made_split().scale
    names = ["GPflow SGPR", "GPflow SVGP", "GPyTorch SVGP"]
    assert found["peers"] == dict.fromkeys(names, "0.0")
    for line, name in zip(found["table"][-3:], names, strict=True):
        assert line["method"] == f"{name}, rbf, m = 6" and line["endings"] == {"out of time": 1}
        assert (line["bound"], line["seconds"], line["iterations"]) == (-5.0, 2.0, 7.0)
        assert line["rmse"] == pytest.approx(scale) and line["nlpd"] == pytest.approx(1.5 + np.log(scale))
        assert line["rmse_sd"] is None
    assert "GPyTorch SVGP: version 0.0" in (tmp_path / "uci.txt").read_text()


def test_a_peer_that_fails_does_not_take_the_others_results(data: Path, tmp_path: Path) -> None:
    python = stand_in(tmp_path, "sys.exit('no memory')")
    found = conducted("uci", tmp_path, data, *WORDS, "--gpytorch", python)
    line = found["table"][-1]
    assert line["endings"] == {"GPyTorch SVGP ended with exit code 1: no memory": 1}
    assert line["seeds"] == 0 and line["nlpd"] is None and found["peers"] == {}
    assert "no memory" in (tmp_path / "uci.txt").read_text()


def test_a_peer_that_does_not_end_is_told(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "import time; time.sleep(60)")
    with pytest.raises(RuntimeError, match="GPflow did not end within 1 s"):
        peer_process.ask("GPflow", [str(python), "-m", "x"], timeout=1)


def test_a_peer_has_no_kernel_of_ones_own(data: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    words = ["--kernels", "tests.support.matern:Matern52", "--gpflow", sys.executable]
    assert call("uci", data, *WORDS, *words, "-o", tmp_path) == 2
    assert "--gpflow: is not run with the kernel tests.support.matern:Matern52" in capfd.readouterr().err


def test_seeds_without_a_record_do_not_count() -> None:
    record = {"seconds": 1.0, "iterations": 3, "bound": -1.0, "rmse": 2.0, "nlpd": 1.0}
    runs = [
        {"method": "A", "records": [record], "status": "converged"},
        {"method": "A", "records": [], "status": "no memory"},
    ]
    (line,) = table(runs)
    assert (line["seeds"], line["rmse"], line["rmse_sd"]) == (1, 2.0, None)
    assert line["endings"] == {"converged": 1, "no memory": 1}


def real(package: str) -> list[str]:
    """Return the command of the first program of a peer, whose Python an environment variable names."""
    if (python := os.environ.get(f"{package.upper()}_PYTHON")) is None:
        pytest.skip(f"{package.upper()}_PYTHON names no Python with {package}")
    return next(peers(Study(**{package: python})))[1]


AT_START = """
import json, sys
from experiments.uci_gpflow import Problem, Task, np, predicted, sgpr_at_start
problem = Problem(**np.load(sys.argv[1]))
print(json.dumps(predicted(sgpr_at_start(problem, Task(sys.argv[2], [], 1, 0)), problem)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_gpflow_predicts_as_mpigp_at_the_start(kernel: str, tmp_path: Path) -> None:
    problem, command = made_split().start(6, 0), real("gpflow")
    model = SparseGPRegression(6, kernel=kernel, max_iter=0, standardize="none").fit(problem.X, problem.Y)
    mean, std = model.predict(problem.X_new, return_std=True)
    np.savez(tmp_path / "problem.npz", **problem._asdict())
    found = peer_process.ask("GPflow", [command[0], "-c", AT_START, str(tmp_path / "problem.npz"), kernel], 600)
    assert found == pytest.approx(scored(problem.Y_new, mean, std**2), rel=1e-4), "jitters differ"


@pytest.mark.slow
@pytest.mark.parametrize(("package", "method"), [("gpflow", "sgpr"), ("gpflow", "svgp"), ("gpytorch", "svgp")])
def test_peers_learn_until_their_time_is_used_up(package: str, method: str) -> None:
    problem, command = made_split().start(6, 0), real(package)
    found = theirs(package, [*command[:-1], method], problem, Task("matern52", [0.2, 2.0], 10_000, 0))
    assert found["status"] in ("out of time", "converged") and found["version"]
    first, last = found["records"][0], found["records"][-1]
    assert last["seconds"] > first["seconds"] and last["iterations"] > first["iterations"]
    assert last["bound"] > first["bound"] and last["rmse"] < 0.9
