"""`fit --validate`: what is learned, scored, written and said, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from mpigp.data.held_out import HeldOut
from tests.support.calling import command, read, write
from tests.support.fits import RUN, differences, fit
from tests.support.inputs import Inputs, write_inputs
from tests.support.reports import report

N, M, Q, D = 260, 6, 2, 3
SHORT = ("--max-iter", 23, "--hold", 4, "--tolerance", 0, "--gradient-tolerance", 0)
KEYS = ("validation_rmse", "validation_nlpd")


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return write_inputs(tmp_path, "regression", N, M, Q, D)


def parts(inputs: Inputs, fraction: float, seed: int = 0) -> tuple[Path, Path]:
    """Write the rows that remain, and those that are held out, to files of their own."""
    numbers = HeldOut.of(N, fraction, seed).numbers
    data, folder = read(inputs.data), inputs.data.parent
    remaining = write(folder / "remaining.h5", **{name: np.delete(rows, numbers, 0) for name, rows in data.items()})
    return remaining, write(folder / "held.h5", **{name: rows[numbers] for name, rows in data.items()})


def figures(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """Run a command line of mpigp to a good end, and return its figures."""
    capsys.readouterr()
    command(*words, "--json")
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("options", [(), ("--standardize", "none", "--kernel", "matern52")])
def test_the_last_scores_are_those_of_predict(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """Bit for bit, by the fraction and by the file of the same rows."""
    remaining, held = parts(inputs, 0.2, seed=2)
    model, other = tmp_path / "model.h5", tmp_path / "other.h5"
    found = figures(capsys, *fit(inputs, model, "regression", *SHORT, *options, "--seed", 2, "--validate", 0.2))
    by_file = Inputs(remaining, inputs.params)
    same = figures(capsys, *fit(by_file, other, "regression", *SHORT, *options, "--seed", 2, "--validate", held))
    scored = figures(capsys, "predict", model, held, "-o", tmp_path / "predicted.h5")
    assert found["validation_rows"] == same["validation_rows"] == scored["n"] == 52
    for each in (found, same):
        assert (each["validation_rmse"], -each["validation_nlpd"]) == (scored["rmse"], scored["log_density"])
    assert differences(model, other) == ["checkpoint/options"]  # where the rows were


def test_the_model_is_that_of_the_remaining_rows(inputs: Inputs, tmp_path: Path) -> None:
    model, other = tmp_path / "model.h5", tmp_path / "other.h5"
    command(*fit(inputs, model, "regression", *SHORT, "--validate", 0.3))
    command(*fit(Inputs(parts(inputs, 0.3)[0], inputs.params), other, "regression", *SHORT))
    scores = [f"trace/{key}" for key in KEYS]
    assert differences(model, other) == [*sorted(scores), "checkpoint/options"]


def test_a_fit_without_rows_to_validate_by_has_no_scores(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, metrics = tmp_path / "model.h5", tmp_path / "metrics.jsonl"
    found = figures(capsys, *fit(inputs, model, "regression", *SHORT, "--metrics", metrics))
    assert not {
        key for key in (*found, *read(model), *json.loads(metrics.read_text().splitlines()[9])) if "valid" in key
    }
    assert "validation" not in report(model).text


def test_scores_in_the_trace_the_metrics_the_lines_and_the_report(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, metrics = tmp_path / "model.h5", tmp_path / "metrics.jsonl"
    options = ("--validate", 0.1, "--validate-every", 5, "--metrics", metrics, "--json")
    command(*fit(inputs, model, "regression", *SHORT, *options))
    said = capsys.readouterr().out.splitlines()
    found, trace = json.loads(said[-1]), read(model)
    records = [json.loads(line, parse_constant=pytest.fail) for line in metrics.read_text().splitlines()]
    for key in KEYS:
        series = trace[f"trace/{key}"]
        assert (np.flatnonzero(~np.isnan(series)) + 1).tolist() == [5, 10, 15, 20, 23]
        assert [record[key] for record in records] == [None if np.isnan(x) else x for x in series]
        assert found[key] == series[-1] != series[4]
    rmse, nlpd = (found[key] for key in KEYS)
    assert f"26 validation rows: RMSE {rmse:.6g}, NLPD {nlpd:.6g} nats per row" in said
    page = report(model)
    assert page.drawn["validation"]["iteration"] == [5, 10, 15, 20, 23]
    np.testing.assert_allclose(page.drawn["validation"]["nlpd"][-1], nlpd, rtol=1e-4)
    assert {"validation-nlpd", "validation-rmse"} <= {panel["name"] for panel in page.drawn["panels"]}
    assert "At iteration 23 the RMSE of the rows that it did not learn from was" in page.text


def test_the_live_line_shows_the_last_scores(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere than on a terminal it is shown at the first iteration, and at the end of a fit that has converged."""
    model = tmp_path / "model.h5"
    command(
        *fit(inputs, model, "regression", "--hold", 0, "--tolerance", 0.1, "--validate", 0.1, "--validate-every", 1)
    )
    line, trace = capsys.readouterr().err.splitlines()[-1], read(model)
    rmse, nlpd = (trace[f"trace/{key}"][-1] for key in KEYS)
    assert f"  validation RMSE {rmse:.4g} NLPD {nlpd:.4g}  " in line


