"""Evaluate the bound and all its gradients at given parameters."""

import argparse
import statistics
import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from mpigp import native
from mpigp.chunks import Share
from mpigp.data.columns import check_rows, note_of, tell
from mpigp.data.datasets import Columns, DataSets, find
from mpigp.data.hdf5 import reading
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable
from mpigp.files.gather import write
from mpigp.files.model_file import ModelFile, open_model
from mpigp.files.provenance import by_rank, cpu, versions
from mpigp.gp.bound import BOUNDS
from mpigp.gp.parameters import Globals
from mpigp.mpi import memory
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import Evaluation, EvaluationFailed, Evaluator
from mpigp.mpi.rows import Rows
from mpigp.mpi.timers import PHASES
from mpigp.types import Comm, Floats

PARALLEL = True

DEFAULT_JITTER = 1e-8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp evaluate`."""
    add = parser.add_argument
    add("data", metavar="DATA", help="HDF5 file with /Y (n, d), and /X (n, q) for regression")
    add("--params", required=True, metavar="MODEL", help="HDF5 file with the parameters; a fitted model is one")
    add("--kernel", metavar="EXPRESSION", help="as in `fit` (default: the parameter file's built-in one, or rbf)")
    add("--bound", choices=BOUNDS, help="as in `fit` (default: the parameter file's, or titsias)")
    add("-o", "--output", metavar="GRAD", help="write /bound and /gradient/... to this HDF5 file")
    add("--repeat", type=int, default=0, metavar="K", help="report the median of K evaluations after a first one")
    add("--x", default="X", metavar="NAME", help="dataset of the inputs (default X)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")
    add("--rows-in-memory", choices=memory.CHOICES, default="auto", help=memory.HELP)
    add("--jitter", type=float, metavar="J",
        help=f"added to the diagonal of K_mm / variance (default: the file's, or {DEFAULT_JITTER:g})")  # fmt: skip


@np.errstate(all="ignore")  # a bound that is not finite is refused
def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Evaluate, print the bound, and write the gradients where asked to."""
    with ExitStack() as files:
        with raise_on_all_ranks(comm):
            if arguments.repeat < 0:
                raise InputError(f"--repeat: is {arguments.repeat}: give a number of evaluations ≥ 0")
            if arguments.jitter is not None and not arguments.jitter >= 0:
                raise InputError(f"--jitter: is {arguments.jitter:g}: give a number ≥ 0")
            if arguments.output is not None and comm.rank == 0:
                check_writable(arguments.output, arguments.data, arguments.params)
            params = files.enter_context(open_model(arguments.params))
            data = files.enter_context(reading(arguments.data))
            model, parameters = params.model(arguments.kernel, arguments.bound), params.parameters()
            jitter = params.jitter(DEFAULT_JITTER) if arguments.jitter is None else arguments.jitter
            sets = find(data, arguments.y, arguments.x if model.name == "regression" else None)
            sets = sets.matched(params.columns(), arguments.params)
        n, (m, q), d = sets.n, parameters.Z.shape, sets.Y.shape[1]
        numbers = d + (q if sets.X is not None else 4 * q)  # X, or mu, S and their gradients
        share = sets.share(comm)
        choice = memory.choose(comm, arguments.rows_in_memory, 8 * share.rows * numbers)
        with raise_on_all_ranks(comm):
            mu, S, Y = read(params, sets, share, q, choice.stream)
        if not choice.stream:
            files.close()
        rows = Rows(comm, n, mu, S, Y)
        evaluator = Evaluator(comm, model, rows, m, q, arguments.threads)
        try:
            evaluation, seconds, phases = timed(evaluator, parameters, jitter, arguments.repeat)
        except EvaluationFailed as error:
            raise InputError(f"{arguments.params}: {error}: move the inducing points apart, or change alpha") from error
        if arguments.repeat:
            del seconds[0], phases[0]
        if arguments.output is not None:
            write_gradients(arguments.output, comm, evaluation, rows)
    medians = {name: statistics.median(each[name] for each in phases) for name in PHASES}
    ranks = by_rank(comm, medians, share.rows)
    alone = comm.rank == 0 and arguments.repeat > 0
    algebra = algebra_seconds(evaluator, parameters, jitter, arguments.repeat) if alone else None
    choice.tell(comm)
    if comm.rank == 0:
        tell(note_of(sets.X), note_of(sets.Y))
    median = statistics.median(seconds)
    if comm.rank == 0:
        print(f"bound {evaluation.bound!r} nats, {median:.4g} s per evaluation "
              f"({model.name}, n = {n}, m = {m}, {comm.size} ranks × {arguments.threads} threads)")  # fmt: skip
        if evaluation.jitter != jitter:
            print(f"jitter: grew from {jitter:g} to {evaluation.jitter:g}, because K_mm could not be factorized")
    return {
        "bound": evaluation.bound, "seconds": median, "ranks": comm.size, "threads": arguments.threads,
        "model": model.name, "bound_name": model.bound, "n": n, "m": m, "q": q, "d": d,
        "jitter": evaluation.jitter, "all_seconds": seconds,
        "messages": evaluator.phases.messages, "bytes": evaluator.phases.bytes,
        "peak_memory": max(ranks.get("memory", [0])), "by_rank": ranks, "algebra": algebra, "cpu": cpu(),
        "rows_in_memory": not choice.stream, "instruction_set": native.instruction_set, "versions": versions(),
    }  # fmt: skip


def timed(
    evaluator: Evaluator, parameters: Globals, jitter: float, repeat: int
) -> tuple[Evaluation, list[float], list[dict[str, float]]]:
    """Evaluate 1 + `repeat` times; return the last evaluation, the seconds of each, and those of its phases."""
    seconds, by_phase = [], []
    for _ in range(1 + repeat):
        evaluator.phases.clear()
        start = time.perf_counter()
        evaluation = evaluator(parameters, jitter)
        seconds.append(time.perf_counter() - start)
        by_phase.append(evaluator.phases.seconds)
    return evaluation, seconds, by_phase


def algebra_seconds(evaluator: Evaluator, parameters: Globals, jitter: float, repeat: int) -> float:
    """Return the seconds of a rank's matrices of size m, which each rank makes: those of an evaluation of a single row
    by this rank alone, without the master's."""
    from mpi4py import MPI

    S = None if evaluator.rows.S is None else np.ones((1, evaluator.q))
    row = Rows(MPI.COMM_SELF, 1, parameters.Z[:1].copy(), S, np.ones((1, evaluator.d)))
    alone = Evaluator(MPI.COMM_SELF, evaluator.model, row, evaluator.m, evaluator.q)
    _, seconds, by_phase = timed(alone, parameters, jitter, repeat)
    return statistics.median(all_ - phases["bound"] for all_, phases in zip(seconds, by_phase, strict=True))


def read(
    params: ModelFile, sets: DataSets, share: Share, q: int, stream: bool
) -> tuple[Columns, Floats | None, Columns]:
    """Return these rows of mu, S and Y, in the model's units."""
    if sets.X is not None:
        check_rows(sets.X, q, f"/Z of {params.name}")
    params.sizes |= {"n": sets.n, "d": sets.Y.shape[1]}
    latent = params.latent(*share) if sets.X is None else None
    X, Y = sets.rows(share, stream)
    for column, values in (("x", X), ("y", Y)):
        units = None if values is None else params.standardization(column)
        if units is not None:
            units.apply(values)
    if latent is not None:
        return *latent, Y
    assert X is not None
    return X, None, Y


def write_gradients(path: str, comm: Comm, evaluation: Evaluation, rows: Rows) -> None:
    """Write the bound and its gradients. Called by all ranks."""
    shared = {} if evaluation.gradient is None else evaluation.gradient._asdict()
    gradients = shared | {name: DistributedRows(comm, rows.n, values) for name, values in rows.gradients.items()}
    datasets = {"bound": evaluation.bound} | {f"gradient/{name}": value for name, value in gradients.items()}
    write(path, comm, datasets, {"/": {"jitter": evaluation.jitter}})
