"""Learn a model: sparse GP regression, or a Bayesian GPLVM."""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from mpigp import checkpoint
from mpigp.alarms import Alarms
from mpigp.atomic import check_writable
from mpigp.data import find
from mpigp.errors import InputError
from mpigp.fingerprint import fingerprint
from mpigp.fitting import Fit, Settings, best_start
from mpigp.forecast import dry_run
from mpigp.hdf5 import read_rows, reading
from mpigp.initialise import PLACEMENTS, latent, start_globals
from mpigp.modelfile import Standardisation
from mpigp.models import MODELS
from mpigp.objective import NAMES, Objective
from mpigp.optimizers import OPTIMIZERS
from mpigp.parameters import Globals
from mpigp.progress import Progress, keep_records, output
from mpigp.ranks import peak_memory, together
from mpigp.rounds import Evaluator
from mpigp.rows import Rows
from mpigp.standardise import standardisation

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

SUMMARY = "learn a model from data"
PARALLEL = True

STOPPED = 75  # exit code: stopped after saving a checkpoint; run again with --resume


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp fit`."""
    add = parser.add_argument
    add("data", metavar="DATA", help="HDF5 file with /Y (n, d), and /X (n, q) for regression")
    add("-o", "--output", required=True, metavar="MODEL", help="the HDF5 file to write")
    add("--model", required=True, choices=list(MODELS), help="what to learn")
    add("--inducing", type=int, required=True, metavar="M", help="number of inducing points")
    add("--latent", type=int, metavar="Q", help="GPLVM: latent dimensions")
    add("--optimizer", choices=list(OPTIMIZERS), default="lbfgs", help="default lbfgs")
    add("--max-iter", type=int, default=1000, metavar="N", help="iterations at most (default 1000)")
    add("--tolerance", type=float, default=1e-8, metavar="T", help="relative change of the bound to stop at")
    add("--gradient-tolerance", type=float, default=1e-4, metavar="T", help="norm of the gradient to stop at")
    add("--hold", type=int, default=30, metavar="N", help="iterations with variance and beta held (default 30)")
    add("--fixed", default="", metavar="NAME,...", help=f"parameters to hold: {', '.join(NAMES)}")
    add("--init", default="pca", metavar="pca|random|FILE", help="GPLVM: latent means (default pca)")
    add("--placement", choices=PLACEMENTS, default="random", help="inducing points at the start (default random)")
    add("--seed", type=int, default=0, metavar="S", help="of everything random (default 0)")
    add("--standardize", choices=["scale", "center", "none"], default="scale", help="columns (default scale)")
    add("--jitter", type=float, default=1e-6, metavar="J", help="added to K_mm's diagonal, per unit of variance")
    add("--resume", action="store_true", help="go on from the checkpoint in MODEL, where there is one")
    add("--checkpoint-every", type=interval, default=(0, math.inf), metavar="N|Nm",
        help="iterations, or minutes with an m, between checkpoints (default: only at the end)")  # fmt: skip
    add("--restarts", type=int, default=1, metavar="K", help="try K starts, and go on from the best (default 1)")
    add("--dry-run", action="store_true", help="print memory, messages and estimated seconds, and run nothing")
    add("--time-limit", type=float, default=math.inf, metavar="S", help="seconds, after which it saves and stops")
    add("--metrics", metavar="FILE.jsonl", help="write one JSON object per iteration to this file")
    add("--x", default="X", metavar="NAME", help="dataset of the inputs (default X)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")


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
    """Read, initialise, iterate, save."""
    every, period = arguments.checkpoint_every
    alarms = Alarms(comm, arguments.time_limit, period)
    with together(comm):
        settings = settings_of(arguments)
        if comm.rank == 0:
            check_writable(arguments.output, arguments.data)
            if arguments.metrics:
                check_writable(arguments.metrics, arguments.data, arguments.output)
        n, share, X, Y = read(arguments, comm)
    data = fingerprint(comm, share.start, X, Y)
    standardised, constant = standardise(arguments.standardize, comm, n, X, Y)
    if arguments.dry_run:
        return dry_run(arguments, comm, n, arguments.latent if X is None else X.shape[1], Y.shape[1])

    def begin(seed: int) -> tuple[Globals, Any, Any]:
        mu, S = (X, None) if X is not None else latent(comm, n, share, Y, arguments.latent, arguments.init, seed)
        long = S is None
        globals_ = start_globals(comm, n, share.start, mu, Y, arguments.inducing, arguments.placement, long, seed)
        return globals_, mu, S

    start, mu, S = begin(arguments.seed)
    rows = Rows(comm, n, mu, S, Y)
    evaluator = Evaluator(comm, MODELS[arguments.model], rows, arguments.inducing, mu.shape[1], arguments.threads)
    objective = Objective(evaluator, arguments.jitter)
    if arguments.restarts > 1 and not arguments.resume:
        start = best_start(objective, settings, begin, arguments.seed, arguments.restarts)
    fit = Fit(objective, settings, start)
    options = options_of(arguments, rows, mu.shape[1], data)
    with together(comm):
        resume(arguments, fit, share, options)

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
                checkpoint.save(arguments.output, comm, fit, options, standardised)

        interrupted: list[str] = []

        def alarm() -> str:
            reason = alarms.agreed()
            interrupted.extend([reason] if reason else [])
            return reason

        alarms.begin()
        fit.run(alarm, told)
        progress.end()
    checkpoint.save(arguments.output, comm, fit, options, standardised)
    return report(arguments, comm, fit, constant, bool(interrupted))


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings of a fit, checked."""
    fixed = frozenset(name for name in arguments.fixed.split(",") if name)
    if unknown := fixed - set(NAMES):
        raise InputError(f"--fixed: {', '.join(sorted(unknown))}: unknown: choose among {', '.join(NAMES)}")
    for option in ("inducing", "latent", "restarts"):
        if getattr(arguments, option) is not None and getattr(arguments, option) < 1:
            raise InputError(f"--{option}: is {getattr(arguments, option)}: give a number ≥ 1")
    if arguments.model == "gplvm" and arguments.latent is None:
        raise InputError("--latent: is missing: a GPLVM needs its number of latent dimensions")
    if not arguments.jitter >= 0:
        raise InputError(f"--jitter: is {arguments.jitter:g}: give a number ≥ 0")
    return Settings(
        arguments.optimizer,
        arguments.max_iter,
        arguments.hold,
        fixed,
        arguments.tolerance,
        arguments.gradient_tolerance,
    )


def read(arguments: argparse.Namespace, comm: Comm) -> tuple[int, Any, Any, Any]:
    """Return the number of rows, this rank's share, and its X (None for a GPLVM) and Y."""
    with reading(arguments.data) as data:
        sets = find(data, arguments.y, arguments.x if arguments.model == "regression" else None)
        share = sets.share(comm)
        X = None if sets.X is None else read_rows(sets.X, *share)
        return sets.n, share, X, read_rows(sets.Y, *share)


def standardise(
    mode: Any, comm: Comm, n: int, X: Any, Y: Any
) -> tuple[dict[str, Standardisation], dict[str, list[int]]]:
    """Standardise the columns in place; return how, and the constant ones."""
    standardised, constant = {}, {}
    for column, values in (("x", X), ("y", Y)):
        if values is not None:
            standardised[column], constant[column] = standardisation(comm, n, values, mode)
            standardised[column].apply(values)
    return ({} if mode == "none" else standardised), constant


def options_of(arguments: argparse.Namespace, rows: Rows, q: int, data: str) -> dict[str, Any]:
    """Return what a checkpoint must have been made with, to be continued."""
    names = ("model", "optimizer", "hold", "fixed", "init", "placement", "seed", "restarts", "standardize", "jitter")
    shape = {"rows": rows.n, "outputs": rows.Y.shape[1], "dimensions": q, "inducing": arguments.inducing}
    return {name: getattr(arguments, name) for name in names} | shape | {"data": data}


def resume(arguments: argparse.Namespace, fit: Fit, share: Any, options: dict[str, Any]) -> None:
    """Take the fit to the checkpoint in the output file, where asked to."""
    if arguments.resume:
        with reading(arguments.output) as file:
            checkpoint.check(file, options)
            checkpoint.load(file, fit, share)


def report(
    arguments: argparse.Namespace, comm: Comm, fit: Fit, constant: dict[str, list[int]], interrupted: bool
) -> dict[str, Any]:
    """Say how it ended, and return the figures."""
    parameters = fit.objective.parameters(fit.optimizer.point)
    memory = peak_memory(comm)
    if comm.rank == 0:
        for column, columns in constant.items():
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
    shares = alpha / alpha.sum()
    lines = [f"alpha {q:3d}  {value:10.4g}  {'█' * round(40 * value / alpha.max())}" for q, value in enumerate(alpha)]
    return "\n".join([*lines, f"effective dimensions: {math.exp(-float(np.sum(shares * np.log(shares)))):.2f}"])
