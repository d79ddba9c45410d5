"""Rows that are held out, and those that remain: all of a file between them, by n, the fraction and the seed alone."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.data import held_out
from mpigp.data.datasets import find
from mpigp.data.hdf5 import read_rows
from mpigp.data.held_out import HeldOut
from mpigp.errors import InputError
from tests.support.calling import write

SIZES = [(2, 0.5), (2, 0.01), (3, 0.99), (10, 0.1), (277, 0.1), (277, 0.73), (1000, 1e-9), (5000, 0.2)]


@pytest.mark.parametrize(("n", "fraction"), SIZES)
def test_every_row_is_held_out_or_remains(n: int, fraction: float) -> None:
    chosen = HeldOut.of(n, fraction, seed=3)
    count = len(chosen.numbers)
    assert count == min(max(round(n * fraction), 1), n - 1)
    held, remaining = chosen.held(0, count), chosen.remaining(0, n - count)
    assert (np.diff(held) > 0).all() and (np.diff(remaining) > 0).all()
    assert sorted([*held, *remaining]) == list(range(n))


def test_a_part_of_the_rows_is_that_of_all() -> None:
    chosen = HeldOut.of(277, 0.3, seed=0)
    every = chosen.remaining(0, 277 - len(chosen.numbers))
    for start, stop in ((0, 0), (0, 64), (64, 190), (193, 194)):
        assert chosen.remaining(start, stop).tolist() == every[start:stop].tolist()


def test_another_seed_holds_out_other_rows_and_the_same_seed_the_same() -> None:
    one, same, other = (HeldOut.of(1000, 0.1, seed).numbers.tolist() for seed in (0, 0, 1))
    assert one == same != other


def test_rows_that_repeat_in_a_cycle_are_all_held_out_alike() -> None:
    counts = np.bincount(HeldOut.of(10_000, 0.1, seed=0).numbers % 10)
    assert counts.min() > 60 and counts.max() < 140  # of 100 ± 10


@pytest.mark.parametrize("block_bytes", [1, 100, 2**23])
def test_views_read_as_datasets_do(tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "BLOCK_BYTES", block_bytes)
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(101, 2)), rng.normal(size=(101, 3)).astype(np.float32)
    with h5py.File(write(tmp_path / "data.h5", X=X, Y=Y)) as file:
        numbers = HeldOut.of(101, 0.3, seed=5).numbers
        remaining, held = find(file, "Y", "X").split(0.3, 5)
        for sets, wanted in ((held, numbers), (remaining, np.delete(np.arange(101), numbers))):
            assert sets.n == len(wanted) and sets.X is not None
            assert (read_rows(sets.X, 3, 17) == X[wanted[3:17]]).all()
            assert (read_rows(sets.Y, 0, sets.n) == Y[wanted]).all()
            assert read_rows(sets.Y, 4, 4).shape == (0, 3)


def test_a_bad_row_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    numbers = HeldOut.of(100, 0.2, seed=0).numbers
    for row in (int(numbers[-1]), int(np.delete(np.arange(100), numbers)[-1])):
        X, Y = np.ones((100, 1)), np.ones((100, 1))
        Y[row] = np.nan
        with h5py.File(write(tmp_path / "data.h5", X=X, Y=Y)) as file:
            parts = find(file, "Y", "X").split(0.2, 0)
            with pytest.raises(InputError, match=rf"/Y: row {row} \(counted from 0\) holds NaN"):
                for each in parts:
                    read_rows(each.Y, 0, each.n)


def test_of_a_single_row_none_can_be_held_out(tmp_path: Path) -> None:
    with (
        h5py.File(write(tmp_path / "data.h5", X=np.ones((1, 1)), Y=np.ones((1, 1)))) as file,
        pytest.raises(InputError, match="/Y: has one row"),
    ):
        find(file, "Y", "X").split(0.5, 0)
