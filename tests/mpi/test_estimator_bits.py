"""The estimators under mpiexec: the same bits on any number of ranks, errors that are everybody's, and no hang."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.launching import mpiexec

SCRIPT = Path(__file__).with_name("estimate.py")
IMPORTS = """import h5py
import mpigp
import numpy as np
from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
"""


def results(folder: Path, ranks: int) -> dict[str, np.ndarray]:
    outcome = mpiexec(ranks, SCRIPT, folder)
    assert outcome.code == 0, outcome.stderr
    with np.load(folder / "found.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return results(tmp_path_factory.mktemp("alone"), 1)


def test_one_rank_finds_numbers(alone: dict[str, np.ndarray]) -> None:
    """Equal results would prove nothing if they were empty or NaN."""
    assert all(values.size and np.isfinite(values).all() for values in alone.values())
    assert alone["score"] > 0.5
    assert alone["mean"].shape == alone["std"].shape == alone["full"].shape == (1500, 4)
    assert (alone["datasets"] == alone["alone"]).all()


@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_find_the_same_bits(ranks: int, alone: dict[str, np.ndarray], tmp_path: Path) -> None:
    shared = results(tmp_path, ranks)
    assert shared.keys() == alone.keys()
    different = [
        name
        for name, values in alone.items()
        if (values.shape, values.tobytes()) != (shared[name].shape, shared[name].tobytes())
    ]
    assert not different


def run(folder: Path, code: str) -> tuple[int, str]:
    """Run a script on two ranks; return its exit code and what it wrote."""
    script = folder / "script.py"
    script.write_text(
        f"import h5py, mpigp\nimport numpy as np\nfrom mpi4py import MPI\n\nrank = MPI.COMM_WORLD.rank\n{code}"
    )
    outcome = mpiexec(2, script, folder)
    return outcome.code, outcome.stdout + outcome.stderr


def test_other_shapes_on_other_ranks_are_refused_by_all(tmp_path: Path) -> None:
    code, said = run(tmp_path, """
try:
    mpigp.BayesianGPLVM(3).fit(np.random.default_rng(0).normal(size=(20 + rank, 3)))
except ValueError as error:
    print(f"{rank} refused it: {error}", flush=True)
""")  # fmt: skip
    assert code == 0, said
    assert all(f"{rank} refused it: the data have other shapes on other ranks" in said for rank in range(2))


def test_a_bad_row_of_one_rank_is_refused_by_all(tmp_path: Path) -> None:
    code, said = run(tmp_path, """
import sys
path = sys.argv[1] + "/bad.h5"
if rank == 0:
    with h5py.File(path, "w") as file:
        file["Y"] = np.random.default_rng(0).normal(size=(300, 3))
        file["Y"][290] = np.inf
MPI.COMM_WORLD.Barrier()
with h5py.File(path) as file:
    try:
        mpigp.BayesianGPLVM(3).fit(file["Y"])
    except ValueError as error:
        print(f"{rank} refused it: {error}", flush=True)
""")  # fmt: skip
    assert code == 0, said
    assert said.count("/Y: row 290") == 2


def test_an_error_of_one_rank_ends_the_script_on_all(tmp_path: Path) -> None:
    code, said = run(tmp_path, """
Y = np.random.default_rng(0).normal(size=(300, 3))
model = mpigp.BayesianGPLVM(3, max_iter=2).fit(Y)
if rank == 1:
    raise RuntimeError("of rank 1 alone")
model.fit(Y)
""")  # fmt: skip
    assert code != 0
    assert "RuntimeError: of rank 1 alone" in said
