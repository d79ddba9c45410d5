"""The same bits: a model learnt on any number of ranks and threads is one and the same file, but for the clock."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from fits import OPTIMIZERS, differences, fit
from inputs import MODELS, write_inputs
from launching import several
from test_same_bits import contents

from mpigp.chunks import chunk_count

N, M, Q, D = 277, 7, 2, 3  # a prime: nothing divides it; five chunks
ITERATIONS, HOLD = 50, 10
DECOMPOSITIONS = [(2, 1), (3, 1), (5, 1), (2, 2)]  # ranks, threads


class Case(NamedTuple):
    """One call of `fit`, under any number of ranks."""

    name: str
    arguments: list[object]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("inputs")
    shared = ["--max-iter", ITERATIONS, "--hold", HOLD, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 3]
    found = []
    for model in MODELS:
        inputs = write_inputs(folder / model, model, N, M, Q, D)
        options = {optimizer: ["--optimizer", optimizer] for optimizer in OPTIMIZERS}
        options |= {placement: ["--placement", placement] for placement in ("greedy", "kmeans")}
        options |= {"center": ["--standardize", "center", "--placement", "random"]}
        if model == "gplvm":
            options |= {"random": ["--init", "random"], "mu-fixed": ["--fixed", "mu"]}
        found += [
            Case(f"{model}-{name}", fit(inputs, Path(), model, *shared, *more, m=M, q=Q))
            for name, more in options.items()
        ]
    return found


def fitted(cases: list[Case], folder: Path, ranks: int, threads: int) -> dict[str, dict]:
    """Fit all cases in one start of plain mpiexec, to FOLDER/NAME.h5; return the figures."""
    commands = [[*case.arguments, "-o", folder / f"{case.name}.h5", "--json", "--threads", threads] for case in cases]
    figures = {}
    for case, outcomes in zip(cases, several(folder / "told", ranks, commands, threads), strict=True):
        assert [outcome.code for outcome in outcomes] == [0] * ranks, (case.name, outcomes)
        assert [outcome.stdout + outcome.stderr for outcome in outcomes[1:]] == [""] * (ranks - 1)
        figures[case.name] = outcomes[0].figures
    return figures


class Alone(NamedTuple):
    """What one rank wrote and said."""

    folder: Path
    figures: dict[str, dict]


@pytest.fixture(scope="module")
def alone(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Alone:
    folder = tmp_path_factory.mktemp("alone")
    return Alone(folder, fitted(cases, folder, 1, 1))


def test_the_fits_went_somewhere(cases: list[Case], alone: Alone) -> None:
    """Equal files would prove nothing if they were empty, or had stayed where they began."""
    for case in cases:
        found = contents(alone.folder / f"{case.name}.h5")
        assert len(found["trace/bound"]) == alone.figures[case.name]["iterations"] == ITERATIONS
        assert found["trace/bound"][-1] > found["trace/bound"][HOLD] > found["trace/bound"][0]
        assert not found["checkpoint/numbers/held"]
        numbers = [values for values in found.values() if values.dtype.kind == "f"]
        assert all(np.isfinite(values).all() for values in numbers)
        assert {"Z", "beta", "kernel/variance", "kernel/alpha"} <= found.keys()
        assert ("latent/S" in found) == case.name.startswith("gplvm")


def test_the_options_made_a_difference(cases: list[Case], alone: Alone) -> None:
    for model in MODELS:
        bounds = [alone.figures[case.name]["bound"] for case in cases if case.name.startswith(model)]
        assert len(set(bounds)) == len(bounds)


def test_there_are_chunks_for_five_ranks() -> None:
    assert chunk_count(N) == 5


@pytest.mark.parametrize(("ranks", "threads"), DECOMPOSITIONS)
def test_model_files_have_the_same_bits(
    ranks: int, threads: int, cases: list[Case], alone: Alone, tmp_path: Path
) -> None:
    figures = fitted(cases, tmp_path, ranks, threads)
    different = {
        case.name: differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") for case in cases
    }
    assert {name: names for name, names in different.items() if names} == {}
    for case in cases:
        one, other = alone.figures[case.name], figures[case.name]
        assert other["ranks"] == ranks
        for name in ("bound", "iterations", "evaluations", "beta", "variance", "alpha", "stopped"):
            assert one[name] == other[name]
