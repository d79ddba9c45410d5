"""A number of inducing points that is left to the program: the same one, and the same bits, on any number of ranks."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.fits import Case, Made, differences, made
from tests.support.launching import several

DECOMPOSITIONS = [(2, 1), (3, 1), (5, 1), (2, 2)]  # ranks, threads
SHORT = ["--model", "regression", "--inducing", "auto:0.02", "--max-inducing", 100, "--max-iter", 12, "--seed", 2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("data") / "data.h5", np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(700, 1))
    with h5py.File(path, "w") as file:
        file["X"], file["Y"] = X, np.sin(50 * X) + 0.2 * rng.normal(size=X.shape)
    return path


@pytest.fixture(scope="module")
def cases(data: Path) -> list[Case]:
    shared = ["fit", data, *SHORT, "--overwrite"]
    return [Case("plain", shared), Case("streamed", [*shared, "--rows-in-memory", "stream"])]


@pytest.fixture(scope="module")
def alone(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(cases, tmp_path_factory.mktemp("alone"), 1, 1)


def test_m_has_grown(alone: Made) -> None:
    for figures in alone.figures.values():
        assert 32 < figures["inducing"] <= 100
        assert list(figures["gaps"])[-1] == str(figures["inducing"])
        assert figures["upper_bound"] > figures["bound"]


def test_streamed_rows_have_the_bits_of_rows_in_memory(alone: Made) -> None:
    assert differences(alone.folder / "plain.h5", alone.folder / "streamed.h5") == []


@pytest.mark.parametrize(("ranks", "threads"), DECOMPOSITIONS)
def test_models_have_the_same_bits(ranks: int, threads: int, cases: list[Case], alone: Made, tmp_path: Path) -> None:
    made(cases, tmp_path, ranks, threads)
    for case in cases:
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name


def test_a_resumed_fit_ends_as_an_uninterrupted_one(data: Path, alone: Made, tmp_path: Path) -> None:
    model = tmp_path / "model.h5"
    first = ["fit", data, "-o", model, *SHORT, "--max-iter", 5]
    ((outcome,),) = several(tmp_path / "first", 1, [first], 1)
    assert outcome.code == 0
    for outcome in several(tmp_path / "second", 2, [["fit", data, "-o", model, *SHORT, "--resume"]], 1)[0]:
        assert outcome.code == 0, outcome
    assert differences(alone.folder / "plain.h5", model) == []
