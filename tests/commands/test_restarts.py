"""Several starts, and a look ahead: options of `fit` around the fit itself."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from mpigp.commands.fit import interval
from mpigp.fit.setup import TRIAL
from tests.support.inputs import Inputs, write_inputs

ITERATIONS = 5 + TRIAL


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "gplvm", 200, 6, 2, 3)


def fit(inputs: Inputs, output: Path, *options: str) -> int:
    data = str(inputs.data)
    learn = ["--model", "gplvm", "--latent", "2", "--inducing", "6", "--max-iter", str(ITERATIONS), "--hold", "5"]
    return execute(["fit", data, "-o", str(output), *learn, *options])


def bound(path: Path) -> float:
    with h5py.File(path) as file:
        return float(file["trace/bound"][-1])


def test_restarts_go_on_from_the_best_start(inputs: Inputs, tmp_path: Path) -> None:
    alone = []
    for seed in range(4):
        assert fit(inputs, tmp_path / f"{seed}.h5", "--init", "random", "--seed", str(seed)) == 0
        alone.append(bound(tmp_path / f"{seed}.h5"))
    assert np.ptp(alone) > 1e-3  # the starts do differ
    assert fit(inputs, tmp_path / "best.h5", "--init", "random", "--restarts", "4") == 0
    assert bound(tmp_path / "best.h5") == max(alone)  # they are compared after as many iterations as these fits make


def test_a_dry_run_tells_and_writes_nothing(inputs: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    output = tmp_path / "model.h5"
    assert fit(inputs, output, "--dry-run", "--json") == 0
    figures = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert figures["rows_per_rank"] == 200
    assert figures["memory_per_rank"] > 200 * 8 * 3
    assert figures["seconds_per_iteration"] > 0
    assert figures["seconds"] == pytest.approx(ITERATIONS * figures["seconds_per_iteration"])
    assert not output.exists()


def test_intervals_are_iterations_or_minutes() -> None:
    assert interval("50") == (50, float("inf"))
    assert interval("1.5m") == (0, 90.0)
    for text in ("-1", "m", "0m", "x"):
        with pytest.raises(Exception, match="iterations"):
            interval(text)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("regression"), "regression", 1009, 6, 2, 3)


def said(capfd: pytest.CaptureFixture, inputs: Inputs, output: Path, *options: str) -> tuple[list[str], dict]:
    """Return the lines of a short fit that tell of its start, and the figures of its start."""
    learn = ["--model", "regression", "--inducing", "6", "--max-iter", "3", "--overwrite", "--json"]
    capfd.readouterr()
    assert execute(["fit", str(inputs.data), "-o", str(output), *learn, *options]) == 0
    lines = capfd.readouterr().out.splitlines()
    return [line for line in lines if line.startswith("start: ")], json.loads(lines[-1])["start"]


def test_a_fit_tells_which_starts_it_compared(regression: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (line,), figures = said(capfd, regression, tmp_path / "model.h5")
    assert list(figures["bounds"]) == ["random", "kmeans", "greedy"]
    assert figures["best"] in figures["bounds"]
    assert figures["rows"] == 1009
    compared = ", ".join(f"{name} {value:.1f}" for name, value in figures["bounds"].items())
    assert line == f"start: {figures['best']}, of {compared} nats on 1009 rows"


@pytest.mark.parametrize(
    "options", ["--start single", "--hold 2", "--restarts 2", "--placement random"], ids=lambda text: text[2:]
)
def test_a_fit_that_compared_nothing_tells_nothing(
    options: str, regression: Inputs, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    lines, figures = said(capfd, regression, tmp_path / "model.h5", *options.split())
    assert lines == []
    assert figures["bounds"] == {}
