"""Learning in one process: what is held and what moves, why it stops, and what is written."""

from __future__ import annotations

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from mpigp.cli import build_parser, execute
from mpigp.fit.loop import WINDOW, Fit
from mpigp.fit.objective import NAMES, Objective
from mpigp.fit.optimizers import OPTIMIZERS
from mpigp.fit.options import Options, Settings
from mpigp.fit.start.initialize import SIGNAL_TO_NOISE, first_globals
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import MODELS
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT

N, M, Q, D = 150, 6, 2, 3
GLOBALS = {"Z": "Z", "alpha": "kernel/alpha", "variance": "kernel/variance", "beta": "beta"}
LOCALS = {"mu": "latent/mu", "S": "latent/S"}
DATA = ROOT.parent / "shared" / "data"  # beside the repository; not everywhere


def problem(model: str) -> tuple[Objective, Globals]:
    """Return an objective and a start for it: a small problem, all on one rank."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N, Q))
    Y = np.sin(X @ rng.normal(size=(Q, D))) + 0.1 * rng.normal(size=(N, D))
    S = np.full((N, Q), 0.1) if model == "gplvm" else None
    rows = DistributedRows(MPI.COMM_SELF, N, X)
    begin = first_globals(rows, rows.with_local(Y), Options(model=model, inducing=M, latent=Q), 0)
    evaluator = Evaluator(MPI.COMM_SELF, MODELS[model], Rows(MPI.COMM_SELF, N, X, S, Y), M, Q, 1)
    return Objective(evaluator, 1e-6), begin


def fitted(model: str, **settings: object) -> Fit:
    """Return a fit that ran to its end."""
    objective, begin = problem(model)
    found = Fit(objective, Settings(**settings), begin)
    found.run()
    return found


def positions(fit: Fit) -> dict[str, bytes]:
    """Return the bits of every parameter at the fit's point."""
    parameters, local = fit.objective.parameters(fit.optimizer.point), fit.optimizer.point.local[0]
    found = {name: np.asarray(getattr(parameters, name)).tobytes() for name in GLOBALS}
    return found | {name: part.tobytes() for name, part in zip(LOCALS, local, strict=False)}


# what is held


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_variance_and_beta_are_held_and_then_released(model: str, optimizer: str) -> None:
    objective, begin = problem(model)
    settings = Settings(optimizer=optimizer, max_iter=12, hold=5, tolerance=0, gradient_tolerance=0)
    fit = Fit(objective, settings, begin)
    at = [positions(fit)]
    fit.run([lambda fit: at.append(positions(fit))])
    assert len(at) == 13
    for name in ("variance", "beta"):
        assert len({each[name] for each in at[:6]}) == 1, "moved while it was held"
        assert at[6][name] != at[5][name], "was not released"
    for name in {"Z", "alpha", *LOCALS} & at[0].keys():
        assert at[1][name] != at[0][name], f"{name} was held"
    assert not fit.held


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", NAMES)
def test_fixed_parameters_do_not_move_and_the_others_do(name: str, optimizer: str) -> None:
    objective, begin = problem("gplvm")
    fit = Fit(objective, Settings(optimizer=optimizer, max_iter=8, hold=3, fixed=frozenset({name})), begin)
    before = positions(fit)
    fit.run()
    after = positions(fit)
    assert [each for each in NAMES if after[each] == before[each]] == [name]


def test_without_a_hold_all_move_at_once() -> None:
    objective, begin = problem("regression")
    fit = Fit(objective, Settings(max_iter=1, hold=0), begin)
    before = positions(fit)
    fit.run()
    after = positions(fit)
    assert [name for name in before if after[name] == before[name]] == []


def test_nothing_is_held_where_variance_and_beta_are_fixed() -> None:
    """There is then nothing to release, and no second start of the optimiser."""
    fits = [fitted("regression", max_iter=15, hold=hold, fixed=frozenset({"variance", "beta"})) for hold in (5, 0)]
    assert fits[0].trace.bound == fits[1].trace.bound
    assert fits[0].evaluations == fits[1].evaluations


# why it stops


def test_it_stops_at_the_largest_number_of_iterations() -> None:
    fit = fitted("regression", max_iter=7, hold=2)
    assert (fit.iteration, "largest number of iterations" in fit.stopped) == (7, True)


