"""The command line: options, configuration files, exit codes, and the line printed for an error."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from mpigp import __version__
from mpigp.commands import COMMANDS, in_options
from mpigp.errors import BAD_INPUT, FAILED, InputError, OutputError
from mpigp.launch.stdio import open_outlets
from mpigp.mpi.marks import BY_SIGNAL, DONE, ENDED, FOLDER, MET, mark
from mpigp.mpi.processes import (
    RANK_VARIABLES,
    abort,
    can_survive,
    default_threads,
    end_with_parent,
    launched_rank,
    printable,
    say,
)
from mpigp.mpi.signals import SIGNALS, early_signals, listen

if TYPE_CHECKING:
    from mpigp.types import Comm

RESTARTS = 3  # of a job that died as a whole


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and that has the parsers of its subcommands, if any, by name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)
        self.subcommands: dict[str, Parser] = {}

    def add_subparsers(self, **options: Any) -> Any:
        """Add the group of the subcommands, of which one is required."""
        group = super().add_subparsers(required=True, **options)
        self.subcommands = group.choices
        return group

    def leaves(self) -> Iterator[Parser]:
        """Yield the parsers of all commands below this one that have no subcommands."""
        if not self.subcommands:
            yield self
        for each in self.subcommands.values():
            yield from each.leaves()

    def error(self, message: str) -> NoReturn:
        """Raise an InputError."""
        raise InputError(f"{message}: {self.prog} --help shows the options")

    def options(self) -> set[str]:
        """Return the names of the options that a configuration file may contain."""
        return {word[2:] for word in self._option_string_actions if word.startswith("--")} - {"config", "help"}


def positive(text: str) -> int:
    """Return a whole number ≥ 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"is {value}: give a number ≥ 1")
    return value


def build_parser(called: Collection[str] = tuple(COMMANDS)) -> Parser:
    """Return the parser of all commands; only those `called` are imported, and have their options."""
    parser = Parser(prog="mpigp", description="Sparse Gaussian processes over MPI: mpiexec -n N mpigp COMMAND ...")
    parser.add_argument("--version", action="version", version=f"mpigp {__version__}")
    parser.add_argument("--ranks", type=positive, metavar="N", help="start mpiexec with N ranks")
    parser.add_argument("--hosts", metavar="H1:N,...", help="machines, and the ranks that each takes (with --ranks)")
    parser.add_argument("--hostfile", metavar="FILE", help="the same from a file of lines like `h1 slots=2`")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name not in called:
            continue
        module = importlib.import_module(f"mpigp.commands.{name}")
        command.description = module.__doc__
        module.add_arguments(command)
        for leaf in command.leaves():
            leaf.add_argument("--json", action="store_true", help="make the last line of output one JSON object")
            leaf.add_argument("--config", metavar="FILE.toml", help="take options from this file; flags override it")
            if getattr(module, "PARALLEL", False):
                leaf.add_argument("--threads", type=positive, default=default_threads(os.environ), metavar="T",
                                  help="threads of a rank (default: SLURM_CPUS_PER_TASK, or 1)")  # fmt: skip
    return parser


def find_command(argv: list[str], parser: Parser) -> tuple[int, Parser]:
    """Return the place in `argv` behind the words that name the command, and the command's parser; 0 and a parser that
    has subcommands where `argv` names none."""
    place = 0
    while parser.subcommands:
        at_word = next((at for at in range(place, len(argv)) if argv[at] in parser.subcommands), None)
        if at_word is None:
            return 0, parser
        place, parser = at_word + 1, parser.subcommands[argv[at_word]]
    return place, parser


def configured(argv: list[str], parser: Parser) -> list[str]:
    """Return the arguments with the options of `--config FILE.toml` put before the flags, which override them."""
    places = [place for place, word in enumerate(argv) if word == "--config" or word.startswith("--config=")]
    behind, command = find_command(argv, parser)
    if not places or not behind:
        return argv
    word = argv[places[-1]]
    path = word.partition("=")[2] if "=" in word else next(iter(argv[places[-1] + 1 :]), "")
    if not path:
        return argv  # the parser reports the missing path
    known, name = command.options(), command.prog.partition(" ")[2]
    options: list[str] = []
    for key, value in read_toml(path).items():
        if isinstance(value, dict):
            raise InputError(f"{path}: [{key}]: has no meaning here: write options as `name = value`, without tables")
        if key not in known:
            raise InputError(f"{path}: {key}: is no option of {name}: mpigp {name} --help shows them")
        if isinstance(value, bool):
            options += [f"--{key}"] if value else []
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            if "\0" in text:
                raise InputError(f"{path}: {key}: holds the character NUL: remove it")
            options += [f"--{key}={text}"]
    return [*argv[:behind], *options, *argv[behind:]]


