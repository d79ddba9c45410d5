"""The same bits: what `evaluate` writes and says does not depend on the number of ranks or threads."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest

from mpigp.chunks import chunk_count
from tests.support.inputs import MODELS, Inputs, change, write_inputs
from tests.support.launching import run, several

SIZES = {  # n: (m, q, d)
    1: (1, 1, 1),
    3: (2, 2, 1),  # fewer rows than ranks
    130: (5, 1, 2),  # three chunks: of five ranks some in the middle are empty
    1009: (13, 3, 2),  # a prime: nothing divides it
    10007: (9, 2, 3),  # a prime, and chunks of another length
}
DECOMPOSITIONS = [(2, 1), (3, 1), (5, 1), (8, 1), (1, 2), (2, 2)]  # ranks, threads


class Case(NamedTuple):
    """One call of `evaluate`, under any number of ranks."""

    name: str
    inputs: Inputs
    options: list[str]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("inputs")
    cases = []
    for model in MODELS:
        for n, (m, q, d) in SIZES.items():
            # Ranks' borders cut through the chunks of the file, and numbers on disk are of either kind.
            layout = {"dtype": "f4", "chunks": (100, 1), "compression": "gzip"} if n == 10007 else {}
            cases.append(Case(f"{model}-{n}", write_inputs(folder / f"{model}-{n}", model, n, m, q, d, **layout), []))
        cases += [Case(f"{model}-{bound}", cases[-1].inputs, ["--bound", bound]) for bound in ("sphere", "rows")]
        twice = write_inputs(folder / f"{model}-jitter", model, 300, 6, 2, 1)
        with h5py.File(twice.params, "r+") as file:
            file["Z"][1] = file["Z"][0]
        cases.append(Case(f"{model}-growing-jitter", twice, ["--jitter", "1e-18"]))
        flat = write_inputs(folder / f"{model}-flat", model, 300, 4, 2, 1)  # in the second dimension nothing differs
        change(flat.params, "Z", (slice(None), 1), 0.5)
        change(*((flat.data, "X") if model == "regression" else (flat.params, "latent/mu")), (slice(None), 1), 0.5)
        cases.append(Case(f"{model}-flat", flat, []))
    return cases


class Evaluated(NamedTuple):
    """What the calls wrote, by the name of the case, and the figures they printed."""

    folder: Path
    figures: dict[str, dict]


def evaluate(cases: list[Case], folder: Path, ranks: int, threads: int) -> Evaluated:
    """Evaluate all cases in one start of plain mpiexec."""
    shared = ["--json", "--threads", threads]
    commands = [
        ["evaluate", *case.inputs.arguments, *case.options, *shared, "-o", folder / f"{case.name}.h5"] for case in cases
    ]
    figures = {}
    for case, outcomes in zip(cases, several(folder / "told", ranks, commands, threads), strict=True):
        assert [outcome.code for outcome in outcomes] == [0] * ranks, outcomes
        assert [outcome.stdout for outcome in outcomes[1:]] == [""] * (ranks - 1)
        figures[case.name] = outcomes[0].figures
    return Evaluated(folder, figures)


@pytest.fixture(scope="module")
def alone(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    return evaluate(cases, tmp_path_factory.mktemp("alone"), 1, 1)


@pytest.fixture(scope="module", params=DECOMPOSITIONS, ids=lambda pair: "{} ranks, {} threads".format(*pair))
def shared(
    request: pytest.FixtureRequest, cases: list[Case], tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, int, Evaluated]:
    ranks, threads = request.param
    return ranks, threads, evaluate(cases, tmp_path_factory.mktemp("shared"), ranks, threads)


def contents(path: Path) -> dict[str, np.ndarray]:
    """Return every dataset and attribute of a file by its name."""
    found: dict[str, np.ndarray] = {}

    def visit(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = np.asarray(item[()])
        found.update({f"{name}@{key}": np.asarray(value) for key, value in item.attrs.items()})

    with h5py.File(path) as file:
        visit("", file)
        file.visititems(visit)
    return found


def assert_same_bits(one: Path, other: Path) -> None:
    """Compare two files dataset by dataset, bit for bit: unlike ==, this tells −0 from 0."""
    first, second = contents(one), contents(other)
    assert first.keys() == second.keys()
    different = [
        name
        for name in first
        if (first[name].dtype, first[name].shape, first[name].tobytes())
        != (second[name].dtype, second[name].shape, second[name].tobytes())
    ]
    assert not different


def test_one_rank_writes_all_gradients_and_they_are_numbers(cases: list[Case], alone: Evaluated) -> None:
    """Equal files would prove nothing if they were empty, or all zeros or NaN."""
    for case in cases:
        found = contents(alone.folder / f"{case.name}.h5")
        local = {"gradient/mu", "gradient/S"} if case.name.startswith("gplvm") else set()
        globals_ = {f"gradient/{name}" for name in ("Z", "variance", "alpha", "beta")}
        assert set(found) == {"@jitter", "bound"} | globals_ | local
        assert all(np.isfinite(values).all() for values in found.values())
        assert all(np.any(found[name] != 0) for name in globals_ | local)
        with h5py.File(case.inputs.params) as params:
            for name in found.keys() - {"@jitter", "bound"}:
                where = name.replace("gradient/", "")
                where = {
                    "mu": "latent/mu",
                    "S": "latent/S",
                    "variance": "kernel/variance",
                    "alpha": "kernel/alpha",
                }.get(where, where)
                assert found[name].shape == params[where].shape
        assert float(found["bound"]) == alone.figures[case.name]["bound"]
        assert float(found["@jitter"]) == alone.figures[case.name]["jitter"]


def test_the_jitter_grew_where_points_coincide(cases: list[Case], alone: Evaluated) -> None:
    for case in cases:
        grew = "growing" in case.name
        assert (alone.figures[case.name]["jitter"] > 1e-18) if grew else (alone.figures[case.name]["jitter"] == 1e-8)


def test_output_files_have_the_same_bits(
    cases: list[Case], alone: Evaluated, shared: tuple[int, int, Evaluated]
) -> None:
    _, _, evaluated = shared
    for case in cases:
        assert_same_bits(alone.folder / f"{case.name}.h5", evaluated.folder / f"{case.name}.h5")


def test_the_bound_in_json_is_the_same(cases: list[Case], alone: Evaluated, shared: tuple[int, int, Evaluated]) -> None:
    ranks, threads, evaluated = shared
    for case in cases:
        one, other = alone.figures[case.name], evaluated.figures[case.name]
        assert (other["ranks"], other["threads"]) == (ranks, threads)
        assert (one["bound"].hex(), one["jitter"]) == (other["bound"].hex(), other["jitter"])


def test_some_ranks_were_empty() -> None:
    """Else the sizes above would not show what they are there for."""
    assert chunk_count(1) == chunk_count(3) == 1
    assert chunk_count(130) == 3
    assert chunk_count(1009) > 8


@pytest.mark.parametrize("model", MODELS)
def test_run_py_with_ranks_gives_the_same_bits(model: str, cases: list[Case], alone: Evaluated, tmp_path: Path) -> None:
    case = next(case for case in cases if case.name == f"{model}-1009")
    outcome = run(2, "evaluate", *case.inputs.arguments, "-o", tmp_path / "gradient.h5", "--repeat", 2)
    assert outcome.code == 0, outcome.stderr
    assert_same_bits(alone.folder / f"{case.name}.h5", tmp_path / "gradient.h5")
