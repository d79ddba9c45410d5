"""Predict by a model: mean and variance at new inputs, or at latent points of a GPLVM; inputs may be uncertain."""

import argparse
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpigp.chunks import Share, share
from mpigp.commands.applying import check_finite, timed
from mpigp.data.columns import ColumnView, Source, check_rows, column_names, match, note_of, tell
from mpigp.data.hdf5 import dataset, read_rows, reading
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable
from mpigp.files.gather import write
from mpigp.files.model_file import KERNEL, column_section, open_model
from mpigp.gp.posterior import JOINT_ROWS, Posterior
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows, scores
from mpigp.types import Comm, Floats

PARALLEL = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp predict`."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="what `mpigp fit` wrote")
    add("new", metavar="NEW", help="HDF5 file with /X (n, q), and where known /X_variance (n, q) and /Y (n, d)")
    add("-o", "--output", required=True, metavar="PRED", help="the HDF5 file to write")
    add("--samples", type=int, default=0, metavar="K", help="also write K joint draws of the function")
    add("--seed", type=int, default=0, metavar="S", help="of the draws (default 0)")
    add("--components", action="store_true", help="also write the mean and variance of each term of a composed kernel")
    add("--x", default="X", metavar="NAME", help="dataset of the inputs (default X)")
    add("--y", metavar="NAME", help="dataset of the outputs to score against (default Y, if there)")
    add("--kernel", metavar="EXPRESSION", help=KERNEL)


@np.errstate(all="ignore")  # predictions that are not finite are refused
def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Read, predict, score, write."""
    with raise_on_all_ranks(comm):
        if arguments.samples < 0:
            raise InputError(f"--samples: is {arguments.samples}: give a number of draws ≥ 0")
        if arguments.seed < 0:
            raise InputError(f"--seed: is {arguments.seed}: give a number ≥ 0")
        if comm.rank == 0:
            check_writable(arguments.output, arguments.model, arguments.new)
        with open_model(arguments.model) as model:
            posterior, columns = model.posterior(arguments.kernel), model.columns()
        with reading(arguments.new) as file:
            n, X, X_variance, Y, notes, everything = read(arguments, file, posterior, columns, comm)
        if arguments.components and X_variance is not None:
            raise InputError(
                f"{arguments.new}: /{arguments.x}_variance: --components is for certain inputs: leave it out"
            )
        components = posterior.components(X, arguments.threads) if arguments.components else {}

    if X_variance is None:
        prediction, seconds = timed(comm, posterior.predict, X, arguments.threads)
    else:
        prediction, seconds = timed(comm, posterior.predict_uncertain, X, X_variance, arguments.threads)
    check_finite(comm, arguments.model, (*prediction, 1 / prediction.y_variance))
    for component in components.values():
        check_finite(comm, arguments.model, component[:2])
    figures: dict[str, Any] = {"n": n, "seconds": seconds, "ranks": comm.size, "threads": arguments.threads}
    if Y is not None:
        figures |= scores(comm, n, [(prediction, Y)])
    datasets: dict[str, Any] = {name: DistributedRows(comm, n, values) for name, values in prediction._asdict().items()}
    for name, component in components.items():
        for kind, values in (("mean", component.mean), ("variance", component.variance)):
            datasets[f"components/{name}/{kind}"] = DistributedRows(comm, n, values)
    with raise_on_all_ranks(comm):
        if everything is not None:
            datasets["samples"] = posterior.sample(everything, arguments.samples, arguments.seed)
    write(arguments.output, comm, datasets | column_section({"y": columns["y"]} if "y" in columns else {}))
    if comm.rank == 0:
        tell(*notes)
        print(f"{arguments.output}: {n} rows predicted in {seconds:.3g} s")
        if Y is not None:
            print(f"RMSE {figures['rmse']:.6g}, mean log density {figures['log_density']:.6g} nats per row")
    return figures


class InputRows(NamedTuple):
    """The number of rows, and this rank's X, X_variance and Y; the last two where the file has them.

    notes : how columns were found.   everything : X of all ranks, on rank 0, where samples are drawn
    """

    n: int
    X: Floats
    X_variance: Floats | None
    Y: Floats | None
    notes: list[str]
    everything: Floats | None


def read(
    arguments: argparse.Namespace, file: h5py.File, posterior: Posterior, columns: dict[str, list[str]], comm: Comm
) -> InputRows:
    """Return the new rows, with the columns of the model."""
    given = dataset(file, arguments.x, 2, f"`predict` needs the inputs of the model, (n, {posterior.q})")
    item = match(given, columns.get("x"), f"the inputs of {arguments.model}")
    check_rows(item, posterior.q, f"the inputs of {arguments.model}")
    n, where = len(item), f"{file.filename}: {item.name}"
    if arguments.samples and n > JOINT_ROWS:
        raise InputError(f"{where}: has {n} rows: --samples draws at {JOINT_ROWS} at most: give fewer rows")
    if arguments.samples and f"{arguments.x}_variance" in file:
        raise InputError(f"{where}_variance: --samples draws at certain inputs: leave it out")
    part = share(n, comm.rank, comm.size)
    X = read_rows(item, *part)
    variances = beside(file, f"{arguments.x}_variance", (n, posterior.q))
    if variances is not None and isinstance(item, ColumnView) and column_names(variances) is None:
        if variances.shape != given.shape:
            differ = f"has shape {variances.shape}, and {item.name} {given.shape}"
            raise InputError(
                f"{where}_variance: {differ}: give a variance for each of its columns, or name the columns"
            )
        variances = ColumnView(variances, item.columns, "")
    elif variances is not None:
        variances = match(variances, columns.get("x"), f"the inputs of {arguments.model}")
    variance = read_beside(variances, (n, posterior.q), part)
    if variance is not None and not posterior.backend.latent:
        raise InputError(f"{where}_variance: the kernel {posterior.kernel} has no psi statistics: leave it out")
    if variance is not None and not (variance >= 0).all():
        row = part.start + int(np.flatnonzero((variance < 0).any(axis=1))[0])
        raise InputError(f"{where}_variance: row {row} (counted from 0) holds a value < 0: variances are ≥ 0")
    outputs = beside(file, arguments.y or "Y", (n, posterior.d), arguments.y is not None)
    if outputs is not None:
        outputs = match(outputs, columns.get("y"), f"the outputs of {arguments.model}")
    Y = read_beside(outputs, (n, posterior.d), part)
    everything = read_rows(item, 0, n) if arguments.samples and comm.rank == 0 else None
    return InputRows(n, X, variance, Y, [note_of(each) for each in (item, variances, outputs)], everything)


def beside(file: h5py.File, name: str, shape: tuple[int, int], needed: bool = False) -> Any:
    """Return a dataset beside X, which is to have this shape; None where it is not there, nor `needed`."""
    return dataset(file, name, 2, f"make it {shape}, or leave it out") if name in file or needed else None


def read_beside(item: Source | None, shape: tuple[int, int], part: Share) -> Floats | None:
    """Return this rank's rows of a dataset that must have this shape; None where there is none."""
    if item is None:
        return None
    if item.shape != shape:
        where = f"{item.file.filename}: {item.name}"
        raise InputError(f"{where}: has shape {item.shape}: with this model and X it must be {shape}")
    return read_rows(item, *part)
