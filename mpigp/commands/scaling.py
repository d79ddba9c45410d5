"""Study how evaluations scale with the number of ranks, report what was measured, and predict what more would do."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpigp.commands.report import check_pictures
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, replacing
from mpigp.gp.statistics import MODELS
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.processes import SIZE_VARIABLES, say
from mpigp.scaling import study
from mpigp.scaling.forecast import forecast
from mpigp.scaling.interconnects import NETWORKS, Interconnect, checked, find_interconnect
from mpigp.scaling.page import render
from mpigp.scaling.probe import probe
from mpigp.scaling.problem import Problem, find_problem
from mpigp.scaling.running import RunFailed
from mpigp.scaling.summary import markdown, summary
from mpigp.types import Comm

OPTIONS: dict[str, dict[str, Any]] = {  # of studies and of reports alone, with their defaults
    "study": {
        "counts": None, "slurm": None, "model": "regression", "rows": 100_000, "inducing": 100, "inputs": 8,
        "latent": 10, "outputs": None, "rounds": 3, "repeat": 5, "timeout": 3600.0, "x": "X", "y": "Y",
    },
    "report": {"png": None, "interconnect": None, "latency": None, "bandwidth": None},
    "probe": {},
}  # fmt: skip
OUTPUTS = {"regression": 1, "gplvm": 12}
DEFAULT = "infiniband-hdr"


def PARALLEL(arguments: argparse.Namespace) -> bool:
    """Return whether ranks work together: in a probe; a study starts its own."""
    return arguments.action == "probe"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp scaling`."""
    add = parser.add_argument
    add("action", choices=[*study.KINDS, "report", "probe"],
        help="a study with the same rows on all numbers of ranks (strong), or with the same on each rank (weak); the "
        "report of a study; or, under mpiexec, the latency and bandwidth between ranks")  # fmt: skip
    add("path", nargs="?", metavar="DATA|DIR",
        help="study: HDF5 file that is evaluated (default: synthetic rows); report: the study's folder")  # fmt: skip
    add("-o", "--output", metavar="DIR|FILE", help="a study's folder, a report's HTML page, or a probe's JSON file")
    add("--ranks", dest="counts", type=counts, metavar="P,...", help="study: numbers of ranks, like 1,2,4,8")
    add("--slurm", nargs="?", const="", metavar="OPTIONS",
        help="study: submit a job for each number of ranks, with these OPTIONS of sbatch")  # fmt: skip
    add("--model", choices=list(MODELS), help="study: default regression")
    add("--rows", type=int, metavar="N", help="study: synthetic rows, of all ranks or, weak, of each (default 100000)")
    add("--inducing", type=int, metavar="M", help="study: inducing points (default 100)")
    add("--inputs", type=int, metavar="Q", help="study: columns of synthetic inputs of a regression (default 8)")
    add("--latent", type=int, metavar="Q", help="study: latent dimensions of a GPLVM (default 10)")
    add("--outputs", type=int, metavar="D", help="study: columns of synthetic outputs (default 1, of a GPLVM 12)")
    add("--rounds", type=int, metavar="R", help="study: runs on each number of ranks, which take turns (default 3)")
    add("--repeat", type=int, metavar="K", help="study: evaluations that each run times (default 5)")
    add("--timeout", type=float, metavar="SECONDS", help="study: that a run may take (default 3600)")
    add("--x", metavar="NAME", help="study: dataset of the inputs of DATA (default X)")
    add("--y", metavar="NAME", help="study: dataset of the outputs of DATA (default Y)")
    add("--png", metavar="DIR", help="report: write the figures as PNG files to this folder too; needs matplotlib")
    add("--interconnect", metavar="NAME|FILE",
        help=f"report: predict for {', '.join(NETWORKS)}, or a probe's file (default {DEFAULT})")  # fmt: skip
    add("--latency", type=float, metavar="S", help="report: predict for this latency of a message, in seconds")
    add("--bandwidth", type=float, metavar="B", help="report: predict for this bandwidth, in bytes per second")


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of ranks of a list with commas, in order."""
    try:
        found = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"is {text}: give numbers of ranks with commas between them, like 1,2,4")
    return found


def run(arguments: argparse.Namespace, comm: Comm | None) -> dict[str, Any]:
    """Do what is asked."""
    if comm is not None:
        return run_probe(arguments, comm)
    given = own_options(arguments, "report" if arguments.action == "report" else "study")
    return run_report(arguments, given) if arguments.action == "report" else run_study(arguments, given)


def own_options(arguments: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Return the options of studies, reports or probes, defaults filled in; refuse those of others."""
    for other, defaults in OPTIONS.items():
        for name in defaults:
            if other != kind and getattr(arguments, name) is not None:
                option = "ranks" if name == "counts" else name
                raise InputError(f"--{option}: is an option of a {other}: leave it out of scaling {arguments.action}")
    return {
        name: default if getattr(arguments, name) is None else getattr(arguments, name)
        for name, default in OPTIONS[kind].items()
    }


