"""Study how evaluations scale with the number of ranks: `strong` (the same rows on more ranks) or `weak` (the same rows
for each rank)."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path
from typing import Any

from mpigp.errors import InputError
from mpigp.models import MODELS
from mpigp.ranks import SIZE_VARIABLES, say
from mpigp.scaling import study
from mpigp.scaling.problem import Problem, find_problem
from mpigp.scaling.running import RunFailed

SUMMARY = "strong- and weak-scaling studies: run or submit, report, model"


def PARALLEL(arguments: argparse.Namespace) -> bool:
    """Return whether ranks work together: a study starts its own."""
    return False


STUDY: dict[str, Any] = {  # options of studies, with their defaults
    "ranks": None, "slurm": None, "model": "regression", "rows": 100_000, "inducing": 100, "inputs": 8, "latent": 10,
    "outputs": None, "rounds": 3, "repeat": 5, "timeout": 3600.0, "x": "X", "y": "Y",
}  # fmt: skip
OUTPUTS = {"regression": 1, "gplvm": 12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp scaling`."""
    add = parser.add_argument
    add("action", choices=[*study.KINDS], help="what to do")
    add("path", nargs="?", metavar="DATA", help="HDF5 file to time evaluations of (default: synthetic rows)")
    add("-o", "--output", metavar="DIR", help="folder of the study's JSON files")
    add("--ranks", dest="counts", type=counts, metavar="P,...", help="numbers of ranks, like 1,2,4,8")
    add("--slurm", nargs="?", const="", metavar="OPTIONS",
        help="submit one job for each number of ranks; OPTIONS of sbatch in one word: --slurm='--partition=x'")  # fmt: skip
    add("--model", choices=list(MODELS), help="default regression")
    add("--rows", type=int, metavar="N", help="synthetic rows: of all ranks (strong), or of each (weak) (100000)")
    add("--inducing", type=int, metavar="M", help="inducing points (default 100)")
    add("--inputs", type=int, metavar="Q", help="regression: columns of synthetic inputs (default 8)")
    add("--latent", type=int, metavar="Q", help="GPLVM: latent dimensions (default 10)")
    add("--outputs", type=int, metavar="D", help="columns of synthetic outputs (default 1, of a GPLVM 12)")
    add("--rounds", type=int, metavar="R", help="runs on each number of ranks, which take turns (default 3)")
    add("--repeat", type=int, metavar="K", help="evaluations that each run times (default 5)")
    add("--timeout", type=float, metavar="SECONDS", help="that a run may take (default 3600)")
    add("--x", metavar="NAME", help="dataset of the inputs of DATA (default X)")
    add("--y", metavar="NAME", help="dataset of the outputs of DATA (default Y)")


def counts(text: str) -> tuple[int, ...]:
    """Return the numbers of ranks of a list with commas, in order."""
    try:
        found = tuple(sorted({int(word) for word in text.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"is {text}: give numbers of ranks with commas between them, like 1,2,4")
    return found


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Do what is asked."""
    return run_study(arguments)


def run_study(arguments: argparse.Namespace) -> dict[str, Any]:
    """Time evaluations on each number of ranks, here or as jobs of Slurm."""
    if any(os.environ.get(name) for name in SIZE_VARIABLES):
        raise InputError(
            "scaling: starts mpiexec itself: run it without a launcher and without --ranks before the command"
        )
    options = study_options(arguments)
    if arguments.slurm is not None:
        jobs = study.submit(options, words(arguments), split(arguments.slurm))
        for ranks, job in jobs.items():
            print(f"{ranks} ranks: job {job}")
        print(f"when they are done: mpigp scaling report {shlex.quote(str(options.folder))} -o report.html")
        return {"jobs": jobs, "folder": str(options.folder)}
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


def study_options(arguments: argparse.Namespace) -> study.Options:
    """Return the options of a study, checked."""
    given = {name: default if getattr(arguments, name, None) is None else getattr(arguments, name)
             for name, default in STUDY.items()}  # fmt: skip
    model, weak = given["model"], arguments.action == "weak"
    if arguments.counts is None:
        raise InputError("--ranks: is missing: give the numbers of ranks, like --ranks 1,2,4")
    if arguments.output is None:
        raise InputError("-o: is missing: name the folder for the study's files")
    other = "inputs" if model == "gplvm" else "latent"
    if getattr(arguments, other) is not None:
        raise InputError(f"--{other}: is not an option of --model {model}: leave it out")
    given["outputs"] = given["outputs"] or OUTPUTS[model]
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
    return study.Options(arguments.action, arguments.counts, problem, data, names, arguments.threads, given["rounds"],
                         given["repeat"], given["timeout"], folder, arguments.command_line)  # fmt: skip


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the command line of a job: the study's own, but for the numbers of ranks and Slurm."""
    found = ["scaling", arguments.action, *([str(Path(arguments.path).resolve())] if arguments.path else [])]
    found += ["-o", str(Path(arguments.output).resolve()), "--threads", str(arguments.threads)]
    for name in STUDY.keys() - {"ranks", "slurm"}:
        value = getattr(arguments, name)
        found += [] if value is None else [f"--{name}", str(value)]
    return found


def split(options: str) -> list[str]:
    """Return the options of sbatch that one word holds."""
    try:
        return shlex.split(options)
    except ValueError as error:
        raise InputError(f"--slurm: is {options}: {error}: quote it as a shell would") from error
