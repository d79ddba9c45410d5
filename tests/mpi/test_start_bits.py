"""The same bits: what a fit starts from does not depend on the number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.support.fits import Case, differences, fit
from tests.support.inputs import write_inputs
from tests.support.launching import mpiexec, several

SCRIPT = Path(__file__).with_name("start.py")


def results(folder: Path, ranks: int) -> dict[str, np.ndarray]:
    """Return every array of every data set by its name."""
    outcome = mpiexec(ranks, SCRIPT, folder)
    assert outcome.code == 0, outcome.stderr
    found = {}
    for file in folder.glob("*.npz"):
        with np.load(file) as arrays:
            found |= {f"{file.stem}/{name}": array for name, array in arrays.items()}
    return found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return results(tmp_path_factory.mktemp("alone"), 1)


def test_one_rank_finds_numbers(alone: dict[str, np.ndarray]) -> None:
    """Equal results would prove nothing if they were empty or NaN."""
    assert len(alone) == 6 * 9
    assert all(np.isfinite(array).all() for array in alone.values())
    assert all(array.size for name, array in alone.items() if not name.endswith("/constant"))
    assert alone["130/constant"].tolist() == [2]
    assert alone["21001/greedy"].shape == (40, 3)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_several_ranks_find_the_same_bits(ranks: int, alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    shared = results(tmp_path, ranks)
    assert shared.keys() == alone.keys()
    different = [
        name
        for name, array in alone.items()
        if (array.shape, array.tobytes()) != (shared[name].shape, shared[name].tobytes())
    ]
    assert not different


# The start that a regression tries

M = 10
STARTS: dict[str, tuple[int, list[object]]] = {  # rows, and options
    "all": (1009, []),  # too few for subsets of them
    "subsets": (16501, []),
    "bound": (16501, ["--bound", "rows", "--kernel", "matern52"]),
}
BLOCK = 2**14  # bytes: streamed rows come in several blocks
ITERATIONS = 22


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("data")
    settings = ["--max-iter", ITERATIONS, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 3, "--json"]
    found = []
    for name, (n, more) in STARTS.items():
        inputs = write_inputs(folder / name, "regression", n, M, 2, 1)
        found.append(Case(name, fit(inputs, Path(), "regression", *settings, *more, m=M)))
    return found


def learned(cases: list[Case], folder: Path, ranks: int, threads: int, *options: object) -> dict[str, dict]:
    """Run all cases in one start of mpiexec, to FOLDER/NAME.h5; return the figures of each start."""
    commands = [[*case.arguments, "-o", folder / f"{case.name}.h5", "--threads", threads, *options] for case in cases]
    found = {}
    for case, outcomes in zip(cases, several(folder / "told", ranks, commands, threads, BLOCK), strict=True):
        assert [outcome.code for outcome in outcomes] == [0] * ranks, (case.name, outcomes)
        found[case.name] = outcomes[0].figures["start"]
    return found


class Tried(NamedTuple):
    """Where one rank wrote its models, and the figures of their starts."""

    folder: Path
    starts: dict[str, dict]


@pytest.fixture(scope="module")
def tried(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = tmp_path_factory.mktemp("tried")
    return Tried(folder, learned(cases, folder, 1, 1))


def test_starts_were_compared(tried: Tried) -> None:
    assert {name: (start["rows"], len(start["bounds"])) for name, start in tried.starts.items()} == {
        "all": (1009, 3), "subsets": (8192, 3), "bound": (8192, 3)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "threads", "kept"),
    [(2, 1, "all"), (3, 1, "all"), (5, 1, "all"), (1, 2, "all"), (2, 2, "stream"), (3, 1, "stream")],
)
def test_a_start_that_is_tried_has_the_same_bits(
    ranks: int, threads: int, kept: str, cases: list[Case], tried: Tried, tmp_path: Path
) -> None:
    assert learned(cases, tmp_path, ranks, threads, "--rows-in-memory", kept) == tried.starts
    for case in cases:
        assert differences(tried.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == []


@pytest.mark.parametrize(("stopped", "resumed"), [(2, 3), (3, 1)])
def test_a_fit_that_was_stopped_behind_its_start_ends_as_if_never_stopped(
    stopped: int, resumed: int, cases: list[Case], tried: Tried, tmp_path: Path
) -> None:
    """A time limit of nothing lets the first run make one iteration."""
    commands = [[*case.arguments, "-o", tmp_path / f"{case.name}.h5"] for case in cases]
    first = several(tmp_path / "first", stopped, [[*words, "--time-limit", 0] for words in commands])
    assert {outcome.code for outcomes in first for outcome in outcomes} == {75}
    again = several(tmp_path / "again", resumed, [[*words, "--resume"] for words in commands])
    assert {outcome.code for outcomes in again for outcome in outcomes} == {0}
    for case in cases:
        assert differences(tried.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == []
