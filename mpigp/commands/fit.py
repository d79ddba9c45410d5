"""Learn a model: sparse GP regression, or a Bayesian GPLVM."""

import argparse
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from mpigp.commands import in_options
from mpigp.data.columns import listed, numbered
from mpigp.data.datasets import DataSets, find
from mpigp.data.hdf5 import reading
from mpigp.errors import BAD_INPUT, FAILED, STOPPED, InputError, OutputError
from mpigp.fit.driver import Driver, RanksLost, Source
from mpigp.fit.objective import NAMES
from mpigp.fit.options import CHOICES, HOLD, Interval, Options, RunOptions, interval
from mpigp.fit.setup import PreparedFit
from mpigp.fit.start.growing import EXPLAINED, NATS
from mpigp.gp.parameters import Globals, effective_dimensions
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.composition import named_values
from mpigp.mpi import memory
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.heartbeat import STALL
from mpigp.mpi.processes import printable, say
from mpigp.types import Comm, Floats

PARALLEL = True

MOST_INDUCING = 128  # that `--inducing auto` takes, unless told otherwise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data, and the options of what to learn, how, and what happens beside the iterations."""
    parser.set_defaults(**{each.name: each.default for each in fields(Options) if each.default is not MISSING})
    add = parser.add_argument
    add("data", metavar="DATA", help="HDF5 file with /Y (n, d), and /X (n, q) for regression")
    add("-o", "--output", required=True, metavar="MODEL", help="the HDF5 file to write")
    add("--model", required=True, choices=CHOICES["model"], help="what to learn")
    add("--kernel", metavar="EXPRESSION", help="a sum of products of rbf, matern12, matern32, matern52, rq, "
        "periodic, linear and bias, each on all columns or some, such as 'matern32[0:3] * periodic[hour] + bias'; or "
        "package.module:Name (default %(default)s)")  # fmt: skip
    add("--bound", choices=CHOICES["bound"], help="titsias, or a tighter evidence lower bound (default %(default)s)")
    add("--inducing", type=inducing_points, required=True, metavar="M|auto[:NATS]",
        help="number of inducing points; auto: as many as it takes, until more can gain no more than NATS per row "
        f"(regression, default {NATS:g})")  # fmt: skip
    add("--max-inducing", type=int, default=MOST_INDUCING, metavar="M",
        help="inducing points that auto takes at most (default %(default)s)")  # fmt: skip
    add("--latent", type=int, metavar="Q", help="GPLVM: latent dimensions")
    add("--optimizer", choices=CHOICES["optimizer"], help="default %(default)s")
    add("--max-iter", type=int, metavar="N", help="iterations at most (default %(default)s)")
    add("--tolerance", type=float, metavar="T", help="relative change of the bound to stop at (default %(default)s)")
    add("--gradient-tolerance", type=float, metavar="T", help="norm of the gradient to stop at (default %(default)s)")
    add("--hold", type=int, metavar="N", help="iterations with variance and beta held at the start "
        f"(default: {', '.join(f'{model} {count}' for model, count in HOLD.items())})")  # fmt: skip
    add("--fixed", type=lambda text: frozenset(filter(None, text.split(","))), metavar="NAME,...",
        help=f"parameters to hold: {', '.join(NAMES)}")  # fmt: skip
    add("--start", choices=CHOICES["start"],
        help="regression: try several starts, on few rows at first (auto, the default), or a single one, on all "
        "rows")  # fmt: skip
    add("--init", metavar="pca|random|FILE", help="GPLVM: latent means (default %(default)s)")
    add("--placement", choices=CHOICES["placement"], help="inducing points at the start (default %(default)s)")
    add("--seed", type=int, metavar="S", help="of everything random (default %(default)s)")
    add("--standardize", choices=CHOICES["standardize"], help="columns (default %(default)s)")
    add("--jitter", type=float, metavar="J",
        help="added to K_mm's diagonal, per unit of variance (default %(default)s)")  # fmt: skip
    add("--restarts", type=int, metavar="K", help="try K starts, and go on from the best (default %(default)s)")
    add("--missing", action="store_true", help="GPLVM: NaN entries of Y are missing, and take no part")
    add("--validate", type=fraction_or_file, metavar="FRACTION|FILE",
        help="regression: rows to predict during the fit, which does not learn from them: a fraction of the rows of "
        "DATA, or another data file")  # fmt: skip
    add("--validate-every", type=int, metavar="N",
        help="iterations between two scores of these rows (default %(default)s), and one at the end")  # fmt: skip
    add("--patience", type=int, metavar="K",
        help="stop when their NLPD has not improved for K scores; MODEL is the last one, not the best")  # fmt: skip
    add("--x", default="X", metavar="NAME", help="dataset of the inputs (default X)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")
    add("--resume", action="store_true", help="go on from the checkpoint in MODEL, or from the beginning without one")
    add("--overwrite", action="store_true", help="replace an older MODEL")
    add("--checkpoint-every", type=every, default=RunOptions.checkpoint_every, metavar="N|Nm",
        help="iterations, or minutes with an m, between checkpoints (default: 10m)")  # fmt: skip
    add("--rows-in-memory", choices=memory.CHOICES, default="auto", help=memory.HELP)
    add("--on-failure", choices=["recover", "checkpoint", "abort"], default="recover",
        help="when ranks die: go on with the others (default, where the MPI can), or stop")  # fmt: skip
    add("--stall-timeout", type=seconds, metavar="S",
        help="a rank that does not answer for so many seconds is ended, as if it had died; 0 for never "
        f"(default: {STALL:g} where ranks are on several machines, else 0)")  # fmt: skip
    add("--dry-run", action="store_true", help="print memory, messages and estimated seconds, and run nothing")
    add("--time-limit", type=float, default=math.inf, metavar="S", help="seconds, after which it saves and stops")
    add("--metrics", metavar="FILE.jsonl", help="write one JSON object per iteration to this file")


