"""The rows of all ranks in one HDF5 file: rank 0 writes it, the others send it theirs."""

from __future__ import annotations

from collections.abc import Mapping

import h5py

from mpigp.files.atomic import check_room, replacing
from mpigp.mpi.communicator import gather_rows
from mpigp.types import Comm, Floats


def write_rows(file: h5py.File, name: str, comm: Comm, local: Floats, n: int, flat: bool = False) -> None:
    """Write the rows (., columns) of all ranks, in order, as one dataset (n, columns); (n,) where `flat`.

    Rank 0 calls it, while the others call `gather_rows`.
    """
    item = file.create_dataset(name, (n,) if flat else (n, local.shape[1]), "f8")
    start = 0
    for block in gather_rows(comm, local, n):
        item[start : start + len(block)] = block[:, 0] if flat else block
        start += len(block)


def write(path: str, comm: Comm, n: int, rows: Mapping[str, Floats], whole: Mapping[str, Floats] | None = None) -> None:
    """Write datasets by name: `rows`, of which each rank has its own of n, and `whole` ones, which rank 0 has."""
    columns = {name: values if values.ndim > 1 else values[:, None] for name, values in rows.items()}
    if comm.rank != 0:
        for values in columns.values():
            list(gather_rows(comm, values, n))
        return
    whole = whole or {}
    numbers = n * sum(values.shape[1] for values in columns.values()) + sum(values.size for values in whole.values())
    check_room(path, 8 * numbers + 2**16)
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, values in columns.items():
            write_rows(file, name, comm, values, n, flat=rows[name].ndim == 1)
        for name, values in whole.items():
            file[name] = values
