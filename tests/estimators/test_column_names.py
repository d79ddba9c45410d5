"""Estimators of data with names of columns: scikit-learn's conventions, and the names in model files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pytest

import mpigp
from mpigp import BayesianGPLVM, SparseGPRegression
from mpigp.cli import execute
from mpigp.errors import InputError
from mpigp.estimators.estimator import names_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAMES, OUTPUTS = ["wind", "heat"], ["up", "down"]
X = np.random.default_rng(0).normal(size=(60, 2)) * [1.0, 9.0]
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]])


def frame(values: np.ndarray, names: list[str]) -> pyarrow.Table:
    """Return a data frame."""
    return pyarrow.table(dict(zip(names, values.T, strict=True)))


def columns(path: Path) -> dict[str, list[str]]:
    with h5py.File(path) as file:
        return {name: item.asstr()[()].tolist() for name, item in file.get("columns", {}).items()}


def test_names_are_saved_and_loaded(tmp_path: Path) -> None:
    inputs = frame(X, NAMES)
    model = SparseGPRegression(5, max_iter=5).fit(inputs, frame(Y, OUTPUTS))
    model.save(tmp_path / "model.h5")
    assert columns(tmp_path / "model.h5") == {"x": NAMES, "y": OUTPUTS}
    for each in (model, mpigp.load(tmp_path / "model.h5")):
        assert each.feature_names_in_.tolist() == NAMES
        assert np.array_equal(each.predict(inputs), model.predict(inputs))
        with pytest.raises(ValueError, match="in the same order"):
            each.predict(frame(X[:, ::-1], NAMES[::-1]))
    model.fit(X, Y)
    model.save(tmp_path / "without.h5")
    assert columns(tmp_path / "without.h5") == {} and not hasattr(model, "feature_names_in_")


def test_a_gplvm_has_names_of_its_data(tmp_path: Path) -> None:
    model = BayesianGPLVM(5, latent=1, max_iter=5).fit(frame(X, NAMES))
    model.save(tmp_path / "model.h5")
    assert columns(tmp_path / "model.h5") == {"y": NAMES}
    assert mpigp.load(tmp_path / "model.h5").feature_names_in_.tolist() == NAMES


def test_datasets_have_names_too(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["turned"], file["Y"] = X, X[:, ::-1], Y
        file["X"].attrs["columns"], file["turned"].attrs["columns"] = NAMES, NAMES[::-1]
        file["Y"].attrs["columns"] = OUTPUTS
        model = SparseGPRegression(5, max_iter=5).fit(file["X"], file["Y"])
        assert model.feature_names_in_.tolist() == NAMES
        with pytest.raises(InputError, match=r"data.h5: /turned: has the columns heat, wind, .* wind, heat"):
            model.predict(file["turned"])
        mean = model.predict(file["X"])
    model.save(tmp_path / "model.h5")
    assert columns(tmp_path / "model.h5") == {"x": NAMES, "y": OUTPUTS}
    words = ["predict", tmp_path / "model.h5", tmp_path / "data.h5", "--x", "turned", "-o", tmp_path / "predicted.h5"]
    assert execute([str(word) for word in words]) == 0
    with h5py.File(tmp_path / "predicted.h5") as file:
        assert np.array_equal(file["mean"][()], mean)


class Series:
    """What is asked of one column of a data frame."""

    def __init__(self, name: object) -> None:
        self.name = name


@pytest.mark.parametrize(
    ("data", "names"),
    [(frame(Y, OUTPUTS), OUTPUTS), (Y, None), ([1.0], None), (Series("up"), ["up"]), (Series(3), None)],
    ids=["frame", "array", "list", "series", "number"],
)
def test_names_of_outputs(data: object, names: list[str] | None) -> None:
    assert names_of(data) == names
