"""Scripts with estimators whose ranks are killed: the others go on, and a script killed as a whole resumes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mpigp
from tests.support.launching import Outcome, mpiexec

SCRIPT = Path(__file__).with_name("faulty_script.py")


def script(folder: Path, victim: str, at: int = 17, ranks: int = 3) -> Outcome:
    return mpiexec(ranks, SCRIPT, folder, victim, at, survive=True)


def results(folder: Path) -> dict[int, dict[str, np.ndarray]]:
    """Return the results of each rank that reached the end."""
    found = {}
    for path in folder.glob("*.npz"):
        with np.load(path) as arrays:
            found[int(path.stem)] = {name: array.tobytes() for name, array in arrays.items()}
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    outcome = script(folder, "none", ranks=1)
    assert outcome.code == 0, outcome.stderr
    return folder, results(folder)[0]


@pytest.mark.parametrize("victim", [0, 1])
def test_the_ranks_that_are_left_reach_the_same_bits(
    victim: int, tmp_path: Path, undisturbed: tuple[Path, dict[str, np.ndarray]]
) -> None:
    outcome = script(tmp_path, str(victim))
    assert outcome.code == 0, outcome.stderr
    assert f"mpigp: rank {victim} was lost: going on with 2" in outcome.stderr
    left = results(tmp_path)
    assert sorted(left) == sorted({0, 1, 2} - {victim})
    assert all(found == undisturbed[1] for found in left.values())


def test_a_script_killed_as_a_whole_resumes_to_the_same_bits(
    tmp_path: Path, undisturbed: tuple[Path, dict[str, np.ndarray]]
) -> None:
    script(tmp_path, "all")  # its exit code means nothing: Open MPI's mpiexec returns 0 where ranks may fail
    assert not results(tmp_path)
    assert (tmp_path / "gplvm.h5").exists()
    again = script(tmp_path, "none", ranks=2)
    assert again.code == 0, again.stderr
    assert all(found == undisturbed[1] for found in results(tmp_path).values())
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["iteration"] for record in records] == list(range(1, 31))


def test_a_checkpoint_is_a_model_file(undisturbed: tuple[Path, dict[str, np.ndarray]]) -> None:
    loaded = mpigp.load(undisturbed[0] / "gplvm.h5")
    assert loaded.embedding_.tobytes() == undisturbed[1]["embedding"]
