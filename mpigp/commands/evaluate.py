"""Evaluate the bound and all its gradients at given parameters."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

import h5py

from mpigp import native
from mpigp.atomic import check_writable, replacing
from mpigp.data import find
from mpigp.errors import InputError
from mpigp.hdf5 import read_rows, reading
from mpigp.modelfile import read_globals, read_jitter, read_latent, read_model, read_model_name, read_standardisation
from mpigp.models import Model, model_of
from mpigp.parameters import Globals
from mpigp.ranks import gather_rows, peak_memory, together
from mpigp.results import write_rows
from mpigp.rounds import Evaluation, EvaluationFailed, Evaluator
from mpigp.rows import Rows

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

SUMMARY = "the bound and all its gradients at given parameters, and the seconds that takes"
PARALLEL = True

DEFAULT_JITTER = 1e-8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp evaluate`."""
    add = parser.add_argument
    add("data", metavar="DATA", help="HDF5 file with /Y (n, d), and /X (n, q) for regression")
    add(
        "--params",
        required=True,
        metavar="MODEL",
        help="HDF5 file with the parameters; a fitted model is one",
    )
    add("--kernel", metavar="NAME", help="as in `fit` (default: the parameter file's, or rbf)")
    add("-o", "--output", metavar="GRAD", help="write /bound and /gradient/... to this HDF5 file")
    add(
        "--repeat",
        type=int,
        default=0,
        metavar="K",
        help="time K evaluations after a first one, and report the median",
    )
    add("--x", default="X", metavar="NAME", help="dataset of the inputs (default X)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")
    add(
        "--jitter",
        type=float,
        metavar="J",
        help=f"added to the diagonal of K_mm, per unit of variance (default: the file's, or {DEFAULT_JITTER:g})",
    )


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Evaluate, print the bound, and write the gradients where asked to."""
    with together(comm):
        if arguments.repeat < 0:
            raise InputError(f"--repeat: is {arguments.repeat}: give a number of evaluations ≥ 0")
        if arguments.jitter is not None and not arguments.jitter >= 0:
            raise InputError(f"--jitter: is {arguments.jitter:g}: give a number ≥ 0")
        if arguments.output is not None and comm.rank == 0:
            check_writable(arguments.output, arguments.data, arguments.params)
        model, parameters, jitter, n, arrays = read(arguments, comm)
    m, q = parameters.Z.shape
    rows = Rows(comm, n, *arrays)
    evaluator = Evaluator(comm, model, rows, m, q, arguments.threads)

    try:
        start = time.perf_counter()
        evaluation = evaluator(parameters, jitter)
        seconds = [time.perf_counter() - start]
        if arguments.repeat:
            seconds = []
            evaluator.phases.clear()
        for _ in range(arguments.repeat):
            start = time.perf_counter()
            evaluation = evaluator(parameters, jitter)
            seconds.append(time.perf_counter() - start)
    except EvaluationFailed as error:
        raise InputError(f"{arguments.params}: {error}: move the inducing points apart, or change alpha") from error

    if arguments.output is not None:
        write(arguments.output, comm, evaluation, rows)
    figures = {
        "bound": evaluation.bound,
        "seconds": statistics.median(seconds),
        "ranks": comm.size,
        "threads": arguments.threads,
        "model": model.name,
        "n": n,
        "m": m,
        "q": q,
        "d": rows.Y.shape[1],
        "jitter": evaluation.jitter,
        "all_seconds": seconds,
        "phases": {name: total / len(seconds) for name, total in evaluator.phases.seconds.items()},
        "messages": evaluator.phases.messages / len(seconds),
        "bytes": evaluator.phases.bytes / len(seconds),
        "peak_memory": peak_memory(comm),
        "instruction_set": native.instruction_set,
    }
    if comm.rank == 0:
        print(f"bound {evaluation.bound!r} nats, {figures['seconds']:.4g} s per evaluation "
              f"({model.name}, n = {n}, m = {m}, {comm.size} ranks × {arguments.threads} threads)")  # fmt: skip
        if evaluation.jitter != jitter:
            print(f"jitter: grew from {jitter:g} to {evaluation.jitter:g}, because K_mm could not be factorised")
    return figures


def read(arguments: argparse.Namespace, comm: Comm) -> tuple[Model, Globals, float, int, tuple[Any, Any, Any]]:
    """Return the model, its globals, the jitter, the number of rows, and this rank's mu, S and Y."""
    with reading(arguments.params) as params, reading(arguments.data) as data:
        model = chosen_model(arguments, params)
        parameters = read_globals(params)
        q = parameters.Z.shape[1]
        jitter = read_jitter(params, DEFAULT_JITTER) if arguments.jitter is None else arguments.jitter
        sets = find(data, arguments.y, arguments.x if model.name == "regression" else None)
        start, stop = sets.share(comm)
        S = None
        if sets.X is None:
            mu, S = read_latent(params, sets.n, q, start, stop)
        else:
            if sets.X.shape[1] != q:
                raise InputError(
                    f"{arguments.params}: /Z: has {q} columns, and {sets.X.name} of {arguments.data} has "
                    f"{sets.X.shape[1]}: they must agree"
                )
            mu = standardised(params, "x", read_rows(sets.X, start, stop))
        Y = standardised(params, "y", read_rows(sets.Y, start, stop))
        return model, parameters, jitter, sets.n, (mu, S, Y)


def chosen_model(arguments: argparse.Namespace, params: h5py.File) -> Model:
    """Return the parameter file's model, with another kernel where asked for one."""
    if arguments.kernel is None:
        return read_model(params)
    try:
        return model_of(read_model_name(params), arguments.kernel)
    except InputError as error:
        raise InputError(f"--kernel: {error}") from error


def standardised(params: h5py.File, column: str, values: Any) -> Any:
    """Take rows to the model's units, where the parameter file says how."""
    standardisation = read_standardisation(params, column, values.shape[1])
    return values if standardisation is None else standardisation.apply(values)


def write(path: str, comm: Comm, evaluation: Evaluation, rows: Rows) -> None:
    """Write the bound and its gradients; rank 0 writes, the others send it their rows."""
    if comm.rank != 0:
        for values in rows.gradients.values():
            list(gather_rows(comm, values))
        return
    assert evaluation.gradient is not None
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file["bound"] = evaluation.bound
        file.attrs["jitter"] = evaluation.jitter
        for name, value in evaluation.gradient._asdict().items():
            file[f"gradient/{name}"] = value
        for name, values in rows.gradients.items():
            write_rows(file, f"gradient/{name}", comm, values, rows.n)
