"""The report: what cannot be shown is refused with one line, and no output is harmed."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import main
from mpigp.commands import report as command
from tests.support.inputs import change, replace
from tests.support.reports import write_gplvm, write_metrics, write_regression


@pytest.fixture(scope="module")
def gplvm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_gplvm(tmp_path_factory.mktemp("gplvm"), 50)


def refused(capfd: pytest.CaptureFixture, output: Path, *words: object) -> str:
    """Run the command, which must end with code 2 and one line, and harm nothing; return the line."""
    before = output.read_bytes() if output.is_file() else None
    capfd.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in ("report", *words, "-o", output)])
    out, err = capfd.readouterr()
    assert end.value.code == 2 and out == "" and err.count("\n") == 1 and err.startswith("mpigp: ")
    assert (output.read_bytes() if output.is_file() else None) == before
    return err


def test_refused_models(gplvm: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    output = tmp_path / "report.html"
    output.write_text("as it was")
    (tmp_path / "text").write_text("hello")
    for path, said in [(tmp_path / "none", "does not exist"), (tmp_path / "text", "not an HDF5 file"),
                       (gplvm[1], "is not a model file")]:  # fmt: skip
        line = refused(capfd, output, path)
        assert said in line and str(path) in line


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("latent/S", np.zeros((50, 3)), "/latent/S"),
        ("latent/mu", np.zeros((49, 3)), "/latent/mu"),
        ("latent/mu", None, "/latent/mu"),
        ("trace/bound", np.zeros(3), "/trace"),
        ("trace/seconds", None, "/trace"),
        ("timing/rows", np.ones(3), "/timing"),
        ("kernel/alpha", np.ones(2), "/kernel/alpha"),
    ],
)
def test_refused_parts_of_models(
    name: str, values: np.ndarray | None, said: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    model, _ = write_gplvm(tmp_path, 50)
    replace(model, name, values)
    assert said in refused(capfd, tmp_path / "report.html", model)


@pytest.mark.parametrize(("name", "value"), [("n", "many"), ("versions", "{"), ("machine", "3"), ("model", "gpt")])
def test_refused_attributes(name: str, value: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    model, _ = write_gplvm(tmp_path, 50)
    with h5py.File(model, "r+") as file:
        file.attrs[name] = value
    assert f"attribute {name}" in refused(capfd, tmp_path / "report.html", model)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        (np.arange(49), [], "49 labels"),
        (np.ones((50, 3)), [], "one-hot"),
        (np.arange(50) + 0.5, [], "not whole"),
        (np.array(["a"] * 50, object), [], "labels are whole numbers"),
        (np.ones((50, 1, 1)), [], "labels are whole numbers"),
        (np.arange(50), ["--labels", "nothing"], "/nothing"),
    ],
)
def test_refused_labels(
    values: np.ndarray, options: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    model, data = write_gplvm(tmp_path, 50)
    replace(data, "labels", values)
    line = refused(capfd, tmp_path / "report.html", model, "--data", data, *options)
    assert said in line and str(data) in line


def test_refused_data(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    output = tmp_path / "report.html"
    model, _ = write_gplvm(tmp_path / "a", 50)
    _, longer = write_gplvm(tmp_path / "b", 60)
    _, wider = write_gplvm(tmp_path / "c", 50, d=3)
    regression, data = write_regression(tmp_path / "d", 50, 2)
    other, more = write_regression(tmp_path / "e", 50, 3)
    for words, said in [
        ((model, "--data", longer), "60 rows"),
        ((model, "--data", wider), "/Y: has 3 columns"),
        ((model, "--data", tmp_path / "none"), "does not exist"),
        ((model, "--data", longer, "--y", "Z"), "/Z"),
        ((model, "--data", longer, "--x", "X"), "--x"),
        ((regression, "--data", more), "/X: has 3 columns"),
        ((other, "--data", data), "/X: has 2 columns"),
        ((regression, "--data", longer), "/X"),
        ((regression, "--data", data, "--labels", "Y"), "--labels"),
        ((model, "--labels", "labels"), "--labels"),
        ((regression, "--x", "X"), "--x"),
        ((regression, "--y", "Y"), "--y"),
    ]:
        assert said in refused(capfd, output, *words)
    change(data, "X", (7, 1), math.nan)
    assert "row 7" in refused(capfd, output, regression, "--data", data)


def test_refused_metrics(gplvm: tuple[Path, Path], tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    output, path = tmp_path / "report.html", tmp_path / "metrics.jsonl"
    assert "metrics.jsonl" in refused(capfd, output, gplvm[0], "--metrics", path)
    for text, said in [("", "no iteration"), ("{", "line 1"), ("[1]\n", "line 1"), ('{"iteration": 1}\n', "line 1"),
                       ('{"iteration": 1, "bound": 3.0}\n', "not of the run")]:  # fmt: skip
        path.write_text(text)
        line = refused(capfd, output, gplvm[0], "--metrics", path)
        assert said in line and str(path) in line


def test_refused_outputs(tmp_path: Path, capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = write_gplvm(tmp_path, 50)
    metrics = tmp_path / "metrics.jsonl"
    write_metrics(metrics, model)
    words = (model, "--data", data, "--metrics", metrics)
    for output, said in [(tmp_path / "none" / "report.html", "does not exist"), (tmp_path, "is a folder"),
                         (model, "is an input"), (data, "is an input"), (metrics, "is an input")]:  # fmt: skip
        assert said in refused(capfd, output, *words)
    output = tmp_path / "report.html"
    assert "is no folder" in refused(capfd, output, *words, "--png", tmp_path / "none")
    assert "is no folder" in refused(capfd, output, *words, "--png", model)
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert "pip install" in refused(capfd, output, *words, "--png", tmp_path)
    assert not output.exists()