def test_patience_ends_the_fit_for_good(inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few rows and many inducing points: what is learned gets better, and predictions of other rows do not."""
    few = write(tmp_path / "few.h5", **{name: rows[:40] for name, rows in read(inputs.data).items()})
    model = tmp_path / "model.h5"
    words = fit(Inputs(few, few), model, "regression", "--hold", 0, "--tolerance", 0, "--gradient-tolerance", 0, m=30)
    words += ["--validate", inputs.data, "--validate-every", 2, "--max-iter", 400]
    found = figures(capsys, *words, "--patience", 3)
    assert found["exit_code"] == 0
    assert found["stopped"] == "the NLPD of the validation rows has not improved for 3 scores"
    nlpd = read(model)["trace/validation_nlpd"][1::2]
    assert len(nlpd) - 1 - nlpd.argmin() == 3 and 2 * len(nlpd) == found["iterations"] < 400
    assert found["validation_nlpd"] == nlpd[-1] > nlpd.min(), "the model is the last one"
    again = figures(capsys, *words, "--patience", 3, "--resume")
    assert (again["stopped"], again["iterations"]) == (found["stopped"], found["iterations"])
    longer = figures(capsys, *words, "--patience", 4, "--resume")
    assert longer["iterations"] > found["iterations"]


def test_columns_are_found_by_name(inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, held = parts(inputs, 0.1)
    with h5py.File(inputs.data, "r+") as file:
        file["X"].attrs["columns"] = ["a", "b"]
    plain = figures(capsys, *fit(inputs, tmp_path / "plain.h5", "regression", *SHORT, "--validate", held))
    with h5py.File(held, "r+") as file:
        X = file["X"][()]
        del file["X"]
        file["X"] = np.column_stack([X[:, 1], 0 * X[:, 0], X[:, 0]])
        file["X"].attrs["columns"] = ["b", "c", "a"]
    command(*fit(inputs, tmp_path / "named.h5", "regression", *SHORT, "--validate", held, "--json"))
    said = capsys.readouterr().out
    assert f"{held}: /X: columns are read by name, as the inputs of {inputs.data}: a, b; ignored: c" in said
    assert json.loads(said.splitlines()[-1])["validation_nlpd"] == plain["validation_nlpd"]


def test_dry_runs_count_the_rows_to_validate_by(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*fit(inputs, tmp_path / "model.h5", "regression"), "--dry-run"]
    alone, by_file, by_fraction = (
        figures(capsys, *words, *more) for more in ((), ("--validate", inputs.data), ("--validate", 0.5))
    )
    assert by_file["memory_per_rank"] - alone["memory_per_rank"] == 8 * N * (Q + D)
    assert by_fraction["memory_per_rank"] == alone["memory_per_rank"]
    assert by_fraction["rows_per_rank"] == N / 2


def test_an_interrupted_checkpoint_has_the_scores_so_far(inputs: Inputs, tmp_path: Path) -> None:
    """What may differ after a resume is the clock; a score that the first run took at its end is gone."""
    whole, resumed = tmp_path / "whole.h5", tmp_path / "resumed.h5"
    command(*fit(inputs, whole, "regression", *SHORT, "--validate", 0.1, "--validate-every", 4))
    words = fit(inputs, resumed, "regression", *SHORT, "--validate", 0.1, "--validate-every", 4)
    command(*words, "--max-iter", 10)
    assert np.isfinite(read(resumed)["trace/validation_nlpd"][-1])
    command(*words, "--resume")
    assert "trace/validation_nlpd" not in RUN
    assert differences(whole, resumed) == []


# refusals

REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "zero": (("--validate", 0), "--validate: is 0: give a fraction of the rows between 0 and 1, or a data file"),
    "one": (("--validate", 1), "--validate: is 1: give a fraction"),
    "nan": (("--validate", "nan"), "--validate: is nan: give a fraction"),
    "negative": (("--validate", -0.5), "--validate: is -0.5: give a fraction"),
    "no such file": (("--validate", "{folder}/none.h5"), "{folder}/none.h5: does not exist: check the path"),
    "no outputs": (("--validate", "{folder}/only_x.h5"), "{folder}/only_x.h5: /Y: there is no such dataset"),
    "other inputs": (
        ("--validate", "{folder}/wide.h5"),
        "{folder}/wide.h5: /X: has 3 columns, not 2 as the inputs of {folder}/data.h5: they must agree",
    ),
    "other outputs": (
        ("--validate", "{folder}/thin.h5"),
        "{folder}/thin.h5: /Y: has 1 columns, not 3 as the outputs of {folder}/data.h5: they must agree",
    ),
    "not a number": (("--validate", "{folder}/nan.h5"), "{folder}/nan.h5: /X: row 4 (counted from 0) holds NaN"),
    "every": (("--validate", 0.1, "--validate-every", 0), "--validate-every: is 0: give a number ≥ 1"),
    "no patience": (("--validate", 0.1, "--patience", 0), "--patience: is 0: give a number ≥ 1"),
    "patience alone": (("--patience", 3), "--patience: needs rows that the fit does not learn from: give --validate"),
    "GPLVM": (
        ("--validate", 0.1, "--model", "gplvm", "--latent", 2),
        "--validate: is for regression, not for gplvm: leave it out",
    ),
    "the output": (("--validate", "{folder}/held.h5", "-o", "{folder}/held.h5"), "{folder}/held.h5: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X, Y = np.ones((9, Q)), np.ones((9, D))
    write(tmp_path / "only_x.h5", X=X)
    write(tmp_path / "held.h5", X=X, Y=Y)
    write(tmp_path / "wide.h5", X=np.ones((9, 3)), Y=Y)
    write(tmp_path / "thin.h5", X=X, Y=np.ones((9, 1)))
    write(tmp_path / "nan.h5", X=np.where(np.arange(9)[:, None] == 4, np.nan, X), Y=Y)
    before = (tmp_path / "held.h5").read_bytes()
    options, line = REFUSED[name]
    words = [*fit(inputs, tmp_path / "model.h5", "regression"), *options]
    assert execute([str(word).format(folder=tmp_path) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"mpigp: {line.format(folder=tmp_path)}")
    assert not (tmp_path / "model.h5").exists() and (tmp_path / "held.h5").read_bytes() == before


OTHER: dict[str, tuple[tuple[object, ...], str]] = {
    "fraction": (("--validate", 0.2), "was made with validate = 0.1, not 0.2"),
    "file": (("--validate", "{folder}/data.h5"), "was made with validate = 0.1, not 'a file'"),
    "none": ((), "was made with validate = 0.1, not None"),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_fit_goes_on_with_the_rows_it_began_with(
    name: str, inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = fit(inputs, tmp_path / "model.h5", "regression", "--max-iter", 3)
    command(*words, "--validate", 0.1)
    options, line = OTHER[name]
    capsys.readouterr()
    assert execute([str(word).format(folder=tmp_path) for word in [*words, "--resume", *options]]) == 2
    assert f"model.h5: /checkpoint: {line}: give the same data and options" in capsys.readouterr().err


def test_a_fit_goes_on_with_the_same_validation_rows_alone(
    inputs: Inputs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a fraction: the rows that are learned from have not changed."""
    _, held = parts(inputs, 0.1)
    for name, path, row in ((held, held, 3), (0.1, inputs.data, HeldOut.of(N, 0.1, 0).numbers[3])):
        words = fit(inputs, tmp_path / "model.h5", "regression", "--max-iter", 3, "--validate", name)
        command(*words)
        with h5py.File(path, "r+") as file:
            file["Y"][row, 1] = 7.0
        capsys.readouterr()
        assert execute([str(word) for word in [*words, "--resume"]]) == 2
        assert "was made with other rows to validate by: give the same data" in capsys.readouterr().err
