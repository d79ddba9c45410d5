"""Learn a model: sparse GP regression, or a Bayesian GPLVM."""

from __future__ import annotations

import argparse
import math
import os
import time
from contextlib import ExitStack, closing
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from mpigp.data.datasets import find
from mpigp.data.hdf5 import reading
from mpigp.errors import BAD_INPUT, STOPPED, InputError
from mpigp.files.atomic import Stamp, check_writable, discard_parts, stamp
from mpigp.files.provenance import provenance
from mpigp.fit import checkpoint
from mpigp.fit.dry_run import dry_run, row_numbers
from mpigp.fit.loop import Fit
from mpigp.fit.objective import NAMES
from mpigp.fit.partner_copies import PartnerCheckpoints, restore
from mpigp.fit.progress import Progress, keep_records, output
from mpigp.fit.setup import CHOICES, Options, PreparedFit, prepare
from mpigp.fit.stopping import StopRequests
from mpigp.gp.parameters import effective_dimensions
from mpigp.mpi import memory
from mpigp.mpi.communicator import peak_memory, raise_on_all_ranks
from mpigp.mpi.heartbeat import Heartbeat
from mpigp.mpi.missing import EmptyColumn
from mpigp.mpi.processes import can_survive, say
from mpigp.mpi.ulfm import confirm, is_failure, survivors
from mpigp.types import Comm

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
    add("--resume", action="store_true", help="go on from the checkpoint in MODEL")
    add("--checkpoint-every", type=interval, default=(0, math.inf), metavar="N|Nm",
        help="iterations, or minutes with an m, between checkpoints (default: only at the end)")  # fmt: skip
    add("--missing", action="store_true", help="GPLVM: NaN entries of Y are missing, and take no part")
    add("--rows-in-memory", choices=memory.CHOICES, default="auto", help=memory.HELP)
    add("--on-failure", choices=["recover", "checkpoint", "abort"], default="recover",
        help="when ranks die: go on with the others (default, where the MPI can), or stop")  # fmt: skip
    add("--stall-timeout", type=seconds, metavar="S",
        help="a rank that does not answer for so many seconds is ended, as if it had died")  # fmt: skip
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


def seconds(text: str) -> float:
    """Return a number of seconds ≥ 1."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"is {text}: give seconds, at least 1")
    return found


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Learn; when ranks die on the way, go on with those that are left."""
    alarms = StopRequests(comm, arguments.time_limit, arguments.checkpoint_every[1])
    keeper = PartnerCheckpoints() if arguments.on_failure == "recover" and can_survive() else None
    failure = Failure(stamp(arguments.output))
    with ExitStack() as stack:
        heartbeat: Heartbeat | None = None
        while True:
            try:
                if arguments.stall_timeout and heartbeat is None:
                    heartbeat = stack.enter_context(closing(Heartbeat(comm, arguments.stall_timeout)))
                with ExitStack() as files:
                    return learn(arguments, comm, files, alarms, keeper, failure)
            except Exception as error:
                if not (can_survive() and is_failure(comm, error)):
                    if isinstance(error, InputError) and failure.lost:  # rank 0, who says it as a rule, may be gone
                        return refuse(comm, error)
                    raise
                failure.since = failure.since or time.monotonic()
                comm, gone = survivors(comm, error)
                if not gone:
                    raise
            failure.lost += gone
            if keeper is None:
                return give_up(arguments, comm, gone, failure)
            alarms.comm = comm
            if heartbeat is not None:
                heartbeat.forget(gone)
            if comm.rank == 0:
                say(f"rank {', '.join(map(str, gone))} was lost: going on with {comm.size}")


@dataclass
class Failure:
    """What is to be known about the ranks that died.

    before : the stamp of the output file when the run began: one that differs is of this run
    lost : the ranks.   since : when the first of those died that have not been recovered from; 0 where there are none
    """

    before: Stamp | None
    lost: list[int] = field(default_factory=list)
    since: float = 0.0


def refuse(comm: Comm, error: InputError) -> dict[str, Any]:
    """Say what is wrong with the input, and return the figures of a run that ends there."""
    if comm.rank == 0:
        say(str(error))
    return {"master": comm.rank == 0, "exit_code": BAD_INPUT}


def give_up(arguments: argparse.Namespace, comm: Comm, gone: list[int], failure: Failure) -> dict[str, Any]:
    """Say that ranks were lost, and return the figures of a run that ends there."""
    kept = arguments.on_failure == "checkpoint" and stamp(arguments.output) not in (None, failure.before)
    if comm.rank == 0:
        discard_parts(arguments.output)
        remedy = "go on with --resume" if kept else "start again"
        say(f"rank {', '.join(map(str, gone))} was lost: {remedy}")
    return {"lost": gone, "master": comm.rank == 0, "exit_code": STOPPED if kept else 1}