def test_no_iteration_is_made_where_none_is_asked_for() -> None:
    fit = fitted("regression", max_iter=0)
    assert (fit.iteration, fit.evaluations) == (0, 1)
    assert math.isfinite(fit.bound)


def test_it_stops_when_the_bound_changes_little() -> None:
    fit = fitted("regression", max_iter=1000, hold=5, tolerance=1e-6, gradient_tolerance=0)
    bounds = fit.trace.bound
    assert "relative change" in fit.stopped
    assert 5 + WINDOW < fit.iteration < 1000
    assert bounds[-1] - bounds[-1 - WINDOW] < WINDOW * 1e-6 * abs(bounds[-1])
    assert bounds[-2] - bounds[-2 - WINDOW] >= WINDOW * 1e-6 * abs(bounds[-2]), "could have stopped before"


def test_it_stops_when_the_gradient_is_small() -> None:
    fit = fitted("regression", max_iter=1000, hold=5, tolerance=0, gradient_tolerance=1.0)
    assert "gradient" in fit.stopped
    assert fit.trace.gradient_norm[-1] < 1.0
    assert min(fit.trace.gradient_norm[5:-1]) >= 1.0, "could have stopped before"


def test_it_does_not_converge_while_something_is_held() -> None:
    fit = fitted("regression", max_iter=40, hold=30, tolerance=1.0, gradient_tolerance=1e9)
    assert fit.iteration == 31


def test_it_stops_where_no_step_helps() -> None:
    """With everything fixed there is no way up."""
    fit = fitted("gplvm", max_iter=50, hold=5, fixed=frozenset(NAMES), gradient_tolerance=0)
    assert (fit.iteration, "no step" in fit.stopped) == (0, True)


def test_it_stops_when_told_to() -> None:
    objective, begin = problem("regression")
    fit = Fit(objective, Settings(max_iter=50, hold=0), begin)

    def stop(fit: Fit) -> None:
        fit.stopped = "of a reason" if fit.iteration == 4 else ""

    fit.run([stop])
    assert (fit.iteration, fit.stopped) == (4, "of a reason")


# the trace


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_bound_never_decreases_and_all_is_traced(model: str, optimizer: str) -> None:
    fit = fitted(model, optimizer=optimizer, max_iter=80, hold=10, tolerance=0, gradient_tolerance=0)
    trace = {name: np.array(series) for name, series in fit.trace.series().items()}
    assert {len(series) for series in trace.values()} == {fit.iteration}
    assert fit.iteration == 80
    rounding = 1e-12 * np.abs(trace["bound"][1:])
    assert (np.diff(trace["bound"]) >= -rounding).all()
    assert trace["bound"][-1] == fit.bound > trace["bound"][0]
    assert (np.diff(trace["evaluations"]) >= 1).all()
    assert trace["evaluations"][-1] == fit.evaluations
    assert (np.diff(trace["seconds"]) > 0).all()
    assert (trace["gradient_norm"] > 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_the_bound_at_the_point_is_the_bound_that_was_traced(model: str) -> None:
    """What is saved is the point of the last bound, not one that a line search tried."""
    fit = fitted(model, max_iter=25, hold=10)
    gradient = fit.objective.space.block(1)
    assert -fit.objective(fit.optimizer.point, gradient) == fit.trace.bound[-1]


# the command


def call(capfd: pytest.CaptureFixture, *arguments: object) -> tuple[dict, str]:
    """Run `fit --json` in this process; return its figures, and all that it said."""
    code = execute([str(word) for word in ["fit", *arguments, "--overwrite", "--json"]])
    output, error = capfd.readouterr()
    assert code == 0, error
    return json.loads(output.splitlines()[-1]), output + error


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("regression"), "regression", N, M, Q, D)


@pytest.fixture(scope="module")
def gplvm(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("gplvm"), "gplvm", N, M, Q, D)


