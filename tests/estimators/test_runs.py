"""Estimators: checkpoints, resuming, metrics and callbacks of `fit`."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import mpigp
from mpigp import BayesianGPLVM, SparseGPRegression
from mpigp.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X = np.linspace(0, 6, 120)[:, None]
y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)


class Killed(Exception):
    """Stands for whatever ends a script in the middle of a fit."""


def stop_at(iteration: int) -> Any:
    def callback(fit: Any) -> None:
        if fit.iteration == iteration:
            raise Killed

    return callback


def test_a_callback_sees_every_iteration_and_may_stop_the_fit(tmp_path: Path) -> None:
    seen = []

    def callback(fit: Any) -> bool:
        seen.append((fit.iteration, fit.bound))
        return fit.iteration == 7

    model = SparseGPRegression(6, callback=callback, checkpoint=tmp_path / "model.h5").fit(X, y)
    assert seen == list(enumerate(model.trace_.bound, start=1))
    assert len(seen) == 7
    with h5py.File(tmp_path / "model.h5") as file:
        assert file.attrs["stopped"] == "the callback asked for it"


@pytest.mark.parametrize("estimator", [SparseGPRegression, BayesianGPLVM])
def test_a_fit_resumes_to_the_same_bits(estimator: Any, tmp_path: Path) -> None:
    path, data = tmp_path / "model.h5", (X, y) if estimator is SparseGPRegression else (np.hstack([X, y[:, None]]),)
    given = {"inducing": 6, "max_iter": 40, "hold": 5}
    whole = estimator(**given).fit(*data)
    interrupted = estimator(**given, checkpoint=path, checkpoint_every=4, resume=True, callback=stop_at(18))
    with pytest.raises(Killed):
        interrupted.fit(*data)
    assert len(mpigp.load(path).trace_) == 16
    resumed = interrupted.set_params(callback=None).fit(*data)
    assert resumed.trace_.bound == whole.trace_.bound
    assert resumed.Z_.tobytes() == whole.Z_.tobytes()
    assert mpigp.load(path).Z_.tobytes() == whole.Z_.tobytes()


def test_without_resume_an_older_model_is_replaced_only_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    model = SparseGPRegression(6, max_iter=9, checkpoint=path).fit(X, y)
    before = path.read_bytes()
    model.set_params(max_iter=5)
    with pytest.raises(InputError, match="there is a model already: choose another path, `overwrite` it"):
        model.fit(X, y)
    assert path.read_bytes() == before
    model.set_params(overwrite=True).fit(X, y)
    assert model.n_iter_ == len(mpigp.load(path).trace_) == 5


def test_a_checkpoint_does_not_replace_the_data(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"], file["y"] = X, y
    with h5py.File(tmp_path / "data.h5") as file, pytest.raises(InputError, match="is an input"):
        SparseGPRegression(6, max_iter=2, checkpoint=tmp_path / "data.h5").fit(file["X"], file["y"])
    with h5py.File(tmp_path / "data.h5") as file:
        assert set(file) == {"X", "y"}


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    model = SparseGPRegression(6, max_iter=5, checkpoint=tmp_path / "model.h5", resume=True).fit(X, y)
    with pytest.raises(InputError, match="was made with other data"):
        model.fit(X, y + 1)


def test_metrics_have_one_record_per_iteration(tmp_path: Path) -> None:
    model = SparseGPRegression(6, max_iter=12, metrics=tmp_path / "metrics.jsonl").fit(X, y)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["bound"] for record in records] == model.trace_.bound
    assert [record["iteration"] for record in records] == list(range(1, 13))


def test_parameters_of_a_run_are_not_saved_with_the_model(tmp_path: Path) -> None:
    model = SparseGPRegression(6, max_iter=3, checkpoint=tmp_path / "a.h5", callback=print).fit(X, y)
    model.save(tmp_path / "b.h5")
    assert mpigp.load(tmp_path / "b.h5").get_params()["checkpoint"] is None
    assert pickle.loads(pickle.dumps(model)).predict(X).tobytes() == model.predict(X).tobytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"resume": True}, "resume=True needs a checkpoint"),
        ({"checkpoint_every": "ten"}, "checkpoint_every is ten: give iterations"),
        ({"checkpoint": "no/such/folder/model.h5"}, "the folder no/such/folder does not exist"),
        ({"metrics": "no/such/folder/m.jsonl"}, "the folder no/such/folder does not exist"),
    ],
)
def test_bad_values_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SparseGPRegression(6, **given).fit(X, y)
