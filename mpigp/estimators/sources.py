"""Rows that a Python program gives: whole arrays, or h5py datasets, of which every rank takes its own."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
from threadpoolctl import threadpool_limits

from mpigp.chunks import Share, share
from mpigp.data.datasets import DataSets
from mpigp.data.hdf5 import LARGEST, read_rows
from mpigp.errors import InputError
from mpigp.mpi.communicator import allgather_rows, raise_on_all_ranks
from mpigp.types import Comm, Floats


def check_shapes(comm: Comm, source: Any) -> None:
    """Refuse a source (n, ...) that has another shape on another rank. Collective."""
    shapes = comm.allgather(tuple(source.shape))
    if len(set(shapes)) > 1:
        raise InputError(f"the data have other shapes on other ranks ({shapes}): give each the same whole array")


def copy_rows(source: Any, part: Share, missing: bool = False) -> Floats:
    """Return a copy of these rows of a source (n, ...), float64, row-major, as (rows, columns).

    NaN is refused in a dataset, unless entries may be `missing`; arrays have been checked.
    """
    if isinstance(source, h5py.Dataset):
        rows = read_rows(source, *part, missing)
    else:
        rows = np.array(source[part.start : part.stop], np.float64, order="C")
        if (np.abs(rows) > LARGEST).any():
            raise InputError(f"the data hold a number beyond {LARGEST:g}: remove such rows")
    return rows.reshape(part.rows, math.prod(source.shape[1:]))


class ArraySets(DataSets):
    """Whole arrays or datasets Y (n, d) or (n,), and X (n, q) or None, as the driver of a fit takes them."""

    where = ""

    @property
    def d(self) -> int:
        return math.prod(self.Y.shape[1:])

    def rows(self, share: Share, stream: bool, missing: bool = False) -> tuple[Floats | None, Floats]:
        """Return copies of these rows of X and Y."""
        return None if self.X is None else copy_rows(self.X, share), copy_rows(self.Y, share, missing)

    @contextmanager
    def open(self, comm: Comm) -> Iterator["ArraySets"]:
        """Check that all ranks were given the same shapes."""
        for source in (self.X, self.Y):
            if source is not None:
                check_shapes(comm, source)
        yield self


def over_rows(comm: Comm, source: Any, work: Callable[[Floats], Any], missing: bool = False) -> list[Floats]:
    """Return what `work` makes of the rows of a source (n, columns): arrays of n rows, whole and on every rank.

    Called by all ranks. `work` gets a rank's rows, which may be none, and returns arrays of as many; BLAS has one
    thread meanwhile, and as many as before afterwards.
    """
    with raise_on_all_ranks(comm):
        check_shapes(comm, source)
        rows = copy_rows(source, share(len(source), comm.rank, comm.size), missing)
    with threadpool_limits(1):
        results = work(rows)
    return [allgather_rows(comm, each) for each in results]
