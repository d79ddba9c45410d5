"""The command line: options, configuration files, exit codes, and the last word on errors."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
from contextlib import suppress
from typing import Any, NoReturn

from mpigp import __version__
from mpigp.errors import InputError
from mpigp.launch.mpiexec import BAD_INPUT, ENDED, MET, launch, tell
from mpigp.launch.stdio import open_outlets
from mpigp.mpi.communicator import default_threads, launched_rank, say, world
from mpigp.mpi.ulfm import can_survive

COMMANDS = ("fit", "evaluate", "predict", "embed", "reconstruct", "report", "synth", "convert", "info", "demo",
            "scaling", "slurm")  # fmt: skip

RESTARTS = 3  # of a job that died as a whole


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, said once."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}: {self.prog} --help shows the options")

    def options(self, command: str) -> set[str]:
        """Return the names of the options of a command that a configuration file may hold."""
        subparsers = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        words = subparsers.choices[command]._option_string_actions
        return {word[2:] for word in words if word.startswith("--")} - {"config", "help"}


def positive(text: str) -> int:
    """Return a whole number ≥ 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"is {value}: give a number ≥ 1")
    return value


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="mpigp", description="Sparse Gaussian processes over MPI: mpiexec -n N mpigp COMMAND ...",
                    allow_abbrev=False)  # fmt: skip
    parser.add_argument("--version", action="version", version=f"mpigp {__version__}")
    parser.add_argument("--ranks", type=positive, metavar="N", help="start mpiexec with N ranks")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"mpigp.commands.{name}")
        command = commands.add_parser(name, help=module.SUMMARY, description=module.__doc__, allow_abbrev=False)
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="make the last line of output one JSON object")
        command.add_argument("--config", metavar="FILE.toml", help="take options from this file; flags override it")
        if module.PARALLEL:
            command.add_argument("--threads", type=positive, default=default_threads(os.environ), metavar="T",
                                 help="threads of a rank (default: SLURM_CPUS_PER_TASK, or 1)")  # fmt: skip
    return parser


def configured(argv: list[str], parser: Parser) -> list[str]:
    """Return the arguments with the options of `--config FILE.toml` put before the flags, which override them."""
    places = [place for place, word in enumerate(argv) if word == "--config" or word.startswith("--config=")]
    command = next((place for place, word in enumerate(argv) if word in COMMANDS), None)
    if not places or command is None:
        return argv
    word = argv[places[-1]]
    path = word.partition("=")[2] if "=" in word else next(iter(argv[places[-1] + 1 :]), "")
    if not path:
        return argv  # the parser says that a path is missing
    known = parser.options(argv[command])
    options: list[str] = []
    for key, value in read_toml(path).items():
        if isinstance(value, dict):
            raise InputError(f"{path}: [{key}]: has no meaning here: write options as `name = value`, without tables")
        if key not in known:
            raise InputError(f"{path}: {key}: is no option of {argv[command]}: mpigp {argv[command]} --help shows them")
        if isinstance(value, bool):
            options += [f"--{key}"] if value else []
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            options += [f"--{key}={text}"]
    return [*argv[: command + 1], *options, *argv[command + 1 :]]


def read_toml(path: str) -> dict[str, Any]:
    """Return what a TOML file holds."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}: check the path of --config") from error
    except ValueError as error:  # not TOML, or not even text
        raise InputError(f"{path}: is not TOML: {error}: write options as `name = value`") from error


def execute(argv: list[str]) -> int:
    """Run one command line in this process; return its exit code."""
    rank, comm = launched_rank(os.environ), None
    try:
        parser = build_parser()
        words = configured(argv, parser)
        arguments = parser.parse_args(words)
        arguments.command_line = shlex.join([parser.prog, *words])
        if arguments.ranks is not None:
            place = next(place for place, word in enumerate(argv) if word == "--ranks" or word.startswith("--ranks="))
            rest = argv[:place] + argv[place + (1 if "=" in argv[place] else 2) :]
            policy = getattr(arguments, "on_failure", "abort")
            model = arguments.output if policy != "abort" else None
            restarts = RESTARTS if policy == "recover" else 0
            return launch(arguments.ranks, getattr(arguments, "threads", 1), rest, model, restarts)
        module = importlib.import_module(f"mpigp.commands.{arguments.command}")
        if module.PARALLEL(arguments) if callable(module.PARALLEL) else module.PARALLEL:
            comm = world()
            rank = comm.rank
        elif rank != 0:
            return 0  # one process is enough
        tell(MET)
        figures = module.run(arguments, comm)
        if arguments.json and figures.get("master", rank == 0):
            print(json.dumps(figures), flush=True)
        code = int(figures.get("exit_code", 0))
        if can_survive():
            sys.stdout.flush()
            if code and comm is not None:  # it ends the job: not before all have said what they say
                with suppress(Exception):
                    comm.Barrier()
            tell(ENDED)
            os._exit(code)  # MPI's own end waits for ranks that have died, or die now
        return code
    except InputError as error:
        if rank == 0:
            say(str(error))
        elif comm is None:
            return 0  # a rank that fails ends the job: let rank 0, which has a line to say, be the one
        if comm is not None:
            comm.Barrier()  # not before the line above is out
        return BAD_INPUT


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    open_outlets()
    try:
        code = execute(list(sys.argv[1:] if argv is None else argv))
    finally:
        tell(ENDED)
    sys.exit(code)
