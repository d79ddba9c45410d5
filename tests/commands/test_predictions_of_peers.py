"""`mpigp predict` says what GPy and GPflow say from the same parameters (recorded by benchmarks.record)."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import MODELS
from tests.support.modelfiles import write_model
from tests.support.problems import Problem

CASES = {
    case["model"]: case for case in json.loads((Path(__file__).parents[1] / "recorded/predictions.json").read_text())
}
RECORDED = [
    pytest.param(case, points, peer, id=f"{model}-{points}-{peer}-{case['versions'][peer]}")
    for model, case in CASES.items()
    for points, peers in case["predictions"].items()
    for peer in peers
]


@pytest.mark.parametrize(("case", "points", "peer"), RECORDED)
def test_the_same_mean_and_variance(case: dict, points: str, peer: str, tmp_path: Path) -> None:
    arrays = {name: np.array(values) for name, values in case["arrays"].items()}
    beta = float(arrays["beta"])
    parameters = Globals(arrays["Z"], float(arrays["variance"]), arrays["alpha"], beta)
    inputs = arrays["X"] if case["model"] == "regression" else arrays["mu"]
    problem = Problem(inputs, arrays.get("S", np.zeros(0)), arrays["Y"], parameters)
    model = write_model(tmp_path / "model.h5", MODELS[case["model"]], problem, case["jitter"])
    new, output = tmp_path / "new.h5", tmp_path / "predictions.h5"
    with h5py.File(new, "w") as file:
        file["X"] = arrays["X_new"]
        if points == "uncertain":
            file["X_variance"] = arrays["X_new_variance"]

    assert execute(["predict", str(model), str(new), "-o", str(output)]) == 0

    theirs = {name: np.array(values) for name, values in case["predictions"][points][peer].items()}
    with h5py.File(output) as file:
        mean, variance, y_variance = file["mean"][()], file["variance"][()], file["y_variance"][()]
    rows = len(arrays["X_new"])
    tolerance = {"rtol": 1e-6}  # the two peers differ by 2e-9 of the smallest variances: K_mm's condition number
    np.testing.assert_allclose(mean, theirs["mean"], **tolerance)
    for ours, their in ((variance, theirs["variance"]), (y_variance, theirs["variance"] + 1 / beta)):
        np.testing.assert_allclose(*np.broadcast_arrays(ours.reshape(rows, -1), their), **tolerance)
