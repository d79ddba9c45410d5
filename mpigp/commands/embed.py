"""Embed new rows in the latent space of a GPLVM; NaN entries are missing."""

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

import h5py
import numpy as np

from mpigp.chunks import share
from mpigp.data.hdf5 import dataset, read_rows, reading
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable
from mpigp.files.gather import write
from mpigp.files.model_file import FITTED, KERNEL, LATENT, open_model, section
from mpigp.gp.embedding import Candidates, embed
from mpigp.gp.posterior import Posterior
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Comm, Floats

PARALLEL = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp embed`, which are also those of `mpigp reconstruct`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="what `mpigp fit --model gplvm` wrote")
    add("new", metavar="NEW", help="HDF5 file with /Y (n, d); NaN entries are missing")
    add("-o", "--output", required=True, metavar="FILE", help="the HDF5 file to write")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")
    add("--kernel", metavar="NAME", help=KERNEL)


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Read, embed, write."""
    return apply(arguments, comm, embed, "embedded")


def apply(arguments: argparse.Namespace, comm: Comm, method: Callable, done: str) -> dict[str, Any]:
    """Read, apply `embed` or `reconstruct` of mpigp.gp.embedding, and write what it returns."""
    n, posterior, candidates, Y = read(arguments, comm)
    result, seconds = timed(comm, method, posterior, candidates, Y, arguments.threads)
    check_finite(comm, arguments.model, result)
    rows = {name: DistributedRows(comm, n, values) for name, values in result._asdict().items()}
    write(arguments.output, comm, section(LATENT, (rows.pop("mu"), rows.pop("S"))) | rows if "mu" in rows else rows)
    if comm.rank == 0:
        print(f"{arguments.output}: {n} rows {done} in {seconds:.3g} s")
    return {"n": n, "seconds": seconds, "ranks": comm.size, "threads": arguments.threads}


def timed(comm: Comm, method: Callable, *arguments: Any) -> tuple[Any, float]:
    """Return what a method returns, and the seconds from its beginning on all ranks to its end on all."""
    comm.Barrier()
    start = time.perf_counter()
    with np.errstate(all="ignore"):  # `check_finite` is next
        result = method(*arguments)
    comm.Barrier()
    return result, time.perf_counter() - start


def check_finite(comm: Comm, model: str, results: Iterable[Floats]) -> None:
    """Refuse a model of which numbers come that are not finite, on any rank."""
    with raise_on_all_ranks(comm):
        if not all(np.isfinite(values).all() for values in results):
            raise InputError(f"{model}: its predictions are not finite: {FITTED}")


def read(arguments: argparse.Namespace, comm: Comm) -> tuple[int, Posterior, Candidates, Floats]:
    """Return the number of rows, the model as embedding takes it, and this rank's Y, with its NaN."""
    with raise_on_all_ranks(comm):
        if comm.rank == 0:
            check_writable(arguments.output, arguments.model, arguments.new)
        with open_model(arguments.model) as model:
            posterior = model.posterior(arguments.kernel)
            if posterior.model != "gplvm":
                raise InputError(f"{arguments.model}: is a {posterior.model} model: only a GPLVM has latent points")
            candidates = model.candidates()
        with reading(arguments.new) as file:
            give = f"give the outputs of the model, (n, {posterior.d})"
            item = rows_for(dataset(file, arguments.y, 2, give), posterior.d, f"the outputs of {arguments.model}")
            Y = read_rows(item, *share(len(item), comm.rank, comm.size), missing=True)
            return len(item), posterior, candidates, Y


def rows_for(item: h5py.Dataset, columns: int, model: str) -> h5py.Dataset:
    """Return a dataset of new rows, which must have at least one, and the columns that those of the model have."""
    where = f"{item.file.filename}: {item.name}"
    if item.shape[1] != columns:
        raise InputError(f"{where}: has {item.shape[1]} columns: {model} have {columns}")
    if not len(item):
        raise InputError(f"{where}: has no rows: give at least one")
    return item
