"""What a file holds: its kind, its datasets, and a summary that counts what is no number."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.commands import info as command
from mpigp.errors import InputError
from mpigp.files import inspect as info


def run(*words: object) -> dict:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    figures = command.run(parser.parse_args([str(word) for word in words]), None)
    json.dumps(figures, allow_nan=False)
    return figures


def test_data_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "BLOCK", 10)  # two rows at a time
    Y = np.arange(35.0).reshape(7, 5)
    Y[0, 0], Y[6, 4], Y[3, 3] = np.nan, np.inf, np.nan
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["Y"] = Y
        file["Y"].attrs["columns"] = list("abcde")
        file["labels"] = np.arange(7, dtype=np.int32)
        file["names"] = ["one", "two"]
        file["empty"] = np.empty((0, 3))
        file["unknown"] = np.full(3, np.nan)
        file.attrs["source"] = np.bytes_(b"by hand")
    figures = run(path)
    assert figures["kind"] == "data" and figures["rows"] == 7
    assert figures["attributes"] == {"source": "by hand"}
    finite = Y[np.isfinite(Y)]
    expected = {"min": 1.0, "mean": pytest.approx(finite.mean()), "max": 33.0, "nan": 2, "infinite": 1}
    shape = {"shape": [7, 5], "dtype": "float64", "attributes": {"columns": list("abcde")}}
    assert figures["datasets"]["/Y"] == shape | expected
    assert figures["datasets"]["/labels"]["max"] == 6
    assert figures["datasets"]["/unknown"]["mean"] is None and figures["datasets"]["/unknown"]["nan"] == 3
    printed = capsys.readouterr().out
    assert printed.startswith(f"{path}: data, 7 rows\n")
    assert "7 x 5" in printed and "a, b, c, d, e" in printed and "by hand" in printed


def test_without_summary(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = np.zeros((4, 2), np.float32)
    figures = run(tmp_path / "data.h5", "--no-summary")
    assert figures["datasets"]["/X"] == {"shape": [4, 2], "dtype": "float32"}


def test_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        file.attrs.update({"format": "mpigp-model", "model": "gplvm", "n": 100, "jitter": 1e-6})
        file["Z"] = np.zeros((20, 3))
        file["beta"] = 12.5
        file["kernel/variance"] = 2.0
        file["kernel/alpha"] = [1.0, 0.5, 0.25]
        file["latent/mu"] = np.zeros((100, 3))
        file["trace/bound"] = [-10.0, -5.0]
        file["trace/gradient_norm"] = [1.0, np.nan]
    figures = run(path)
    assert figures["kind"] == "model" and figures["rows"] == 100
    assert figures["parameters"] == {
        "model": "gplvm",
        "m": 20,
        "q": 3,
        "beta": 12.5,
        "variance": 2.0,
        "alpha": [1.0, 0.5, 0.25],
        "bound": -5.0,
        "iterations": 2,
    }
    assert figures["datasets"]["/beta"]["value"] == 12.5
    printed = capsys.readouterr().out
    assert "beta = 12.5" in printed and "alpha = 1, 0.5, 0.25" in printed


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["bound", "gradient/Z"], "gradients"),
        (["mean", "variance", "y_variance"], "result"),
        (["latent/mu", "latent/S"], "result"),
        (["Y"], "data"),
        (["something"], "other"),
        ([], "other"),
    ],
)
def test_kinds(names: list[str], kind: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        for name in names:
            file[name] = np.ones((4, 2))
    figures = run(tmp_path / "file.h5")
    assert figures["kind"] == kind
    assert figures["rows"] == (4 if kind in ("result", "data") else None)


def test_an_infinite_bound_is_still_json(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["bound"] = -np.inf
        file.create_group("gradient")
    assert run(tmp_path / "file.h5")["datasets"]["/bound"]["value"] == "-inf"


def test_files_that_cannot_be_described(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "cut.h5", "w") as file:
        file["Y"] = np.ones((1000, 10))
    (tmp_path / "cut.h5").write_bytes((tmp_path / "cut.h5").read_bytes()[:5000])
    (tmp_path / "text.h5").write_text("hello")
    for name, named in (
        ("none.h5", "does not exist"),
        (".", "is not a file"),
        ("text.h5", "is not an HDF5 file"),
        ("cut.h5", "cannot be read"),
    ):
        with pytest.raises(InputError, match=named) as caught:
            run(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)
