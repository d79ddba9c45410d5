"""What all experiments share: options, the communicator, errors in one line, and files that are whole or absent."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from contextlib import nullcontext
from dataclasses import field, fields
from datetime import datetime, timezone
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from experiments.source import Source
from mpigp.cli import Parser, positive
from mpigp.errors import BAD_INPUT, InputError
from mpigp.files.atomic import check_writable, replacing
from mpigp.files.provenance import provenance
from mpigp.launch.stdio import open_outlets
from mpigp.mpi.communicator import connected, raise_on_all_ranks, world
from mpigp.mpi.processes import default_threads, launched_rank, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

DPI = 110


def option(default: Any, metavar: str | None, described: str, **more: Any) -> Any:
    """Return a field of a study: an option of the experiment, with its default and its line of help."""
    return field(default=default, metadata={"metavar": metavar, "help": described, **more})


def listed(kind: type) -> Any:
    """Return the parser of a list of numbers or names with commas."""

    def parse(text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(word) for word in text.split(",") if word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"is {text}: give numbers with commas between them") from None

    return parse


def build_parser(kind: str, module: Any) -> Parser:
    """Return the parser of `python -m experiments.KIND`: the options of all experiments, and those of its study."""
    parser = Parser(prog=f"python -m experiments.{kind}", description=module.__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add = parser.add_argument
    add("data", nargs="?", metavar="DATA", help="HDF5 file; without it oilflow and failures make oil flow, as `synth`")
    add("-o", "--output", required=True, metavar="DIR", help=f"folder for {kind}.json, {kind}.txt, .png and .svg")
    add("--rows", type=int, metavar="N", help="rows of oil flow, where no DATA are given (default 1000)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")
    for each in fields(module.Study):
        value: Any = each.default
        shown, parse = "none" if value is None else value, str if value is None else type(value)
        if isinstance(value, tuple):
            shown, parse = ",".join(map(str, value)), listed(type(value[0]))
        described = {**each.metadata, "help": f"{each.metadata['help']} (default {shown})"}
        add(f"--{each.name.replace('_', '-')}", type=parse, default=value, **described)
    add("--json", action="store_true", help="make the last line of output one JSON object")
    add("--threads", type=positive, default=default_threads(os.environ), metavar="T",
        help="threads of a rank (default: SLURM_CPUS_PER_TASK, or 1)")  # fmt: skip
    return parser


def main(kind: str, argv: list[str] | None = None) -> NoReturn:
    """Run `python -m experiments.KIND ARGV` in this process, and exit with its code."""
    open_outlets()
    sys.exit(execute(kind, list(sys.argv[1:] if argv is None else argv)))


def execute(kind: str, argv: list[str]) -> int:
    """Run an experiment; return its exit code."""
    rank, comm = launched_rank(os.environ), None
    module = import_module(f"experiments.{kind}")
    parser = build_parser(kind, module)
    try:
        arguments = parser.parse_args(argv)
        arguments.command_line = shlex.join([*parser.prog.split(), *argv])
        if module.PARALLEL:
            comm = world()
            rank = comm.rank
        elif rank != 0:
            return 0  # one process is enough
        found = run(kind, module, arguments, comm)
        if arguments.json and rank == 0:
            print(json.dumps(found), flush=True)
        return 0
    except InputError as error:
        if rank == 0:
            say(str(error))
        elif comm is None:
            return 0  # a rank that fails ends the job: rank 0, which prints the line, shall be the one
        if comm is not None:
            comm.Barrier()  # not before the line above is printed
        return BAD_INPUT


def run(kind: str, module: Any, arguments: argparse.Namespace, comm: Comm | None) -> dict[str, Any]:
    """Run the experiment, and write its results."""
    began = time.perf_counter()
    folder, source = Path(arguments.output), Source(arguments.data, arguments.rows, arguments.y)
    study = module.Study(**{each.name: getattr(arguments, each.name) for each in fields(module.Study)})
    with nullcontext() if comm is None else raise_on_all_ranks(comm):
        if comm is None or comm.rank == 0:
            check_output(kind, module.NEEDS, folder, arguments.data)
    found = module.conduct(comm, study, source, arguments.threads)
    comm = connected() if comm is None else comm  # not before: it leaves marks for the ranks that a study starts
    made = provenance(comm, arguments.threads, arguments.command_line)
    if found is None:
        return {}
    found = {"experiment": kind, "data": source.name, **found}
    found |= {"seconds": time.perf_counter() - began, "threads": arguments.threads}
    found.setdefault("ranks", comm.size)
    found["made"] = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "command": made["command"]}
    found["made"] |= {name: json.loads(made[name]) for name in ("machine", "versions")}
    lines = module.shown(found)
    lines.append(f"{found['seconds']:.1f} s on {found['ranks']} ranks of {arguments.threads} threads, "
                 f"{found['made']['machine']['cpu']}, {found['made']['date'][:10]}")  # fmt: skip
    written = write(folder / kind, found, lines, module.picture(found))
    print("\n".join([*lines, *written]))
    return {name: value for name, value in found.items() if name != "runs"} | {"written": written}


def check_output(kind: str, needs: dict[str, str], folder: Path, data: str | None) -> None:
    """Refuse a folder that cannot be written to, and to run without the packages that it takes."""
    for package, extra in needs.items():
        if find_spec(package) is None:
            raise InputError(f"{kind}: needs {package}: pip install 'mpigp[{extra}]'")
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder: create it, or choose another with -o")
    for suffix in ("json", "txt", "png", "svg"):
        check_writable(folder / f"{kind}.{suffix}", *([data] if data else []))


def write(path: Path, found: dict[str, Any], lines: list[str], figure: Figure) -> list[str]:
    """Write all numbers, the table and the figure to files of this name; return their paths."""
    from matplotlib import rc_context

    def save(temporary: Path, kind: str, **options: Any) -> None:
        with rc_context({"svg.hashsalt": "mpigp"}):
            figure.savefig(temporary, format=kind, **options)

    files = {
        "json": lambda temporary: temporary.write_text(json.dumps(found, allow_nan=False) + "\n", "utf-8"),
        "txt": lambda temporary: temporary.write_text("\n".join(lines) + "\n", "utf-8"),
        "png": lambda temporary: save(temporary, "png", dpi=DPI),
        "svg": lambda temporary: save(temporary, "svg", metadata={"Date": None}),
    }
    written = []
    for suffix, fill in files.items():
        target = path.with_name(f"{path.name}.{suffix}")
        with replacing(target) as temporary:
            fill(temporary)
        written.append(str(target))
    return written
