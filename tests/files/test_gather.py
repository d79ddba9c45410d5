"""Files that all ranks write together: the same on any number of them, and whole or not there."""

from __future__ import annotations

import os
from ast import literal_eval
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpigp.files import gather
from mpigp.mpi.distributed_rows import DistributedRows
from tests.support.launching import mpiexec

SCRIPT = """
import sys
import numpy as np
from mpi4py import MPI
from mpigp.chunks import share
from mpigp.files.gather import image, write
from mpigp.mpi.communicator import world
from mpigp.mpi.distributed_rows import DistributedRows

comm = world()
n = int(sys.argv[2])
part = share(n, comm.rank, comm.size)
own = np.arange(2.0 * n).reshape(n, 2)[part.start : part.stop]
datasets = {"group/rows": DistributedRows(comm, n, own), "flat": DistributedRows(comm, n, own[:, 1].copy())}
if comm.rank == 0:
    datasets = {"number": 3, "text": "three", **datasets, "whole": np.eye(2)}
write(sys.argv[1], comm, datasets, {"/": {"kind": "test"}, "flat": {"names": ("a", "b")}})
found = image(comm, {"number": comm.rank}, {"/": {"rank": comm.rank}})
assert comm.allgather(found) == [found] * comm.size and len(found) > 0
"""


def contents(path: Path) -> dict[str, object]:
    """Return all datasets and attributes of a file, as bytes with their types and shapes."""
    found: dict[str, object] = {}

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        found[f"{name}@"] = {key: np.asarray(value).tolist() for key, value in item.attrs.items()}
        if isinstance(item, h5py.Dataset):
            found[name] = item.dtype.str, item.shape, np.asarray(item[()]).tolist()

    with h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    return found


@pytest.mark.parametrize("n", [277, 1])  # five chunks, and fewer rows than ranks
def test_the_same_file_on_any_number_of_ranks(tmp_path: Path, n: int) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = []
    for ranks in (1, 3):
        path = tmp_path / f"{ranks}.h5"
        outcome = mpiexec(ranks, script, path, n)
        assert outcome.code == 0, outcome.stderr
        found.append(contents(path))
    assert found[0] == found[1]
    whole = np.arange(2.0 * n).reshape(n, 2)
    assert found[0]["group/rows"] == ("<f8", (n, 2), whole.tolist())
    assert found[0]["flat"] == ("<f8", (n,), whole[:, 1].tolist())
    assert found[0]["flat@"] == {"names": ["a", "b"]} and found[0]["/@"] == {"kind": "test"}
    assert found[0]["number"] == ("<i8", (), 3) and found[0]["whole"] == ("<f8", (2, 2), np.eye(2).tolist())
    assert not list(tmp_path.glob(".*.part"))


def rows(n: int) -> DistributedRows:
    return DistributedRows(MPI.COMM_SELF, n, np.ones((n, 2)))


def test_a_file_that_fails_leaves_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    gather.write(path, MPI.COMM_SELF, {"rows": rows(3)})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        gather.write(path, MPI.COMM_SELF, {"rows": rows(4), "other": object()})
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["file.h5"]


def test_room_is_made_sure_of_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(gather, "check_room", lambda path, size: asked.append(size))
    gather.write(tmp_path / "file.h5", MPI.COMM_SELF, {"rows": rows(3), "whole": np.ones(5)})
    assert asked == [8 * (3 * 2 + 5) + gather.OVERHEAD]


REFUSED = """
import os, sys
import numpy as np
from mpigp.errors import InputError, OutputError
from mpigp.files import gather
from mpigp.mpi.communicator import world
from mpigp.mpi.distributed_rows import DistributedRows

def full(path, size):
    raise OutputError(f"{path}: no space")

comm = world()
rows = DistributedRows(comm, 2, np.ones((1, 2)))
for path in sys.argv[1:]:
    if path == "full":
        gather.check_room = full
    try:
        gather.write(path, comm, {"rows": rows})
    except (InputError, OutputError) as error:
        print(comm.gather(f"{type(error).__name__} {error}"), flush=True)
"""


def test_a_file_that_cannot_be_begun_is_refused_by_all_ranks(tmp_path: Path) -> None:
    script, pipe, loop = tmp_path / "script.py", tmp_path / "pipe", tmp_path / "loop"
    script.write_text(REFUSED)
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    outcome = mpiexec(2, script, pipe, loop, "full")
    assert outcome.code == 0, outcome.stderr
    lines = [literal_eval(line) for line in outcome.stdout.splitlines() if line.startswith("[")]
    said = (f"InputError {pipe}: is a device", f"InputError {loop}: leads through a loop", "OutputError full: no space")
    for each, begin in zip(lines, said, strict=True):
        assert len(each) == 2 and each[0] == each[1] and each[0].startswith(begin)
