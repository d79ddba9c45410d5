"""The same bits: predictions, embeddings and fits with missing entries, on any number of ranks and threads."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.chunks import chunk_count
from tests.mpi.test_same_bits import contents
from tests.support.calling import write
from tests.support.fits import Case, Made, differences, fit, made
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import several

N, M, Q, D = 277, 7, 2, 3  # a prime: nothing divides it; five chunks
ROWS = (N, 3, 1)  # many, fewer than ranks, and one
HALF, ITERATIONS = 9, 20
LEARN = ["--hold", 5, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 3]
DECOMPOSITIONS = [(3, 1), (5, 1), (1, 2), (2, 2)]  # ranks, threads
MISSING: dict[str, list[object]] = {
    "missing": [],
    "missing-scg": ["--optimizer", "scg", "--placement", "kmeans", "--standardize", "center"],
    "missing-gd": ["--optimizer", "gd", "--placement", "greedy", "--standardize", "none"],
    "missing-random": ["--init", "random"],
}
FIGURES = ("rmse", "log_density", "n", "bound", "iterations", "evaluations")


def masked(inputs: Inputs) -> Inputs:
    """Take one entry in five away, and all of a row."""
    with h5py.File(inputs.data, "r+") as file:
        Y = file["Y"]
        Y[...] = np.where(np.random.default_rng(41).random(Y.shape) < 0.2, np.nan, Y[()])
        Y[100] = np.nan
    return inputs


def missing(folder: Path, output: Path, iterations: int = ITERATIONS, *options: object) -> list[object]:
    """Return the arguments of a fit of the data with missing entries."""
    data = Inputs(folder / "missing" / "data.h5", Path())
    return fit(data, output, "gplvm", *LEARN, "--missing", "--max-iter", iterations, *options, m=M, q=Q)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models of either kind, and data for a fit with missing entries."""
    folder = tmp_path_factory.mktemp("inputs")
    commands = []
    for model, standardize in (("regression", "scale"), ("regression", "none"), ("gplvm", "scale")):
        data = write_inputs(folder / f"{model}-{standardize}", model, N, M, Q, D)
        learn = [*LEARN, "--max-iter", 30, "--standardize", standardize]
        commands.append(fit(data, folder / f"{model}-{standardize}.h5", model, *learn, m=M, q=Q))
    masked(write_inputs(folder / "missing", "gplvm", N, M, Q, D))
    for (outcome,) in several(folder / "told", 1, commands):
        assert outcome.code == 0, outcome.stderr
    return folder


@pytest.fixture(scope="module")
def cases(inputs: Path) -> list[Case]:
    rng = np.random.default_rng(42)
    found = [Case(name, missing(inputs, Path(), ITERATIONS, *options)) for name, options in MISSING.items()]
    for rows in ROWS:
        X, Y = rng.normal(size=(rows, Q)), rng.normal(size=(rows, D))
        S = rng.uniform(0.01, 0.5, size=X.shape)
        certain = write(inputs / f"certain-{rows}.h5", X=X, Y=Y)
        uncertain = write(inputs / f"uncertain-{rows}.h5", X=X, X_variance=S, Y=Y)
        holes = write(inputs / f"holes-{rows}.h5", Y=np.where(rng.random(Y.shape) < 0.3, np.nan, Y))
        for model in ("regression-scale", "regression-none", "gplvm-scale"):
            file = inputs / f"{model}.h5"
            found.append(Case(f"{model}-certain-{rows}", ["predict", file, certain]))
            if model == "regression-none":
                continue  # it differs in the shape of its variances
            found.append(Case(f"{model}-uncertain-{rows}", ["predict", file, uncertain]))
            found.append(Case(f"{model}-samples-{rows}", ["predict", file, certain, "--samples", 4, "--seed", 7]))
        for command in ("embed", "reconstruct"):
            found.append(Case(f"{command}-{rows}", [command, inputs / "gplvm-scale.h5", holes]))
        found.append(Case(f"embed-complete-{rows}", ["embed", inputs / "gplvm-scale.h5", certain]))
    return found


@pytest.fixture(scope="module")
def alone(inputs: Path, cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All cases on one rank, and a checkpoint half way through the fit with missing entries."""
    folder = tmp_path_factory.mktemp("alone")
    half = Case("half", missing(inputs, Path(), HALF))
    return made([*cases, half], folder, 1, 1)


@pytest.fixture(scope="module", params=DECOMPOSITIONS, ids=lambda pair: "{} ranks, {} threads".format(*pair))
def shared(
    request: pytest.FixtureRequest,
    inputs: Path,
    cases: list[Case],
    alone: Made,
    tmp_path_factory: pytest.TempPathFactory,
) -> Made:
    """The same on several, the fit both at a stretch and from the checkpoint of one rank."""
    ranks, threads = request.param
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(alone.folder / "half.h5", folder / "resumed.h5")
    half = Case("half", missing(inputs, Path(), HALF))
    resumed = Case("resumed", missing(inputs, Path(), ITERATIONS, "--resume"))
    return made([*cases, half, resumed], folder, ranks, threads)


WRITTEN = {
    "certain": {"mean", "variance", "y_variance"},
    "uncertain": {"mean", "variance", "y_variance"},
    "samples": {"mean", "variance", "y_variance", "samples"},
    "reconstruct": {"mean", "variance", "y_variance"},
    "embed": {"latent/mu", "latent/S", "bound"},
}


def test_one_rank_writes_all_there_is_and_it_is_numbers(cases: list[Case], alone: Made) -> None:
    """Equal files would prove nothing if they were empty, or all alike or NaN."""
    for case in cases:
        found = contents(alone.folder / f"{case.name}.h5")
        numbers = {name: values for name, values in found.items() if values.dtype.kind == "f"}
        assert all(np.isfinite(values).all() for values in numbers.values()), case.name
        if case.name in MISSING:
            assert len(found["trace/bound"]) == ITERATIONS
            assert found["trace/bound"][-1] > found["trace/bound"][0]
            continue
        (kind,) = [kind for kind in WRITTEN if kind in case.name.split("-")]
        rows = int(case.name.split("-")[-1])
        assert WRITTEN[kind] <= found.keys()
        for name in WRITTEN[kind]:
            assert found[name].shape[name == "samples"] == rows
            assert rows == 1 or len(np.unique(found[name])) > 1
        if "predict" in case.arguments:
            assert {"rmse", "log_density"} <= alone.figures[case.name].keys()


def test_there_are_chunks_for_five_ranks_and_there_are_not() -> None:
    assert [chunk_count(rows) for rows in ROWS] == [5, 1, 1]


def test_files_and_figures_have_the_same_bits(cases: list[Case], alone: Made, shared: Made) -> None:
    names = [*(case.name for case in cases), "half"]
    different = {name: differences(alone.folder / f"{name}.h5", shared.folder / f"{name}.h5") for name in names}
    assert {name: found for name, found in different.items() if found} == {}
    for name in names:
        one, other = alone.figures[name], shared.figures[name]
        assert one.keys() == other.keys()
        assert {key: one[key] for key in FIGURES if key in one} == {key: other[key] for key in FIGURES if key in other}


def test_a_fit_with_missing_entries_resumes_on_another_number_of_ranks(alone: Made, shared: Made) -> None:
    """From one rank's checkpoint, as if it had never been stopped; that of several is the same, as seen above."""
    assert len(contents(alone.folder / "half.h5")["trace/bound"]) == HALF
    assert differences(alone.folder / "missing.h5", shared.folder / "resumed.h5") == []
