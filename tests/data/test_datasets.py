"""Rows that stay in their file: what is made of their blocks has the bits of what is made of an array."""

from __future__ import annotations

import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpigp.chunks import Share, chunk_rows
from mpigp.data.datasets import BLOCK_BYTES, Stream, block_rows, blocks
from mpigp.errors import InputError
from mpigp.fit.start.inducing import greedy, kmeans, random_rows
from mpigp.fit.start.pca import pca
from mpigp.fit.start.standardize import standardization
from mpigp.gp.bound import Group
from mpigp.mpi.distributed_rows import DistributedRows, fingerprint
from mpigp.mpi.rows import Rows

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


def test_damage_on_the_way_is_no_bad_input(file: h5py.File) -> None:
    """An InputError is everybody's, and waits for the others; one rank that cannot read must end them all."""
    _, stream = both(file)
    stream.check()
    file["Y"][700, 1] = np.nan
    with pytest.raises(InputError, match=r"data.h5: /Y: row 700 .* NaN"):
        stream.check()
    with pytest.raises(OSError, match=r"row 700 .*whole when the run began"):
        list(blocks(stream))


@pytest.mark.parametrize("name", ["Y", "single"])
def test_all_before_the_iterations_has_the_same_bits(file: h5py.File, name: str) -> None:
    def everything(rows: np.ndarray | Stream) -> list[object]:
        everywhere = DistributedRows(SELF, N, rows)
        found: list[object] = [fingerprint(None, everywhere)]
        how, constant = standardization(everywhere, "scale")
        how.apply(rows)
        alpha = np.linspace(0.2, 1.5, D)
        arrays = [*how, greedy(everywhere, 9, alpha), kmeans(everywhere, 9, 1),
                  random_rows(everywhere, 9, 1), pca(everywhere, 2)]  # fmt: skip
        held = Rows(SELF, N, rows, None, rows)
        arrays += [held.lowest, held.highest, held.absolute_Y]
        (group,) = held.groups
        assert isinstance(group, Group)
        return found + constant + [group.YY] + [each.tobytes() for each in arrays]

    array, stream = both(file, name)
    assert everything(array) == everything(stream)