def every(text: str) -> Interval:
    """Return the interval that `50` (iterations) or `10m` (minutes) means."""
    try:
        return interval(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def fraction_or_file(text: str) -> float | str:
    """Return a number, where it is one, or the path of a file."""
    try:
        return float(text)
    except ValueError:
        return text


def inducing_points(text: str) -> tuple[int | None, float | None]:
    """Return the number that `100` means, or the nats per row that `auto` or `auto:0.02` means."""
    word, colon, nats = text.partition(":")
    with suppress(ValueError):
        return (None, float(nats) if colon else NATS) if word == "auto" else (int(text), None)
    raise argparse.ArgumentTypeError(f"is {text}: give a number, auto, or auto:NATS with nats per row")


def seconds(text: str) -> float:
    """Return a number of seconds ≥ 1, or 0."""
    with suppress(ValueError):
        if 1 <= (value := float(text)) < math.inf or value == 0:
            return value
    raise argparse.ArgumentTypeError(f"is {text}: give seconds, at least 1, or 0 for never")


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Learn; when ranks fail on the way, go on with those that are left."""
    with raise_on_all_ranks(comm):
        options = options_of(arguments)

    def source(path: str) -> Source:
        @contextmanager
        def opened(comm: Comm) -> Iterator[DataSets]:
            with reading(path) as file:
                yield find(file, arguments.y, arguments.x if options.model == "regression" else None)

        return opened

    given = {each.name: getattr(arguments, each.name) for each in fields(RunOptions) if each.name in arguments}
    if arguments.resume and comm.rank == 0 and not os.path.exists(arguments.output):
        say(f"{arguments.output}: is not there yet: the fit starts from the beginning")
    run_options = RunOptions(**given, signals=True, progress=sys.stderr, made_by=arguments.command_line)
    inputs = [arguments.data, *([arguments.init] if os.path.isfile(arguments.init) else [])]
    validation = options.validate if isinstance(options.validate, str) else None
    inputs += [] if validation is None else [validation]
    driver = Driver(comm, source(arguments.data), options, run_options, tuple(inputs),
                    None if validation is None else source(validation))  # fmt: skip
    try:
        with named_as_options():
            if arguments.dry_run:
                return driver.dry_run()
            prepared = driver.run()
    except (InputError, OutputError) as error:
        if not driver.lost:
            raise
        code = BAD_INPUT if isinstance(error, InputError) else FAILED
        return ended(driver, str(error), code)  # rank 0 of the world, which says it as a rule, may be gone
    except RanksLost as error:
        remedy = "go on with --resume" if error.saved else "start again"
        return ended(driver, f"{error}: {remedy}", STOPPED if error.saved else 1) | {"lost": error.lost}
    return summary(arguments, driver, prepared)


def options_of(arguments: argparse.Namespace) -> Options:
    """Return the options of a fit, checked."""
    given = {each.name: getattr(arguments, each.name) for each in fields(Options)}
    number, given["grow"] = arguments.inducing
    given["inducing"] = arguments.max_inducing if number is None else number
    options = Options(**given)
    with named_as_options():
        options.check()
    return options


@contextmanager
def named_as_options() -> Iterator[None]:
    """Let errors that begin with the name of a parameter begin with that of its option."""
    try:
        yield
    except InputError as error:
        known = {each.name.replace("_", "-") for each in (*fields(Options), *fields(RunOptions))} | {"x", "y"}
        name, colon, rest = str(error).partition(":")
        first = f"`{name}`" if name.replace("_", "-") in known else name
        raise InputError(in_options(f"{first}{colon}{rest}", known)) from None


def ended(driver: Driver, line: str, code: int) -> dict[str, Any]:
    """Say why the fit ended, and return the figures of a run that ends there."""
    if driver.comm.rank == 0:
        say(printable(line))
    return {"master": driver.comm.rank == 0, "exit_code": code}


def summary(arguments: argparse.Namespace, driver: Driver, prepared: PreparedFit) -> dict[str, Any]:
    """Say how the fit ended, and return its figures."""
    fit, partners, interrupted, validation = prepared.fit, driver.partners, driver.stops.stopped, driver.validation
    parameters, start, options = fit.objective.parameters(fit.optimizer.point), prepared.start, driver.options
    assert start is not None
    evaluator, unmoved = fit.objective.evaluator, prepared.unmoved(parameters)
    certificate = evaluator.certificate(parameters)
    explained = 1 - 1 / (parameters.beta * evaluator.rows.variance)
    if driver.comm.rank == 0:
        for column, columns in prepared.constant.items():
            if columns:
                print(f"constant columns of {column.upper()}: {numbered(columns, prepared.columns.get(column))}")
        print(f"{arguments.output}: bound {fit.bound!r} nats")
        print(f"{fit.iteration} iterations, {fit.evaluations} evaluations; stopped because {fit.stopped}")
        if start.tried:
            bounds = ", ".join(f"{name} {bound:.1f}" for name, bound in start.tried.items())
            print(f"start: {start.best}, of {bounds} nats on {start.rows} rows")
        if prepared.gaps:
            print(grown_line(prepared.gaps, options))
        if certificate is not None:
            print(f"evidence: at most {certificate.upper:.1f} nats with this kernel and noise, so that more than "
                  f"{fit.objective.m} inducing points gain at most {certificate.gap:.4f} nats per row")  # fmt: skip
        if interrupted:
            print("go on with --resume")
        if validation is not None:
            rmse, nlpd = validation.last
            print(f"{validation.rows.Y.n} validation rows: RMSE {rmse:.6g}, NLPD {nlpd:.6g} nats per row")
        for line in kernel_lines(evaluator.model.backend, parameters, prepared, unmoved):
            print(line)
        if fit.objective.largest_jitter > fit.objective.jitter:
            print(f"jitter: grew from {fit.objective.jitter:g} to {fit.objective.largest_jitter:g} at some points")
        if explained < EXPLAINED:
            print(f"warning: the fit explained next to nothing: {max(explained, 0.0):.1%} of the variance of Y")
    return {
        "bound": fit.bound, "bound_name": prepared.identity["bound"],
        "iterations": fit.iteration, "evaluations": fit.evaluations,
        "seconds": fit.trace.seconds[-1] if fit.iteration else 0.0,
        "beta": parameters.beta, "variance": parameters.variance, "alpha": parameters.alpha.tolist(),
        "kernel": evaluator.model.backend.name,
        "kernel_parameters": named_values(
            evaluator.model.backend.named_parameters(evaluator.q), parameters.alpha, prepared.columns.get("x")
        ),
        "inducing": fit.objective.m, "explained": explained, "unmoved": unmoved, "gaps": dict(prepared.gaps),
        "upper_bound": None if certificate is None else certificate.upper,
        "gap": None if certificate is None else certificate.gap,
        **({} if validation is None else validation.figures()),
        "columns": dict(prepared.columns), "start": {"bounds": start.tried, "best": start.best, "rows": start.rows},
        "stopped": fit.stopped, "exit_code": STOPPED if interrupted else 0,
        "ranks": driver.comm.size, "lost": driver.lost, "master": driver.comm.rank == 0,
        **({} if partners is None else {"copies": partners.count, "copy_seconds": partners.seconds}),
        "peak_memory": driver.peak_memory, "rows_in_memory": not driver.streamed,
    }  # fmt: skip


def grown_line(gaps: Mapping[int, float], options: Options) -> str:
    """Return how the number of inducing points was found, and why it is not larger."""
    tried = ", ".join(f"{m}: {gap:.4f}" for m, gap in gaps.items())
    enough = min(gaps.values()) <= (options.grow or 0.0)
    why = f"below {options.grow:g}" if enough else "and there may be no more (--max-inducing)"
    return f"inducing points, and nats per row that more can gain at most: {tried}, {why}"


def kernel_lines(backend: KernelBackend, parameters: Globals, prepared: PreparedFit,
                 unmoved: list[int]) -> Iterator[str]:  # fmt: skip
    """Yield lines for a kernel's parameters: its ARD weights, or where it is composed each one's name and value."""
    names, x = prepared.columns.get("x"), prepared.standardized.get("x")
    if not backend.composed:
        yield from weight_lines(parameters.alpha, names, unmoved)
        yield f"effective dimensions: {effective_dimensions(parameters.alpha):.2f}"
        return
    yield f"kernel: {backend.name}"
    named = backend.named_parameters(parameters.Z.shape[1])
    width = max(len(each.text(names)) for each in named)
    for each, value in zip(named, parameters.alpha, strict=True):
        line = f"{each.text(names).ljust(width)}  {value:10.4g}"
        if each.name == "period" and x is not None:
            line += f"  ({value * x.scale[each.column]:.4g} in the units of the data)"
        yield line


def weight_lines(alpha: Floats, names: list[str] | None, unmoved: list[int]) -> Iterator[str]:
    """Yield a line for each ARD weight: its number, its name if it has one, its value, and a bar if it was learned."""
    words = [f"  {listed([name])}" for name in names] if names else [""] * len(alpha)
    width, largest = max(map(len, words)), np.delete(alpha, unmoved).max(initial=0.0) or 1.0
    for q, (value, word) in enumerate(zip(alpha, words, strict=True)):
        bar = "never moved: the rows tell nothing about it" if q in unmoved else "█" * round(40 * value / largest)
        yield f"alpha {q:3d}{word.ljust(width)}  {value:10.4g}  {bar}"
