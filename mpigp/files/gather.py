"""HDF5 files that all ranks write together: rank 0 holds the file, and the others send it their rows."""

import io
import math
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import h5py
import numpy as np

from mpigp.chunks import share
from mpigp.errors import InputError, OutputError
from mpigp.files.atomic import check_room, replacing
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.ulfm import confirm
from mpigp.types import Comm

BLOCK = 2**16  # rows of a message
OVERHEAD = 2**16  # bytes, and more, that HDF5 itself takes

Datasets: TypeAlias = Mapping[str, Any]
"""By path: numbers, text and arrays, which rank 0 has, and DistributedRows (rows, ...)."""
Attributes: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By the path of what has them, "/" for the file itself: attributes by name."""


def write(path: str | os.PathLike[str], comm: Comm, datasets: Datasets, attributes: Attributes | None = None) -> None:
    """Write a file that is whole or not there. Called by all ranks, which name the same distributed datasets in the
    same order; of all else only rank 0's counts. Where the disk has no room, all ranks raise an OutputError."""
    _check_room(path, comm, datasets)
    if comm.rank != 0:
        _fill(None, datasets, {})
        confirm(comm)
        return
    try:
        with replacing(path) as temporary:
            with h5py.File(temporary, "w") as file:
                _fill(file, datasets, attributes or {})
            confirm(comm)  # before the file takes its place: it was made of messages
    except (InputError, OutputError) as error:
        if comm.size == 1:
            raise
        raise OSError(str(error)) from error  # of this rank alone: it ends the job


def _check_room(path: str | os.PathLike[str], comm: Comm, datasets: Datasets) -> None:
    """Raise on all ranks the error of rank 0 where there is no room for the file, or no place. Collective."""
    try:
        with raise_on_all_ranks(comm):
            if comm.rank == 0:
                check_room(path, sum(map(_size, datasets.values())) + OVERHEAD)
    except (InputError, OutputError):
        confirm(comm)
        raise


def image(comm: Comm, datasets: Datasets, attributes: Attributes) -> bytes:
    """Return on every rank the bytes of a file of what rank 0 has, none of it distributed. Called by all ranks."""
    memory = io.BytesIO()
    if comm.rank == 0:
        with h5py.File(memory, "w") as file:
            _fill(file, datasets, attributes)
    return comm.bcast(memory.getvalue())


def _size(value: Any) -> int:
    """Return the bytes of a dataset; those of numbers and text are of no account."""
    distributed = isinstance(value, DistributedRows)
    return 8 * value.n * math.prod(value.local.shape[1:]) if distributed else getattr(value, "nbytes", 0)


def _fill(file: h5py.File | None, datasets: Datasets, attributes: Attributes) -> None:
    """Write, on rank 0, what all ranks give; the others, which have no file, send it their rows."""
    for name, value in datasets.items():
        if isinstance(value, DistributedRows):
            item = None if file is None else file.create_dataset(name, (value.n, *value.local.shape[1:]), "f8")
            _gather(value, item)
        elif file is not None:
            file[name] = value
    if file is not None:
        for name, values in attributes.items():
            file[name].attrs.update(values)


def _gather(rows: DistributedRows, item: h5py.Dataset | None) -> None:
    """Write the rows of all ranks in order, block by block, to a dataset on rank 0."""
    comm, local = rows.comm, np.asarray(rows.local)
    if item is None:
        for start in range(0, len(local), BLOCK):
            comm.Send(np.ascontiguousarray(local[start : start + BLOCK]), dest=0)
        return
    item[: len(local)] = local
    for rank in range(1, comm.size):
        first, stop = share(rows.n, rank, comm.size)
        for start in range(first, stop, BLOCK):
            block = np.empty((min(BLOCK, stop - start), *local.shape[1:]))
            comm.Recv(block, source=rank)
            item[start : start + len(block)] = block