def run_probe(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Measure latency and bandwidth between ranks."""
    with raise_on_all_ranks(comm):
        own_options(arguments, "probe")
        if arguments.path is not None:
            raise InputError(f"{arguments.path}: a probe reads nothing: leave it out")
        if comm.size < 2:
            raise InputError("scaling probe: needs at least 2 ranks: mpiexec -n 2 mpigp scaling probe")
        if arguments.output is not None and comm.rank == 0:
            check_writable(arguments.output)
    found = probe(comm)
    if comm.rank == 0:
        nodes = len(set(found["nodes"]))
        print(f"latency {1e6 * found['latency']:.3g} µs, bandwidth {found['bandwidth'] / 1e9:.3g} GB/s, from the first "
              f"of {comm.size} ranks to the last, on {nodes} nodes")  # fmt: skip
        if arguments.output is not None:
            with replacing(arguments.output) as temporary:
                temporary.write_text(json.dumps(found) + "\n", "utf-8")
    return found


def run_report(arguments: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Print a study's table and its forecast; write its page and its pictures where asked to."""
    if arguments.path is None:
        raise InputError("DIR: is missing: name the folder of a study")
    network = network_of(given)
    if arguments.output is not None:
        check_writable(arguments.output)
    if given["png"]:
        check_pictures(given["png"])
    found = study.read_study(Path(arguments.path))
    lines, foretold = summary(found), forecast(found, network)
    print(markdown(lines))
    if foretold.errors:
        each = ", ".join(f"{ranks} ranks {100 * error:+.1f} %" for ranks, error in foretold.errors.items())
        print(f"\nThe model's error on counts left out of its fit: {each}")
    print(f"\nThe model, {foretold.said}")
    written = []
    if arguments.output is not None:
        with replacing(arguments.output) as temporary:
            temporary.write_text(render(found, lines, foretold), "utf-8")
        written.append(arguments.output)
    if given["png"]:
        from mpigp.scaling.pictures import draw

        written += draw(found, lines, foretold, Path(given["png"]))
    print("\n".join(written))
    told = foretold._asdict() | {"interconnect": network._asdict(), "here": asdict(foretold.here)}
    return {"kind": found.kind, "measured": [line._asdict() for line in lines], "forecast": told, "written": written}


def network_of(given: dict[str, Any]) -> Interconnect:
    """Return the interconnect to predict for."""
    latency, bandwidth = given["latency"], given["bandwidth"]
    if (latency is None) != (bandwidth is None):
        raise InputError("--latency and --bandwidth: one is missing: give both, or --interconnect")
    if latency is None:
        return find_interconnect(given["interconnect"] or DEFAULT)
    if given["interconnect"] is not None:
        raise InputError("--interconnect: is given, and --latency and --bandwidth too: leave one out")
    return checked(Interconnect("the given interconnect", latency, bandwidth, "given"))


def run_study(arguments: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """Time evaluations on each number of ranks, here or as jobs of Slurm."""
    if any(os.environ.get(name) for name in SIZE_VARIABLES):
        raise InputError(
            "scaling: starts mpiexec itself: run it without a launcher and without --ranks before the command"
        )
    options = study_options(arguments, given)
    if arguments.slurm is not None:
        jobs = study.submit(options, words(arguments), split(arguments.slurm))
        for ranks, job in jobs.items():
            print(f"{ranks} ranks: job {job}")
        print(f"when they are done: mpigp scaling report {shlex.quote(str(options.folder))} -o report.html")
        return {"jobs": jobs, "folder": str(options.folder)}
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # its runs and files end with it
    try:
        for ranks, found in study.run(options):
            print(f"{ranks} ranks: {found['seconds']:.4g} s per evaluation", flush=True)
    except RunFailed as failure:
        say(f"scaling: {failure}")
        return {"exit_code": 1}
    points = study.read_study(options.folder).points
    return {
        "folder": str(options.folder),
        "kind": options.kind,
        "ranks": [point.ranks for point in points],
        "seconds": [point.seconds for point in points],
    }


def study_options(arguments: argparse.Namespace, given: dict[str, Any]) -> study.Options:
    """Return the options of a study, checked."""
    model, weak = given["model"], arguments.action == "weak"
    if given["counts"] is None:
        raise InputError("--ranks: is missing: give the numbers of ranks, like --ranks 1,2,4")
    if arguments.output is None:
        raise InputError("-o: is missing: name the folder for the study's files")
    other = "inputs" if model == "gplvm" else "latent"
    if getattr(arguments, other) is not None:
        raise InputError(f"--{other}: is not an option of --model {model}: leave it out")
    given["outputs"] = OUTPUTS[model] if given["outputs"] is None else given["outputs"]
    for name in ("rows", "inducing", "inputs", "latent", "outputs", "rounds", "repeat"):
        if given[name] < 1:
            raise InputError(f"--{name}: is {given[name]}: give a number ≥ 1")
    if not given["timeout"] > 0:
        raise InputError(f"--timeout: is {given['timeout']:g}: give seconds > 0")
    q, data, names = given["latent" if model == "gplvm" else "inputs"], None, (given["x"], given["y"])
    problem = Problem(model, given["rows"], given["inducing"], q, given["outputs"])
    if arguments.path is not None:
        for name in ("rows", "inputs", "outputs"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name}: is of synthetic rows, and DATA are given: leave one of them out")
        if weak:
            raise InputError("DATA: a weak study needs rows that grow with the ranks: leave DATA out")
        data = Path(arguments.path).resolve()
        problem = find_problem(data, model, given["inducing"], q, names)
    elif arguments.x is not None or arguments.y is not None:
        raise InputError("--x and --y: name datasets of DATA, which are missing: give DATA, or leave them out")
    if problem.m > problem.n:
        raise InputError(f"--inducing: is {problem.m}, and there are {problem.n} rows: give fewer")
    folder = Path(arguments.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}: choose another folder") from error
    rest = given["rounds"], given["repeat"], given["timeout"], folder, arguments.command_line
    options = study.Options(arguments.action, arguments.counts, problem, data, names, arguments.threads, *rest)
    check_writable(options.path(1))
    study.check_alone(options)
    return options


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the command line of a job: the study's own, but for the numbers of ranks and Slurm."""
    found = ["scaling", arguments.action, *([str(Path(arguments.path).resolve())] if arguments.path else [])]
    found += ["-o", str(Path(arguments.output).resolve()), "--threads", str(arguments.threads)]
    for name in OPTIONS["study"]:
        value = getattr(arguments, name)
        found += [] if value is None or name in ("counts", "slurm") else [f"--{name}", str(value)]
    return found


def split(options: str) -> list[str]:
    """Return the options of sbatch that one word holds."""
    try:
        return shlex.split(options)
    except ValueError as error:
        raise InputError(f"--slurm: is {options}: {error}: quote it as a shell would") from error
