"""Rows that a Python program gives: whole arrays, or h5py datasets, of which every rank takes its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import h5py
import numpy as np
from threadpoolctl import threadpool_limits

from mpigp.chunks import Share, share
from mpigp.data.hdf5 import LARGEST, read_rows
from mpigp.errors import InputError
from mpigp.mpi.communicator import allgather_rows, raise_on_all_ranks
from mpigp.types import Comm, Floats


def own_rows(comm: Comm, source: Any, missing: bool = False) -> tuple[Share, Floats]:
    """Return which rows of a source (n, ...) are this rank's, and a copy of them, float64 and row-major.

    Called by all ranks. NaN is refused in a dataset, unless entries may be `missing`; arrays have been looked at.
    """
    shapes = comm.allgather(tuple(source.shape))
    part = share(shapes[0][0], comm.rank, comm.size)
    with raise_on_all_ranks(comm):
        if len(set(shapes)) > 1:
            raise InputError(f"the data have other shapes on other ranks ({shapes}): give each the same whole array")
        if isinstance(source, h5py.Dataset):
            return part, read_rows(source, *part, missing)
        rows = np.array(source[part.start : part.stop], np.float64, order="C")
        if (np.abs(rows) > LARGEST).any():
            raise InputError(f"the data hold a number beyond {LARGEST:g}: remove such rows")
        return part, rows


def over_rows(
    comm: Comm, source: Any, work: Callable[[Floats], Sequence[Floats]], missing: bool = False
) -> list[Floats]:
    """Return what `work` makes of the rows of a source (n, columns): arrays of n rows, whole and on every rank.

    Called by all ranks. `work` gets a rank's rows, which may be none, and returns arrays of as many; BLAS has one
    thread meanwhile, and as many as before afterwards.
    """
    _, rows = own_rows(comm, source, missing)
    with threadpool_limits(1):
        results = work(rows)
    return [allgather_rows(comm, found) for found in results]
