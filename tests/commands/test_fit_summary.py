"""What a fit says at its end: columns and weights that tell nothing, what it explained, and whether m is enough."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from tests.commands.test_fit import D, M, N, Q, call
from tests.support.inputs import write_inputs

REGRESSION = ("--model", "regression", "--inducing", M)


def changed(folder: Path, name: str, value: float) -> Path:
    """Return a data file of a regression in which the second column of a dataset is constant."""
    data = write_inputs(folder, "regression", N, M, Q, D).data
    with h5py.File(data, "r+") as file:
        file[name][:, 1] = value
    return data


def test_constant_columns_are_said(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    _, said = call(capfd, changed(tmp_path, "Y", 3.5), "-o", tmp_path / "model.h5", *REGRESSION, "--max-iter", 2)
    assert "constant columns of Y: 1" in said


def test_a_fit_that_explains_nothing_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["Y"] = rng.normal(size=(400, 2)), rng.normal(size=(400, 2))
    figures, said = call(capfd, tmp_path / "data.h5", "-o", tmp_path / "model.h5", *REGRESSION, "--max-iter", 200)
    assert "warning: the fit explained next to nothing" in said
    assert figures["explained"] < 0.02


def test_a_linear_function_is_not_nothing(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """The signal-to-noise ratio of a nearly linear function says nothing: its variance is that far outside the data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["Y"] = X, X[:, :1] + 0.8 * rng.normal(size=(300, 1))
    figures, said = call(capfd, tmp_path / "data.h5", "-o", tmp_path / "model.h5", *REGRESSION)
    assert "warning" not in said
    assert 0.5 < figures["explained"] < 0.7


def test_weights_that_never_moved_are_said(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    data = changed(tmp_path, "X", 2.0)
    figures, said = call(capfd, data, "-o", tmp_path / "model.h5", *REGRESSION, "--max-iter", 20)
    lines = [line for line in said.splitlines() if line.startswith("alpha")]
    assert ["never moved" in line for line in lines] == [q == 1 for q in range(Q)]
    assert figures["unmoved"] == [1]
    with h5py.File(tmp_path / "model.h5") as model:
        assert model.attrs["unmoved"].tolist() == [1]


def test_the_certificate_is_said_and_stored(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    inputs = write_inputs(tmp_path, "regression", N, M, Q, D)
    figures, said = call(capfd, inputs.data, "-o", tmp_path / "model.h5", *REGRESSION, "--max-iter", 20)
    assert "evidence: at most " in said
    assert figures["gap"] == (figures["upper_bound"] - figures["bound"]) / (N * D) > 0
    with h5py.File(tmp_path / "model.h5") as model:
        assert model.attrs["upper_bound"] == figures["upper_bound"]


@pytest.mark.parametrize("text", ["auto:", "auto:x", "auto:0", "auto:-1", "many", "auto:nan"])
def test_a_number_of_inducing_points_that_is_none_is_refused(
    text: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    inputs = write_inputs(tmp_path, "regression", N, M, Q, D)
    code = execute(
        ["fit", str(inputs.data), "-o", str(tmp_path / "model.h5"), "--model", "regression", "--inducing", text]
    )
    assert code == 2
    assert "--inducing" in capfd.readouterr().err
