"""Embed new rows in the latent space of a GPLVM; NaN entries are missing."""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from mpigp.chunks import share
from mpigp.commands.applying import check_finite, timed
from mpigp.data.columns import check_rows, match, note_of, tell
from mpigp.data.hdf5 import dataset, read_rows, reading
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable
from mpigp.files.gather import write
from mpigp.files.model_file import KERNEL, LATENT, column_section, open_model, section
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
    n, posterior, candidates, Y, columns, note = read(arguments, comm)
    result, seconds = timed(comm, method, posterior, candidates, Y, arguments.threads)
    check_finite(comm, arguments.model, result)
    rows: dict[str, Any] = {name: DistributedRows(comm, n, values) for name, values in result._asdict().items()}
    if "mu" in rows:
        rows = section(LATENT, (rows.pop("mu"), rows.pop("S"))) | rows
    else:
        rows |= column_section(columns)
    write(arguments.output, comm, rows)
    if comm.rank == 0:
        tell(note)
        print(f"{arguments.output}: {n} rows {done} in {seconds:.3g} s")
    return {"n": n, "seconds": seconds, "ranks": comm.size, "threads": arguments.threads}


class OutputRows(NamedTuple):
    """The number of new rows, the model as embedding takes it, and this rank's Y, with its NaN.

    columns : names of the model's columns.   note : how they were found, where it is worth a line
    """

    n: int
    posterior: Posterior
    candidates: Candidates
    Y: Floats
    columns: dict[str, list[str]]
    note: str


def read(arguments: argparse.Namespace, comm: Comm) -> OutputRows:
    """Return the model and the new rows."""
    with raise_on_all_ranks(comm):
        if comm.rank == 0:
            check_writable(arguments.output, arguments.model, arguments.new)
        with open_model(arguments.model) as model:
            posterior = model.posterior(arguments.kernel)
            if posterior.model != "gplvm":
                raise InputError(f"{arguments.model}: is a {posterior.model} model: only a GPLVM has latent points")
            candidates, columns = model.candidates(), model.columns()
        with reading(arguments.new) as file:
            give = f"give the outputs of the model, (n, {posterior.d})"
            item = match(dataset(file, arguments.y, 2, give), columns.get("y"), f"the outputs of {arguments.model}")
            check_rows(item, posterior.d, f"the outputs of {arguments.model}")
            Y = read_rows(item, *share(len(item), comm.rank, comm.size), missing=True)
            return OutputRows(len(item), posterior, candidates, Y, columns, note_of(item))
