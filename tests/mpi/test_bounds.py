"""The tighter bounds through the commands: their fits resume with the same bits, and their files say which it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.calling import write
from tests.support.fits import Case, Made, differences, fit, made
from tests.support.inputs import MODELS, Inputs, write_inputs
from tests.support.launching import run, several
from tests.support.refusals import assert_refused

N, M, Q, D = 277, 7, 2, 3  # a prime: nothing divides it; five chunks
HALF, ITERATIONS = 7, 14
BOUNDS = ("sphere", "rows")
SHARED = ["--hold", 4, "--tolerance", 0, "--gradient-tolerance", 0]


def learn(folder: Path, name: str, bound: str, iterations: int, *options: object) -> list[object]:
    """Return the arguments of a fit; of the GPLVM `missing` some entries are missing."""
    model = "gplvm" if name == "missing" else name
    inputs = write_inputs(folder / name, model, N, M, Q, D)
    if name == "missing":
        with h5py.File(inputs.data, "r+") as file:
            file["Y"][...] = np.where(np.random.default_rng(1).random((N, D)) < 0.2, np.nan, file["Y"][()])
        options = ("--missing", *options)
    return fit(inputs, Path(), model, *SHARED, "--bound", bound, "--max-iter", iterations, *options, m=M, q=Q)


KINDS = [(name, bound) for name in (*MODELS, "missing") for bound in BOUNDS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    cases = [Case(f"{name}-{bound}", learn(folder, name, bound, ITERATIONS)) for name, bound in KINDS]
    cases += [Case(f"{name}-{bound}-half", learn(folder, name, bound, HALF)) for name, bound in KINDS]
    return made(cases, tmp_path_factory.mktemp("alone"), 1, 1)


@pytest.mark.parametrize(("ranks", "threads"), [(2, 2), (3, 1)])
def test_a_resumed_fit_has_the_bits_of_an_uninterrupted_one(
    ranks: int, threads: int, folder: Path, alone: Made, tmp_path: Path
) -> None:
    cases = []
    for name, bound in KINDS:
        shutil.copy(alone.folder / f"{name}-{bound}-half.h5", tmp_path / f"{name}-{bound}.h5")
        cases.append(Case(f"{name}-{bound}", learn(folder, name, bound, ITERATIONS, "--resume")))
    made(cases, tmp_path, ranks, threads)
    for case in cases:
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name


def test_streamed_rows_have_the_same_bits(folder: Path, alone: Made, tmp_path: Path) -> None:
    cases = [Case(f"{name}-{bound}", learn(folder, name, bound, ITERATIONS)) for name in MODELS for bound in BOUNDS]
    streamed = [Case(case.name, [*case.arguments, "--rows-in-memory", "stream"]) for case in cases]
    made(streamed, tmp_path, 2, 1)
    for case in cases:
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name


def test_files_and_figures_say_which_bound_it_is(alone: Made) -> None:
    for name, bound in KINDS:
        assert alone.figures[f"{name}-{bound}"]["bound_name"] == bound
        with h5py.File(alone.folder / f"{name}-{bound}.h5") as file:
            assert file.attrs["bound"] == bound


def test_evaluate_takes_the_bound_of_the_file_or_another(folder: Path, alone: Made, tmp_path: Path) -> None:
    model, data = alone.folder / "regression-rows.h5", folder / "regression" / "data.h5"
    commands = [["evaluate", data, "--params", model, "--json"]]
    commands += [[*commands[0], "--bound", bound] for bound in ("titsias", "sphere", "rows")]
    own, titsias, sphere, rows = (outcome.figures for (outcome,) in several(tmp_path / "told", 1, commands))
    assert own["bound"] == rows["bound"] == alone.figures["regression-rows"]["bound"]
    assert titsias["bound"] < sphere["bound"] < rows["bound"]
    assert [each["bound_name"] for each in (own, titsias, sphere, rows)] == ["rows", "titsias", "sphere", "rows"]


def test_a_checkpoint_of_another_bound_is_refused(folder: Path, alone: Made, tmp_path: Path) -> None:
    model = shutil.copy(alone.folder / "regression-sphere-half.h5", tmp_path / "model.h5")
    outcome = run(1, *learn(folder, "regression", "rows", ITERATIONS, "--resume"), "-o", model)
    assert_refused(outcome, "/checkpoint: was made with bound = 'sphere', not 'rows'")


def test_a_checkpoint_of_before_there_was_a_choice_is_one_of_titsias(folder: Path, tmp_path: Path) -> None:
    def fitted(name: str, iterations: int, *options: object) -> Path:
        path = tmp_path / f"{name}.h5"
        outcome = run(1, *learn(folder, "regression", "titsias", iterations, *options), "-o", path)
        assert outcome.code == 0, outcome.stderr
        return path

    whole, half = fitted("whole", ITERATIONS), fitted("half", HALF)
    with h5py.File(half, "r+") as file:
        del file.attrs["bound"]
        options = json.loads(file["checkpoint/options"].asstr()[()])
        del options["bound"], file["checkpoint/options"]
        file["checkpoint/options"] = json.dumps(options)
    assert differences(fitted("half", ITERATIONS, "--resume"), whole) == []


def test_a_bound_that_there_is_not_is_refused(folder: Path, alone: Made, tmp_path: Path) -> None:
    other = shutil.copy(alone.folder / "regression-rows.h5", tmp_path / "other.h5")
    with h5py.File(other, "r+") as file:
        file.attrs["bound"] = "tightest"
    outcome = run(1, "evaluate", folder / "regression" / "data.h5", "--params", other)
    assert_refused(outcome, "other.h5: attribute bound: is 'tightest': set it to one of titsias, sphere, rows")
    data = write(tmp_path / "data.h5", X=np.ones((3, 1)), Y=np.ones((3, 1)))
    outcome = run(1, *fit(Inputs(data, data), tmp_path / "m.h5", "regression", "--bound", "tightest"))
    assert outcome.code == 2 and "titsias" in outcome.stderr
