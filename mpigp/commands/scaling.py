"""Study how evaluations scale with the number of ranks, report what was measured, and predict what more would do."""

import argparse
import json
import os
import shlex
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpigp.commands.report import check_outputs, write
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, made_folder, replacing
from mpigp.gp.statistics import MODELS
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.processes import SIZE_VARIABLES, say
from mpigp.scaling import study
from mpigp.scaling.costs import forecast
from mpigp.scaling.interconnects import NETWORKS, Interconnect, checked, find_interconnect, probe
from mpigp.scaling.page import describe, render
from mpigp.scaling.summary import markdown, summary
from mpigp.types import Comm

# Options of a study that depend on whether DATA are given, or on the model: None is replaced by these.
DEFAULTS: dict[str, Any] = {"rows": 100_000, "inputs": 8, "latent": 10, "x": "X", "y": "Y"}
OUTPUTS = {"regression": 1, "gplvm": 12}
DEFAULT = "infiniband-hdr"


def PARALLEL(arguments: argparse.Namespace) -> bool:
    """Return whether ranks work together: in a probe; a study starts its own."""
    return arguments.action == "probe"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `mpigp scaling`, and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    about = {"strong": "the same rows on all numbers of ranks", "weak": "the same number of rows on each rank"}
    for kind, rows in about.items():
        summary = f"a study with {rows}"
        add_study_arguments(actions.add_parser(kind, help=summary, description=f"Run {summary}."))
    add = actions.add_parser("report", help="the report of a study", description="Report a study.").add_argument
    add("path", metavar="DIR", help="the folder of a study")
    add("-o", "--output", metavar="HTML", help="the page to write")
    add("--png", metavar="DIR", help="write the figures as PNG files to this folder too; needs matplotlib")
    add("--interconnect", metavar="NAME|FILE",
        help=f"predict for {', '.join(NETWORKS)}, or a probe's file (default {DEFAULT})")  # fmt: skip
    add("--latency", type=float, metavar="S", help="predict for this latency of a message, in seconds")
    add("--bandwidth", type=float, metavar="B", help="predict for this bandwidth, in bytes per second")
    summary = "under mpiexec: the latency and bandwidth between ranks"
    probing = actions.add_parser("probe", help=summary, description=f"Measure, {summary}.")
    probing.add_argument("-o", "--output", metavar="FILE", help="a JSON file to write")


def add_study_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a study."""
    add = parser.add_argument
    add("path", nargs="?", metavar="DATA", help="HDF5 file that is evaluated (default: synthetic rows)")
    add("-o", "--output", required=True, metavar="DIR", help="the folder of the study's files")
    add("--ranks", dest="counts", type=counts, required=True, metavar="P,...", help="numbers of ranks, like 1,2,4,8")
    add("--slurm", nargs="?", const="", metavar="OPTIONS",
        help="submit a job for each number of ranks, with these OPTIONS of sbatch")  # fmt: skip
    add("--model", choices=list(MODELS), default="regression", help="default %(default)s")
    add("--rows", type=int, metavar="N", help="synthetic rows, of all ranks or, weak, of each (default 100000)")
    add("--inducing", type=int, default=100, metavar="M", help="inducing points (default %(default)s)")
    add("--inputs", type=int, metavar="Q", help="columns of synthetic inputs of a regression (default 8)")
    add("--latent", type=int, metavar="Q", help="latent dimensions of a GPLVM (default 10)")
    add("--outputs", type=int, metavar="D", help="columns of synthetic outputs (default 1, of a GPLVM 12)")
    add("--rounds", type=int, default=3, metavar="R",
        help="runs on each number of ranks, which take turns (default %(default)s)")  # fmt: skip
    add("--repeat", type=int, default=5, metavar="K", help="evaluations that each run times (default %(default)s)")
    add("--timeout", type=float, default=3600.0, metavar="SECONDS", help="that a run may take (default %(default)g)")
    add("--x", metavar="NAME", help="dataset of the inputs of DATA (default X)")
    add("--y", metavar="NAME", help="dataset of the outputs of DATA (default Y)")


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of ranks of a list with commas, in order."""
    with suppress(ValueError):
        numbers = tuple(sorted({int(word) for word in text.split(",")}))
        if numbers[0] > 0:
            return numbers
    raise argparse.ArgumentTypeError(f"is {text}: give numbers of ranks with commas between them, like 1,2,4")


def run(arguments: argparse.Namespace, comm: Comm | None) -> dict[str, Any]:
    """Run the subcommand."""
    if comm is not None:
        return run_probe(arguments, comm)
    return run_report(arguments) if arguments.action == "report" else run_study(arguments)


