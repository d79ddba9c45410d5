"""The same bits: a model learnt on any number of ranks and threads is one and the same file, but for the clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpigp.chunks import chunk_count
from tests.mpi.test_same_bits import contents
from tests.support.fits import OPTIMIZERS, Case, Made, differences, fit, made
from tests.support.inputs import MODELS, write_inputs

N, M, Q, D = 277, 7, 2, 3  # a prime: nothing divides it; five chunks
ITERATIONS, HOLD = 30, 10
DECOMPOSITIONS = [(2, 1), (3, 1), (5, 1), (2, 2)]  # ranks, threads


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("inputs")
    shared = ["--max-iter", ITERATIONS, "--hold", HOLD, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 3]
    found = []
    for model in MODELS:
        inputs = write_inputs(folder / model, model, N, M, Q, D)
        options = {optimizer: ["--optimizer", optimizer] for optimizer in OPTIMIZERS}
        options |= {placement: ["--placement", placement] for placement in ("greedy", "kmeans")}
        options |= {bound: ["--bound", bound] for bound in ("sphere", "rows")}
        options |= {"center": ["--standardize", "center", "--placement", "random"]}
        if model == "gplvm":
            options |= {"random": ["--init", "random"], "mu-fixed": ["--fixed", "mu"]}
        found += [
            Case(f"{model}-{name}", fit(inputs, Path(), model, *shared, *more, m=M, q=Q))
            for name, more in options.items()
        ]
    return found


@pytest.fixture(scope="module")
def alone(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("alone")
    return made(cases, folder, 1, 1)


def test_the_fits_went_somewhere(cases: list[Case], alone: Made) -> None:
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


def test_the_options_made_a_difference(cases: list[Case], alone: Made) -> None:
    for model in MODELS:
        bounds = [alone.figures[case.name]["bound"] for case in cases if case.name.startswith(model)]
        assert len(set(bounds)) == len(bounds)


def test_there_are_chunks_for_five_ranks() -> None:
    assert chunk_count(N) == 5


@pytest.mark.parametrize(("ranks", "threads"), DECOMPOSITIONS)
def test_model_files_have_the_same_bits(
    ranks: int, threads: int, cases: list[Case], alone: Made, tmp_path: Path
) -> None:
    figures = made(cases, tmp_path, ranks, threads).figures
    different = {
        case.name: differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") for case in cases
    }
    assert {name: names for name, names in different.items() if names} == {}
    for case in cases:
        one, other = alone.figures[case.name], figures[case.name]
        assert other["ranks"] == ranks
        for name in ("bound", "iterations", "evaluations", "beta", "variance", "alpha", "stopped"):
            assert one[name] == other[name]
