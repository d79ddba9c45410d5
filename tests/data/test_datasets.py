"""Rows that stay in their file: what is made of their blocks has the bits of what is made of an array."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpigp.chunks import Share, chunk_rows
from mpigp.data import datasets
from mpigp.data.datasets import BLOCK_BYTES, Stream, block_rows, blocks, find
from mpigp.data.hdf5 import read_rows
from mpigp.errors import InputError
from mpigp.fit.start.inducing import greedy, kmeans, random_rows
from mpigp.fit.start.pca import pca
from mpigp.fit.start.standardize import standardization
from mpigp.gp.bound import Group
from mpigp.kernels.rbf import RBF
from mpigp.mpi.distributed_rows import DistributedRows, check_unchanged, fingerprint
from mpigp.mpi.rows import Rows
from tests.support.problems import Member, Team

SELF = MPI.COMM_SELF
N, D = 1009, 3
CHUNK = chunk_rows(N)


@pytest.fixture
def file(tmp_path: Path) -> h5py.File:
    rng = np.random.default_rng(0)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["Y"] = rng.normal(size=(N, D)) * [1, 10, 0.1] + 5
        file.create_dataset("single", data=rng.normal(size=(N, D)), dtype="f4", chunks=(100, 1), compression="gzip")
    with h5py.File(tmp_path / "data.h5", "r+") as file:
        yield file


def both(file: h5py.File, name: str = "Y") -> tuple[np.ndarray, Stream]:
    """Return the rows of a dataset as an array, and as a stream of five blocks and a shorter one."""
    return file[name][()].astype(float), Stream(file[name], Share(0, N), 3 * CHUNK)


def test_blocks_are_whole_chunks_and_fit_their_bytes() -> None:
    for chunk, width in [(64, 1), (512, 9), (512, 10**6)]:
        rows = block_rows(chunk, width)
        assert rows % chunk == 0
        assert rows == chunk or rows * width * 8 <= BLOCK_BYTES < (rows + chunk) * width * 8


@pytest.mark.parametrize("name", ["Y", "single"])
def test_blocks_are_the_rows_with_what_was_done_to_them(file: h5py.File, name: str) -> None:
    array, stream = both(file, name)
    for rows in (array, stream):
        rows -= np.array([0.1, 0.2, 0.3])
        rows /= np.array([3.0, 7.0, 0.7])
    beside = np.arange(N)[:, None]
    found = list(blocks(stream, beside))
    assert [first for first, _ in found] == list(range(0, N, 3 * CHUNK))
    assert np.concatenate([block for _, (block, _) in found]).tobytes() == array.tobytes()
    assert np.array_equal(np.concatenate([block for _, (_, block) in found]), beside)


def test_an_array_is_one_block_and_not_copied(file: h5py.File) -> None:
    array, _ = both(file)
    ((first, (block,)),) = blocks(array)
    assert first == 0 and block is array


def test_a_rank_without_rows_has_one_empty_block(file: h5py.File) -> None:
    ((first, (block,)),) = blocks(Stream(file["Y"], Share(N, N), CHUNK))
    assert (first, block.shape) == (0, (0, D))


def test_the_next_block_is_read_while_one_is_in_use(file: h5py.File) -> None:
    """Nobody asks for the second block, and another thread reads it."""
    _, stream = both(file)
    reads: list[tuple[int, threading.Thread]] = []
    second = threading.Event()
    original = stream.read

    def read(first: int) -> np.ndarray:
        reads.append((first, threading.current_thread()))
        if first:
            second.set()
        return original(first)

    stream.read = read  # type: ignore[method-assign]
    given = blocks(stream)
    next(given)
    assert second.wait(300)
    assert [first for first, _ in reads] == [0, 3 * CHUNK]  # and none beyond: two blocks are what fits
    assert threading.main_thread() not in [thread for _, thread in reads]
    given.close()


def test_damage_on_the_way_is_everybodys(file: h5py.File) -> None:
    """One rank sees it: it finishes its pass, which others are in too, and then all refuse the rows."""
    _, stream = both(file)
    stream.check()
    before = os.stat(file.filename)
    file["Y"][700, 1] = np.nan
    file.flush()
    os.utime(file.filename, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match=r"data.h5: /Y: row 700 .* NaN"):
        stream.check()
    given = list(blocks(stream))
    assert sum(len(block) for _, (block,) in given) == N
    problem = r"row 700 .*whole when the run began"
    with pytest.raises(InputError, match=problem):
        check_unchanged(SELF, stream)
    with pytest.raises(InputError, match=problem):
        DistributedRows(SELF, N, stream).extremes()


def test_what_one_rank_has_seen_all_ranks_refuse(file: h5py.File) -> None:
    streams = [both(file)[1] for _ in range(3)]
    streams[1].file.problem = "rank 1 has seen it"

    def work(comm: Member) -> str:
        with pytest.raises(InputError) as caught:
            check_unchanged(comm, streams[comm.rank])
        return str(caught.value)

    assert Team(3).run(work) == ["rank 1 has seen it"] * 3
    Team(3).run(lambda comm: check_unchanged(comm, streams[0]))


@pytest.mark.parametrize("change", ["size", "time", "another file", "gone"])
def test_a_file_that_changes_is_noticed_at_the_next_pass(tmp_path: Path, change: str) -> None:
    path, other = tmp_path / "data.h5", tmp_path / "other.h5"
    for each in (path, other):
        with h5py.File(each, "w") as file:
            file["X"], file["Y"] = np.ones((N, 1)), np.ones((N, D))
    with h5py.File(path) as file:
        X, Y = find(file, "Y", "X").rows(Share(0, N), stream=True)
        rows = Rows(SELF, N, X, None, Y)
        rows.check_unchanged(SELF)
        if change == "size":
            with path.open("ab") as end:
                end.write(b"more")
        elif change == "time":
            os.utime(path, ns=(0, 0))
        elif change == "another file":
            os.replace(other, path)
        else:
            path.unlink()
        for _ in rows.blocks():
            pass
        with pytest.raises(InputError, match=r"data.h5: has changed since this run began to read it: leave"):
            rows.check_unchanged(SELF)


def test_a_file_that_changes_while_it_is_read_into_memory(file: h5py.File, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*arguments: Any) -> np.ndarray:
        os.utime(file.filename, ns=(0, 0))
        return read_rows(*arguments)

    monkeypatch.setattr(datasets, "read_rows", read)
    with pytest.raises(InputError, match=r"data.h5: has changed"):
        find(file, "Y", None).rows(Share(0, N), stream=False)


def test_other_values_have_another_fingerprint_at_the_same_time(file: h5py.File) -> None:
    """No status tells of a file that was written to and set back; its rows do."""
    file.create_dataset("X", data=np.ones((N, 1)))
    file.flush()
    X, Y = find(file, "Y", "X").rows(Share(0, N), stream=True)
    data = fingerprint(DistributedRows(SELF, N, X), DistributedRows(SELF, N, Y))
    Y -= np.ones(D)  # not in the file
    rows = Rows(SELF, N, X, None, Y)
    rows.check_fingerprint(SELF, {"data": data})
    before = os.stat(file.filename)
    file["Y"][700, 1] += 1e-9
    file.flush()
    os.utime(file.filename, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InputError, match=r"data.h5: has changed"):
        rows.check_fingerprint(SELF, {"data": data})


@pytest.mark.parametrize("name", ["Y", "single"])
def test_all_before_the_iterations_has_the_same_bits(file: h5py.File, name: str) -> None:
    def everything(rows: np.ndarray | Stream) -> list[object]:
        everywhere = DistributedRows(SELF, N, rows)
        found: list[object] = [fingerprint(None, everywhere)]
        how, constant = standardization(everywhere, "scale")
        how.apply(rows)
        alpha = np.linspace(0.2, 1.5, D)
        arrays = [*how, greedy(everywhere, 9, RBF(), alpha), kmeans(everywhere, 9, 1),
                  random_rows(everywhere, 9, 1), pca(everywhere, 2)]  # fmt: skip
        held = Rows(SELF, N, rows, None, rows)
        arrays += [held.lowest, held.highest, held.absolute_Y]
        (group,) = held.groups
        assert isinstance(group, Group)
        return found + constant + [group.YY] + [each.tobytes() for each in arrays]

    array, stream = both(file, name)
    assert everything(array) == everything(stream)
