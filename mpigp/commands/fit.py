"""Learn a model: sparse GP regression, or a Bayesian GPLVM."""

from __future__ import annotations

import argparse
import math
import time
from contextlib import ExitStack
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from mpigp import checkpoint
from mpigp.alarms import Alarms
from mpigp.atomic import check_writable
from mpigp.chunks import Share
from mpigp.copies import Keeper, restore
from mpigp.data import find
from mpigp.errors import InputError
from mpigp.fitting import Fit
from mpigp.forecast import dry_run
from mpigp.hdf5 import read_rows, reading
from mpigp.launch import STOPPED, saved_since
from mpigp.learning import CHOICES, Learning, Options, prepare
from mpigp.missing import EmptyColumn
from mpigp.objective import NAMES
from mpigp.parameters import effective_dimensions
from mpigp.progress import Progress, keep_records, output
from mpigp.provenance import provenance
from mpigp.ranks import peak_memory, say, together
from mpigp.survival import can_survive, is_failure, survivors

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

SUMMARY = "learn a model from data"
PARALLEL = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp fit`."""
    parser.set_defaults(**{each.name: each.default for each in fields(Options) if each.default is not MISSING})
    add = parser.add_argument
    add("data", metavar="DATA", help="HDF5 file with /Y (n, d), and /X (n, q) for regression")
    add("-o", "--output", required=True, metavar="MODEL", help="the HDF5 file to write")
    add("--model", required=True, choices=CHOICES["model"], help="what to learn")
    add("--kernel", metavar="NAME", help="rbf, matern52 (regression), or package.module:Name (default %(default)s)")
    add("--inducing", type=int, required=True, metavar="M", help="number of inducing points")
    add("--latent", type=int, metavar="Q", help="GPLVM: latent dimensions")
    add("--optimizer", choices=CHOICES["optimizer"], help="default %(default)s")
    add("--max-iter", type=int, metavar="N", help="iterations at most (default %(default)s)")
    add("--tolerance", type=float, metavar="T", help="relative change of the bound to stop at (default %(default)s)")
    add("--gradient-tolerance", type=float, metavar="T", help="norm of the gradient to stop at (default %(default)s)")
    add("--hold", type=int, metavar="N", help="iterations with variance and beta held (default %(default)s)")
    add("--fixed", type=names, metavar="NAME,...", help=f"parameters to hold: {', '.join(NAMES)}")
    add("--init", metavar="pca|random|FILE", help="GPLVM: latent means (default %(default)s)")
    add("--placement", choices=CHOICES["placement"], help="inducing points at the start (default %(default)s)")
    add("--seed", type=int, metavar="S", help="of everything random (default %(default)s)")
    add("--standardize", choices=CHOICES["standardize"], help="columns (default %(default)s)")
    add("--jitter", type=float, metavar="J",
        help="added to K_mm's diagonal, per unit of variance (default %(default)s)")  # fmt: skip
    add("--restarts", type=int, metavar="K", help="try K starts, and go on from the best (default %(default)s)")
    add("--resume", action="store_true", help="go on from the checkpoint in MODEL, where there is one")
    add("--checkpoint-every", type=interval, default=(0, math.inf), metavar="N|Nm",
        help="iterations, or minutes with an m, between checkpoints (default: only at the end)")  # fmt: skip
    add("--missing", action="store_true", help="GPLVM: NaN entries of Y are missing, and take no part")
    add("--on-failure", choices=["recover", "checkpoint", "abort"], default="recover",
        help="when ranks die: go on with the others (default, where the MPI can), or stop")  # fmt: skip
    add("--dry-run", action="store_true", help="print memory, messages and estimated seconds, and run nothing")
    add("--time-limit", type=float, default=math.inf, metavar="S", help="seconds, after which it saves and stops")
    add("--metrics", metavar="FILE.jsonl", help="write one JSON object per iteration to this file")
    add("--x", default="X", metavar="NAME", help="dataset of the inputs (default X)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")


def names(text: str) -> frozenset[str]:
    """Return the names of a list with commas."""
    return frozenset(name for name in text.split(",") if name)


def interval(text: str) -> tuple[int, float]:
    """Return iterations (0 for none) and seconds (inf for none) of an interval: `50`, or `10m` for minutes."""
    try:
        found = (0, 60 * float(text[:-1])) if text.endswith("m") else (int(text), math.inf)
    except ValueError:
        found = (-1, 0.0)
    if found[0] < 0 or not found[1] > 0:
        raise argparse.ArgumentTypeError(f"is {text}: give iterations (50) or minutes (10m)")
    return found


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Learn; when ranks die on the way, go on with those that are left."""
    alarms = Alarms(comm, arguments.time_limit, arguments.checkpoint_every[1])
    keeper = Keeper() if arguments.on_failure == "recover" and can_survive() else None
    lost: list[int] = []
    began = time.time()
    while True:
        try:
            return learn(arguments, comm, alarms, keeper, lost)
        except InputError:
            raise
        except Exception as error:
            if not (can_survive() and is_failure(comm, error)):
                raise
            comm, gone = survivors(comm)
            if not gone:
                raise
        lost += gone
        if keeper is None:
            return give_up(arguments, comm, gone, began)
        alarms.comm = comm
        if comm.rank == 0:
            say(f"rank {', '.join(map(str, gone))} was lost: going on with {comm.size}")


def give_up(arguments: argparse.Namespace, comm: Comm, gone: list[int], began: float) -> dict[str, Any]:
    """Say that ranks were lost, and return the figures of a run that ends there."""
    kept = arguments.on_failure == "checkpoint" and saved_since(arguments.output, began)
    if comm.rank == 0:
        remedy = "go on with --resume" if kept else "start again"
        say(f"rank {', '.join(map(str, gone))} was lost: {remedy}")
    return {"lost": gone, "master": comm.rank == 0, "exit_code": STOPPED if kept else 1}


def learn(
    arguments: argparse.Namespace, comm: Comm, alarms: Alarms, keeper: Keeper | None, lost: list[int]
) -> dict[str, Any]:
    """Read, initialise or take up, iterate, save.

    keeper : has the copies to go on from, where ranks were `lost` before; None where none are to be kept
    """
    every = arguments.checkpoint_every[0]
    with together(comm):
        options = options_of(arguments)
        if comm.rank == 0:
            check_writable(arguments.output, arguments.data)
            if arguments.metrics:
                check_writable(arguments.metrics, arguments.data, arguments.output)
        n, share, X, Y = read(arguments, comm)
    if arguments.dry_run:
        q = options.latent if X is None else X.shape[1]
        assert q is not None
        return dry_run(options, comm, n, q, Y.shape[1])
    try:
        learning = prepare(comm, n, share, X, Y, options, resuming=arguments.resume)
    except EmptyColumn as error:
        raise InputError(f"{arguments.data}: /{arguments.y}: {error}") from error
    fit = learning.fit
    made = provenance(comm, options.threads, arguments.command_line)
    with together(comm):
        take_up(arguments, comm, learning, share, keeper, bool(lost))

    with ExitStack() as stack:
        progress = Progress(None, None)
        if comm.rank == 0:
            if arguments.metrics and fit.iteration:
                keep_records(arguments.metrics, fit.iteration)
            mode = "a" if fit.iteration else "w"
            metrics = stack.enter_context(open(arguments.metrics, mode)) if arguments.metrics else None
            progress = Progress(output(), metrics)

        def told(fit: Fit) -> None:
            progress(fit)
            if (every and fit.iteration % every == 0) or alarms.due():
                checkpoint.save(arguments.output, comm, fit, learning.identity, learning.standardised, made)
                if keeper is not None:
                    keeper.saved = True
            if keeper is not None:
                keeper.refresh(comm, fit)

        interrupted: list[str] = []

        def alarm() -> str:
            reason = alarms.agreed()
            if keeper is not None:
                keeper.settle()
            interrupted.extend([reason] if reason else [])
            return reason

        alarms.begin()
        fit.run(alarm, told)
        progress.end()
    checkpoint.save(arguments.output, comm, fit, learning.identity, learning.standardised, made)
    return report(arguments, comm, learning, bool(interrupted)) | {"lost": lost, "master": comm.rank == 0}


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options of a fit, checked."""
    options = Options(**{each.name: getattr(arguments, each.name) for each in fields(Options)})
    try:
        options.check()
    except InputError as error:
        raise InputError(f"--{error}") from None
    return options


def read(arguments: argparse.Namespace, comm: Comm) -> tuple[int, Any, Any, Any]:
    """Return the number of rows, this rank's share, and its X (None for a GPLVM) and Y."""
    with reading(arguments.data) as data:
        sets = find(data, arguments.y, arguments.x if arguments.model == "regression" else None)
        share = sets.share(comm)
        X = None if sets.X is None else read_rows(sets.X, *share)
        return sets.n, share, X, read_rows(sets.Y, *share, missing=arguments.missing)


def take_up(
    arguments: argparse.Namespace, comm: Comm, learning: Learning, share: Share, keeper: Keeper | None, after: bool
) -> None:
    """Take the fit to the ranks' copies `after` a failure, or to the checkpoint in the output file, where asked to.

    Where there is neither, it begins again: its bits are the same.
    """
    saved = arguments.resume
    if after and keeper is not None:
        if restore(comm, learning.fit, keeper.copies):
            return
        saved = saved or any(comm.allgather(keeper.saved))
    if saved:
        with reading(arguments.output) as file:
            checkpoint.check(file, learning.identity)
            checkpoint.load(file, learning.fit, share)


def report(arguments: argparse.Namespace, comm: Comm, learning: Learning, interrupted: bool) -> dict[str, Any]:
    """Say how it ended, and return the figures."""
    fit = learning.fit
    parameters = fit.objective.parameters(fit.optimizer.point)
    memory = peak_memory(comm)
    if comm.rank == 0:
        for column, columns in learning.constant.items():
            if columns:
                print(f"constant columns of {column.upper()}: {', '.join(map(str, columns))}")
        print(f"{arguments.output}: bound {fit.bound!r} nats")
        print(f"{fit.iteration} iterations, {fit.evaluations} evaluations; stopped because {fit.stopped}")
        if interrupted:
            print("go on with --resume")
        print(bars(parameters.alpha))
        if fit.objective.largest_jitter > fit.objective.jitter:
            print(f"jitter: grew from {fit.objective.jitter:g} to {fit.objective.largest_jitter:g} at some points")
        if parameters.beta * parameters.variance < 2:
            print("warning: the noise is as large as the signal: the fit explained next to nothing")
    return {
        "bound": fit.bound,
        "iterations": fit.iteration,
        "evaluations": fit.evaluations,
        "seconds": fit.trace.seconds[-1] if fit.iteration else 0.0,
        "beta": parameters.beta,
        "variance": parameters.variance,
        "alpha": parameters.alpha.tolist(),
        "stopped": fit.stopped,
        "ranks": comm.size,
        "peak_memory": memory,
        "exit_code": STOPPED if interrupted else 0,
    }


def bars(alpha: Any) -> str:
    """Return the ARD weights as bars, and the effective number of dimensions."""
    lines = [f"alpha {q:3d}  {value:10.4g}  {'█' * round(40 * value / alpha.max())}" for q, value in enumerate(alpha)]
    return "\n".join([*lines, f"effective dimensions: {effective_dimensions(alpha):.2f}"])