def run_probe(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Measure latency and bandwidth between ranks."""
    with raise_on_all_ranks(comm):
        if comm.size < 2:
            raise InputError("scaling probe: needs at least 2 ranks: mpiexec -n 2 mpigp scaling probe")
        if arguments.output is not None and comm.rank == 0:
            check_writable(arguments.output)
    measured = probe(comm)
    if comm.rank == 0:
        print(f"latency {1e6 * measured['latency']:.3g} µs, bandwidth {measured['bandwidth'] / 1e9:.3g} GB/s, from "
              f"the first of {comm.size} ranks to the last, on {len(set(measured['nodes']))} nodes")  # fmt: skip
        if arguments.output is not None:
            with replacing(arguments.output) as temporary:
                temporary.write_text(json.dumps(measured) + "\n", "utf-8")
    return measured


def run_report(arguments: argparse.Namespace) -> dict[str, Any]:
    """Print a study's table and its forecast; write its page and its pictures where asked to."""
    network = network_of(arguments)
    check_outputs(arguments, *map(str, Path(arguments.path).glob("*.json")))
    measured = study.read_study(Path(arguments.path))
    lines, predicted = summary(measured), forecast(measured, network)
    drawn = describe(measured, lines, predicted)
    print(markdown(lines))
    if predicted.errors:
        each = ", ".join(f"{ranks} ranks {100 * error:+.1f} %" for ranks, error in predicted.errors.items())
        print(f"\nErrors of the model in leave-one-out cross-validation: {each}")
    print(f"\nOn {network.name}: {predicted.conclusion}")
    written = write(arguments, render(measured, lines, predicted, drawn), drawn)
    forecasts = predicted._asdict() | {"interconnect": network._asdict(), "here": predicted.here._asdict()}
    figures = {"kind": measured.kind, "measured": [line._asdict() for line in lines]}
    return figures | {"forecast": forecasts, "written": written}


def network_of(arguments: argparse.Namespace) -> Interconnect:
    """Return the interconnect to predict for."""
    latency, bandwidth = arguments.latency, arguments.bandwidth
    if (latency is None) != (bandwidth is None):
        raise InputError("--latency and --bandwidth: one is missing: give both, or --interconnect")
    if latency is None:
        return find_interconnect(arguments.interconnect or DEFAULT)
    if arguments.interconnect is not None:
        raise InputError("--interconnect: is given, and --latency and --bandwidth too: leave one out")
    return checked(Interconnect("the given interconnect", latency, bandwidth, "given"))


def run_study(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time evaluations on each number of ranks, here or as jobs of Slurm."""
    if any(os.environ.get(name) for name in SIZE_VARIABLES):
        remedy = "run it without a launcher and without --ranks before the command"
        raise InputError(f"scaling: starts mpiexec itself: {remedy}")
    problem, data, names = problem_of(arguments)
    if problem.m > problem.n:
        raise InputError(f"--inducing: is {problem.m}, and there are {problem.n} rows: give fewer")
    rest = arguments.rounds, arguments.repeat, arguments.timeout, made_folder(arguments.output), arguments.command_line
    options = study.Options(arguments.action, arguments.counts, problem, data, names, arguments.threads, *rest)
    check_writable(options.path(1))
    study.check_alone(options)
    if arguments.slurm is not None:
        try:
            sbatch = shlex.split(arguments.slurm)
        except ValueError as error:
            raise InputError(f"--slurm: is {arguments.slurm}: {error}: quote it as a shell would") from error
        jobs = study.submit(options, words(arguments), sbatch)
        for ranks, job in jobs.items():
            print(f"{ranks} ranks: job {job}")
        print(f"when they are done: mpigp scaling report {shlex.quote(str(options.folder))} -o report.html")
        return {"jobs": jobs, "folder": str(options.folder)}
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # its runs and files end with it
    try:
        for ranks, figures in study.run(options):
            print(f"{ranks} ranks: {figures['seconds']:.4g} s per evaluation", flush=True)
    except study.RunFailed as failure:
        say(f"scaling: {failure}")
        return {"exit_code": 1}
    points = study.read_study(options.folder).points
    measured = {"ranks": [point.ranks for point in points], "seconds": [point.seconds for point in points]}
    return {"folder": str(options.folder), "kind": options.kind} | measured


def problem_of(arguments: argparse.Namespace) -> tuple[study.Problem, Path | None, tuple[str, str]]:
    """Return the evaluation that a study times, its data file if it has one, and the datasets there, checked."""
    model = arguments.model
    given = vars(arguments) | {name: value for name, value in DEFAULTS.items() if getattr(arguments, name) is None}
    given["outputs"] = OUTPUTS[model] if arguments.outputs is None else arguments.outputs
    other = "inputs" if model == "gplvm" else "latent"
    if getattr(arguments, other) is not None:
        raise InputError(f"--{other}: is not an option of --model {model}: leave it out")
    for name in ("rows", "inducing", "inputs", "latent", "outputs", "rounds", "repeat"):
        if given[name] < 1:
            raise InputError(f"--{name}: is {given[name]}: give a number ≥ 1")
    if not arguments.timeout > 0:
        raise InputError(f"--timeout: is {arguments.timeout:g}: give seconds > 0")
    q, names = given["latent" if model == "gplvm" else "inputs"], (given["x"], given["y"])
    if arguments.path is None:
        if arguments.x is not None or arguments.y is not None:
            raise InputError("--x and --y: name datasets of DATA, which are missing: give DATA, or leave them out")
        return study.Problem(model, given["rows"], arguments.inducing, q, given["outputs"]), None, names
    for name in ("rows", "inputs", "outputs"):
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name}: is of synthetic rows, and DATA are given: leave one of them out")
    if arguments.action == "weak":
        raise InputError("DATA: a weak study needs rows that grow with the ranks: leave DATA out")
    data = Path(arguments.path).resolve()
    return study.find_problem(data, model, arguments.inducing, q, names), data, names


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the command line of a job: the study's own, but for the numbers of ranks and Slurm."""
    words = ["scaling", arguments.action, *([str(Path(arguments.path).resolve())] if arguments.path else [])]
    words += ["-o", str(Path(arguments.output).resolve())]
    for name in ("threads", "model", "inducing", "outputs", "rounds", "repeat", "timeout", *DEFAULTS):
        value = getattr(arguments, name)
        words += [] if value is None else [f"--{name}", str(value)]
    return words