def learn(
    arguments: argparse.Namespace,
    comm: Comm,
    files: ExitStack,
    alarms: StopRequests,
    keeper: PartnerCheckpoints | None,
    failure: Failure,
) -> dict[str, Any]:
    """Read, initialise or take up, iterate, save.

    files : what is to be closed at the end
    keeper : has the copies to go on from, where ranks were lost before; None where none are to be kept
    """
    every = arguments.checkpoint_every[0]
    with raise_on_all_ranks(comm):
        options = options_of(arguments)
        if comm.rank == 0:
            inputs = [arguments.data, *([arguments.init] if os.path.isfile(arguments.init) else [])]
            check_writable(arguments.output, *inputs)
            if failure.lost:
                discard_parts(arguments.output)
            if arguments.metrics:
                check_writable(arguments.metrics, *inputs, arguments.output)
        if options.missing and arguments.rows_in_memory == "stream":
            raise InputError("--rows-in-memory stream: is not for rows with --missing entries: leave one of them out")
        data = files.enter_context(reading(arguments.data))
        sets = find(data, arguments.y, arguments.x if options.model == "regression" else None)
    n, share, d = sets.n, sets.share(comm), sets.Y.shape[1]
    q = options.latent if sets.X is None else sets.X.shape[1]
    assert q is not None
    asked = "all" if options.missing else arguments.rows_in_memory
    copies = keeper is not None and comm.size > 1
    choice = memory.choose(comm, asked, 8 * share.rows * row_numbers(options, q, d, copies))
    with raise_on_all_ranks(comm):
        X, Y = sets.rows(share, choice.stream, options.missing)
    if not choice.stream:
        files.close()
    if arguments.dry_run:
        choice.tell(comm)
        return dry_run(options, comm, n, q, d, choice.stream, copies)
    held = keeper.holders(comm) if keeper is not None and failure.lost else None
    saved = arguments.resume or (held is None and bool(failure.lost) and has_saved(arguments, comm, failure))
    try:
        learning = prepare(comm, n, share, X, Y, options, resuming=saved or held is not None)
    except EmptyColumn as error:
        raise InputError(f"{arguments.data}: /{arguments.y}: {error}") from error
    fit = learning.fit
    made = provenance(comm, options.threads, arguments.command_line)
    if held is not None and keeper is not None and keeper.copy is not None:
        restore(comm, fit, keeper.copy, held)
    elif saved:
        with raise_on_all_ranks(comm), reading(arguments.output) as file:
            checkpoint.check(file, learning.identity)
            checkpoint.load(file, fit, share)
    if keeper is not None and held is not None:
        keeper.refresh(comm, fit, at_once=True)  # there is no second of what was lost
    if failure.since:
        source = "copies in memory" if held is not None else "the checkpoint" if saved else "the beginning"
        if comm.rank == 0:
            seconds = time.monotonic() - failure.since
            say(f"recovered in {seconds:.2f} s: going on from {source}, at iteration {fit.iteration}")
        failure.since = 0.0
    choice.tell(comm)

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
                checkpoint.save(arguments.output, comm, fit, learning.identity, learning.standardized, made)
            if keeper is not None:
                keeper.refresh(comm, fit)

        interrupted: list[str] = []

        def alarm() -> str:
            reason = alarms.agreed()
            interrupted.extend([reason] if reason else [])
            return reason

        alarms.begin()
        fit.run(alarm, told)
        progress.end()
    checkpoint.save(arguments.output, comm, fit, learning.identity, learning.standardized, made)
    most = peak_memory(comm)
    confirm(comm)  # so that all ranks end here, or none
    figures = report(arguments, comm, learning, bool(interrupted))
    kept: dict[str, Any] = {} if keeper is None else {"copies": keeper.count, "copy_seconds": keeper.seconds}
    kept |= {"peak_memory": most, "rows_in_memory": not choice.stream}
    return figures | {"lost": failure.lost, **kept, "master": comm.rank == 0}


def has_saved(arguments: argparse.Namespace, comm: Comm, failure: Failure) -> bool:
    """Return whether this run has written a checkpoint, as rank 0 sees it. Called by all ranks."""
    found = np.array([stamp(arguments.output) not in (None, failure.before)])
    comm.Bcast(found)
    confirm(comm)
    return bool(found[0])


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options of a fit, checked."""
    options = Options(**{each.name: getattr(arguments, each.name) for each in fields(Options)})
    try:
        options.check()
    except InputError as error:
        raise InputError(f"--{error}") from None
    return options


def report(arguments: argparse.Namespace, comm: Comm, learning: PreparedFit, interrupted: bool) -> dict[str, Any]:
    """Say how it ended, and return the figures."""
    fit = learning.fit
    parameters = fit.objective.parameters(fit.optimizer.point)
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
        "exit_code": STOPPED if interrupted else 0,
    }


def bars(alpha: Any) -> str:
    """Return the ARD weights as bars, and the effective number of dimensions."""
    lines = [f"alpha {q:3d}  {value:10.4g}  {'█' * round(40 * value / alpha.max())}" for q, value in enumerate(alpha)]
    return "\n".join([*lines, f"effective dimensions: {effective_dimensions(alpha):.2f}"])
