"""HDF5 files that all ranks write together: rank 0 holds the file, and the others send it their rows."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np

from mpigp.files.atomic import check_room, replacing
from mpigp.mpi.communicator import gather_rows
from mpigp.mpi.ulfm import confirm
from mpigp.types import Comm, Floats

OVERHEAD = 2**16  # bytes, and more, that HDF5 itself takes


class Distributed(NamedTuple):
    """A dataset (n, ...) of which each rank has its own rows (rows, ...), in order."""

    local: Floats
    n: int

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return 8 * self.n * int(np.prod(self.local.shape[1:]))


Datasets: TypeAlias = Mapping[str, Any]
"""By path: numbers, text and arrays, which rank 0 has, and Distributed ones."""
Attributes: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By the path of what has them, "/" for the file itself: attributes by name."""


def write(path: str | os.PathLike[str], comm: Comm, datasets: Datasets, attributes: Attributes | None = None) -> None:
    """Write a file that is whole or not there. Called by all ranks.

    All ranks name the same distributed datasets in the same order. Of all else only rank 0's counts.
    """
    if comm.rank != 0:
        _fill(None, comm, datasets, {})
        confirm(comm)
        return
    check_room(path, sum(getattr(value, "nbytes", 0) for value in datasets.values()) + OVERHEAD)
    with replacing(path) as temporary:
        with h5py.File(temporary, "w") as file:
            _fill(file, comm, datasets, attributes or {})
        confirm(comm)  # before the file takes its place: it was made of messages


def image(comm: Comm, datasets: Datasets, attributes: Attributes) -> bytes:
    """Return on every rank the bytes of a file of what rank 0 has, none of it distributed. Called by all ranks."""
    memory = io.BytesIO()
    if comm.rank == 0:
        with h5py.File(memory, "w") as file:
            _fill(file, comm, datasets, attributes)
    return comm.bcast(memory.getvalue())


def _fill(file: h5py.File | None, comm: Comm, datasets: Datasets, attributes: Attributes) -> None:
    """Write, on rank 0, what all ranks give; the others, which have no file, send it their rows."""
    for name, value in datasets.items():
        if isinstance(value, Distributed):
            shape = value.n, *value.local.shape[1:]
            item = None if file is None else file.create_dataset(name, shape, "f8")
            start = 0
            for block in gather_rows(comm, value.local, value.n):  # none, but on rank 0
                assert item is not None
                item[start : start + len(block)] = block
                start += len(block)
        elif file is not None:
            file[name] = value
    if file is not None:
        for name, values in attributes.items():
            file[name].attrs.update(values)
