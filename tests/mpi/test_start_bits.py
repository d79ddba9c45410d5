"""The same bits: what a fit starts from does not depend on the number of ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.launching import mpiexec

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