def test_figures_metrics_and_file_agree(gplvm: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    output, metrics = tmp_path / "model.h5", tmp_path / "metrics.jsonl"
    figures, said = call(
        capfd, gplvm.data, "-o", output, "--model", "gplvm", "--inducing", M, "--latent", Q, "--max-iter", 20,
        "--hold", 5, "--metrics", metrics,
    )  # fmt: skip
    assert {"bound", "iterations", "evaluations", "seconds", "beta", "variance", "alpha"} <= figures.keys()
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    fields = {"iteration", "bound", "gradient_norm", "seconds", "evaluations", "compute", "wait", "messages"}
    assert all(fields <= record.keys() for record in records)
    assert [record["iteration"] for record in records] == list(range(1, 21))
    assert all(0 <= record[share] <= 1 for record in records for share in ("compute", "wait", "messages"))
    with h5py.File(output) as file:
        for name in ("bound", "gradient_norm", "seconds", "evaluations"):
            assert [record[name] for record in records] == file[f"trace/{name}"][()].tolist()
        assert file.attrs["format"] == "mpigp-model"
        assert (file.attrs["model"], file.attrs["n"], file.attrs["seed"]) == ("gplvm", N, 0)
        assert {"version", "jitter"} <= set(file.attrs)
        assert file["Z"].shape == (M, Q)
        assert file["latent/mu"].shape == file["latent/S"].shape == (N, Q)
        assert (file["latent/S"][()] > 0).all()
        assert figures["beta"] == file["beta"][()]
        assert figures["variance"] == file["kernel/variance"][()]
        assert figures["alpha"] == file["kernel/alpha"][()].tolist()
    last = records[-1]
    assert (figures["bound"], figures["evaluations"]) == (last["bound"], last["evaluations"])
    assert (figures["iterations"], figures["seconds"]) == (20, last["seconds"])
    assert "largest number of iterations" in said
    assert "effective dimensions" in said


def test_checkpoints_are_saved_every_ten_minutes_unless_said_otherwise() -> None:
    parser = build_parser(["fit"])
    words = ["fit", "data.h5", "-o", "model.h5", "--model", "regression", "--inducing", "5"]
    assert parser.parse_args(words).checkpoint_every == (0, 600.0)
    assert parser.parse_args([*words, "--checkpoint-every", "50"]).checkpoint_every == (50, math.inf)


def test_an_older_model_is_replaced_only_if_that_is_said(
    regression: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    output = tmp_path / "model.h5"
    output.write_bytes(b"somebody's work")
    words = ["fit", regression.data, "-o", output, "--model", "regression", "--inducing", M, "--max-iter", 2]
    assert execute([str(word) for word in words]) == 2
    remedy = "choose another path, --overwrite it, or --resume its fit"
    assert capfd.readouterr().err == f"mpigp: {output}: there is a model already: {remedy}\n"
    assert output.read_bytes() == b"somebody's work"
    assert execute([str(word) for word in [*words, "--overwrite"]]) == 0
    assert execute([str(word) for word in [*words, "--max-iter", 4, "--resume"]]) == 0


def test_evaluate_finds_the_bound_that_fit_found(
    regression: Inputs, gplvm: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """With the standardisation that the file holds, and its jitter: the same bits."""
    for inputs, options in ((regression, ["--model", "regression"]), (gplvm, ["--model", "gplvm", "--latent", Q])):
        output = tmp_path / "model.h5"
        shared = ["-o", output, "--inducing", M, "--max-iter", 20, "--hold", 5]
        figures, _ = call(capfd, inputs.data, *shared, *options)
        assert execute([str(word) for word in ["evaluate", inputs.data, "--params", output, "--json"]]) == 0
        assert json.loads(capfd.readouterr().out.splitlines()[-1])["bound"] == figures["bound"]


@pytest.mark.parametrize("mode", ["scale", "center", "none"])
def test_standardisation_is_stored(mode: str, regression: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Moved and stretched data: what is stored undoes it; held at the start, the parameters show the data's scale."""
    data, output = tmp_path / "data.h5", tmp_path / "model.h5"
    with h5py.File(regression.data) as old, h5py.File(data, "w") as new:
        X, Y = 5 + 3 * old["X"][()], -40 + 20 * old["Y"][()]
        new["X"], new["Y"] = X, Y
    shared = ["--model", "regression", "--inducing", M, "--max-iter", 3, "--hold", 3, "--standardize", mode]
    figures, _ = call(capfd, data, "-o", output, *shared)
    with h5py.File(output) as file:
        if mode == "none":
            assert "standardize" not in file
        else:
            for name, values in (("x", X), ("y", Y)):
                scale = values.std(axis=0) if mode == "scale" else np.ones(values.shape[1])
                np.testing.assert_allclose(file[f"standardize/{name}_mean"][()], values.mean(axis=0), rtol=1e-10)
                np.testing.assert_allclose(file[f"standardize/{name}_scale"][()], scale, rtol=1e-10)
    variance = 1.0 if mode == "scale" else float(Y.var(axis=0).mean())
    np.testing.assert_allclose(figures["variance"], variance, rtol=1e-6)
    np.testing.assert_allclose(figures["beta"], SIGNAL_TO_NOISE / variance, rtol=1e-6)


def test_units_do_not_matter_when_columns_are_scaled(
    regression: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """Powers of two are exact: the same fit, bit for bit, with other stored scales."""
    data, bounds = tmp_path / "data.h5", []
    with h5py.File(regression.data) as old, h5py.File(data, "w") as new:
        new["X"], new["Y"] = 4 * old["X"][()], 0.125 * old["Y"][()]
    for path in (regression.data, data):
        shared = ["--model", "regression", "--inducing", M, "--max-iter", 10]
        bounds.append(call(capfd, path, "-o", tmp_path / "model.h5", *shared)[0]["bound"])
    assert bounds[0] == bounds[1]


def test_latent_points_from_a_file(gplvm: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """With nothing free but the noise, they stay where the file has them."""
    output = tmp_path / "model.h5"
    shared = ["--model", "gplvm", "--inducing", M, "--latent", Q, "--max-iter", 2, "--fixed", "mu,S"]
    call(capfd, gplvm.data, "-o", output, *shared, "--init", gplvm.params)
    with h5py.File(output) as found, h5py.File(gplvm.params) as given:
        np.testing.assert_array_equal(found["latent/mu"][()], given["latent/mu"][()])
        np.testing.assert_allclose(found["latent/S"][()], given["latent/S"][()], rtol=1e-9)


# data that others have learnt from


def exact_evidence(X: np.ndarray, Y: np.ndarray) -> float:
    """Return the largest log evidence of an exact GP over variance, alpha and beta, from the start of `fit`."""
    squares = (X - X.T) ** 2
    n = len(X)

    def negative(logs: np.ndarray) -> tuple[float, np.ndarray]:
        variance, alpha, noise = np.exp(logs)
        signal = variance * np.exp(-0.5 * alpha * squares)
        factor = cho_factor(signal + noise * np.eye(n), lower=True)
        weights = cho_solve(factor, Y)
        inner = cho_solve(factor, np.eye(n)) - weights @ weights.T  # twice the gradient by the covariance, negated
        by = [np.sum(inner * signal), -0.5 * alpha * np.sum(inner * signal * squares), noise * np.trace(inner)]
        value = 0.5 * (Y.T @ weights).item() + np.log(np.diag(factor[0])).sum() + 0.5 * n * math.log(2 * math.pi)
        return value, 0.5 * np.array(by)

    begin = np.log([Y.var(), 1 / X.var(), Y.var() / SIGNAL_TO_NOISE])
    found = minimize(negative, begin, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-8})
    return -float(found.fun)


@pytest.mark.skipif(not (DATA / "snelson.h5").exists(), reason="Snelson's data are not beside the repository")
@pytest.mark.parametrize("optimizer", ["lbfgs", "scg"])
def test_few_inducing_points_reach_the_exact_evidence(
    optimizer: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """Snelson's data, m = 15 for 200 rows: within 0.1 nat of the exact GP, and never above it."""
    shared = ["--model", "regression", "--inducing", 15, "--max-iter", 2000, "--optimizer", optimizer]
    figures, _ = call(capfd, DATA / "snelson.h5", "-o", tmp_path / "model.h5", *shared)
    with h5py.File(DATA / "snelson.h5") as file:
        X, Y = file["X"][()], file["Y"][()]
    exact = exact_evidence((X - X.mean()) / X.std(), (Y - Y.mean()) / Y.std())
    assert exact - 0.1 < figures["bound"] < exact + 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "oilflow.h5").exists(), reason="the oil flow data are not beside the repository")
def test_oil_flow(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """300 iterations of the defaults: about 6400 nats were observed; 5500 leave room for other starts and seeds."""
    shared = ["--model", "gplvm", "--inducing", 30, "--latent", 10, "--standardize", "center", "--max-iter", 300]
    figures, _ = call(capfd, DATA / "oilflow.h5", "-o", tmp_path / "model.h5", *shared)
    assert 5500 < figures["bound"] < 10000
    alpha = np.array(figures["alpha"])
    assert (alpha < 0.01 * alpha.max()).sum() >= 3, "hardly a dimension was switched off"