def read_toml(path: str) -> dict[str, Any]:
    """Return the contents of a TOML file."""
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
    if any(name in os.environ for name in (FOLDER, *RANK_VARIABLES[:2])):
        end_with_parent()  # so that no rank outlives a launcher, which Open MPI's MPI_Abort does not care for
    parser = build_parser([word for word in argv if word in COMMANDS][:1])
    try:
        arguments = parse(argv, parser)
        if arguments.ranks or arguments.hosts or arguments.hostfile:
            return start_ranks(argv, arguments)
        module = importlib.import_module(f"mpigp.commands.{arguments.command}")
        parallel = getattr(module, "PARALLEL", False)
        if parallel(arguments) if callable(parallel) else parallel:
            from mpigp.mpi.communicator import world

            comm = world()
            rank = comm.rank
        elif rank != 0:
            return 0  # one process is enough
        mark(MET)
        return finish(arguments, comm, module.run(arguments, comm))
    except (InputError, OutputError) as error:
        code = BAD_INPUT if isinstance(error, InputError) else FAILED
        if rank == 0:
            say(printable(in_options(str(error), find_command(argv, parser)[1].options())))
            mark(DONE, str(code))
        elif comm is None:
            return 0  # a rank that fails ends the job: rank 0, which prints the line, shall be the one
        if comm is not None:
            comm.Barrier()  # not before the line above is printed
        return code


def parse(argv: list[str], parser: Parser) -> argparse.Namespace:
    """Return the arguments, with `command_line` as it reads with the options of a configuration file."""
    import shlex

    words = configured(argv, parser)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        find_command(words, parser)[1].error(f"unrecognized arguments: {' '.join(unknown)}")
    check_config(arguments)
    arguments.command_line = shlex.join([parser.prog, *words])
    return arguments


def check_config(arguments: argparse.Namespace) -> None:
    """Refuse to write the outputs over the configuration file."""
    config = arguments.config
    for path in (getattr(arguments, "output", None), getattr(arguments, "metrics", None)):
        if config and path and os.path.exists(path) and os.path.exists(config) and os.path.samefile(path, config):
            raise InputError(f"{path}: is the file of --config: choose another output path")


def start_ranks(argv: list[str], arguments: argparse.Namespace) -> int:
    """Run the command on `--ranks N` ranks of mpiexec; return its exit code."""
    from mpigp.launch.hosts import parse_hosts, read_hostfile
    from mpigp.launch.mpiexec import Launch

    if arguments.hosts and arguments.hostfile:
        raise InputError("--hosts and --hostfile both name the machines: give one of them")
    hosts = parse_hosts(arguments.hosts) if arguments.hosts else []
    hosts = read_hostfile(arguments.hostfile) if arguments.hostfile else hosts
    slots = sum(host.slots for host in hosts)
    ranks = arguments.ranks or slots
    if hosts and ranks > slots:
        raise InputError(f"--ranks: is {ranks}, but the machines take {slots}: give each more, like h1:4")
    rest = argv[next(at for at, word in enumerate(argv) if word in COMMANDS) :]
    policy = getattr(arguments, "on_failure", "abort")
    output = getattr(arguments, "output", None)
    restarts = RESTARTS if policy == "recover" else 0
    return Launch(ranks, getattr(arguments, "threads", 1), rest, output, policy != "abort", restarts, hosts).run()


def finish(arguments: argparse.Namespace, comm: Comm | None, figures: dict[str, Any]) -> int:
    """Print the figures of a command that has ended, if asked for; return its exit code."""
    if arguments.json and figures.get("master", comm is None or comm.rank == 0):
        import json

        print(json.dumps(figures), flush=True)
    code = int(figures.get("exit_code", 0))
    if figures.get("master", comm is None or comm.rank == 0):
        mark(DONE, str(code))
    if can_survive():
        sys.stdout.flush()
        if code and comm is not None:  # it ends the job: not before all ranks have printed their lines
            with suppress(Exception):
                comm.Barrier()
        mark(ENDED)
        os._exit(code)  # MPI_Finalize waits for ranks that have died, or die now
    return code


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    open_outlets()
    words = list(sys.argv[1:] if argv is None else argv)
    hear_signals(words)
    try:
        code = execute(words)
    except KeyboardInterrupt:
        signal.alarm(0)
        if launched_rank(os.environ) == 0:
            say("interrupted")
        mark(DONE, f"1 {BY_SIGNAL}")
        abort(1)
        code = 1
    finally:
        mark(ENDED)
    sys.exit(code)


def hear_signals(words: list[str]) -> None:
    """Prepare for signals: a fit saves and stops, and other commands are interrupted, and leave no half of a file."""
    place = next((at for at, word in enumerate(words) if word in COMMANDS), len(words))
    if any(word.partition("=")[0] in ("--ranks", "--hosts", "--hostfile") for word in words[:place]):
        for each in SIGNALS:  # until the launcher can forward them
            signal.signal(each, lambda number, frame: early_signals.append(number))
        return
    if words[place : place + 1] == ["fit"]:
        listen("was received before there was anything to save: go on with --resume",
               "was received again: --resume goes on from the last checkpoint")  # fmt: skip
        return
    for each in SIGNALS:
        signal.signal(each, interrupt)


def interrupt(number: int, frame: object) -> NoReturn:
    """Interrupt the command, once, since some senders send a signal twice; again where that got lost, as it does in
    a callback of a library."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.unraisablehook = lambda lost: None
    signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(1)
    raise KeyboardInterrupt
