"""Repeat an experiment of the tutorial or of the paper, and write its table, its figure and all its numbers.

oilflow: a GPLVM of oil flow, beside GPy's (tutorial §5.1). failures: learning on a simulated cluster whose nodes fail
(tutorial §5.2). scaling: time against ranks and rows, and the spread of the load (the paper's questions). flights:
regression of flight delays, beside other methods. digits: handwritten digits classified by a GPLVM of each class.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from dataclasses import fields
from datetime import datetime, timezone
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpigp.errors import InputError
from mpigp.experiments import failures
from mpigp.experiments.source import Source
from mpigp.files.atomic import check_writable, replacing
from mpigp.files.provenance import provenance
from mpigp.mpi.communicator import connected, raise_on_all_ranks

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

SUMMARY = "an experiment of the tutorial or the paper, with its table and figure"

KINDS = ("oilflow", "failures", "scaling", "flights", "digits")
MODULES = {kind: import_module(f"mpigp.experiments.{kind}") for kind in KINDS}
DPI = 110


def numbers(kind: type) -> Any:
    """Return the parser of a list of numbers with commas."""

    def parse(text: str) -> tuple[Any, ...]:
        try:
            return tuple(kind(word) for word in text.split(",") if word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"is {text}: give numbers with commas between them") from None

    return parse


OPTIONS: dict[str, dict[str, Any]] = {  # of the studies, which say what each is by default
    "inducing": {"type": numbers(int), "metavar": "M", "help": "inducing points"},
    "latent": {"type": int, "metavar": "Q", "help": "latent dimensions"},
    "iterations": {"type": int, "metavar": "N", "help": "of each fit at most"},
    "repeats": {"type": int, "metavar": "N", "help": "runs, each from a seed of its own"},
    "seed": {"type": int, "metavar": "S", "help": "of everything random"},
    "jitter": {"type": float, "metavar": "J", "help": "added to K_mm's diagonal"},
    "nodes": {"type": int, "metavar": "N", "help": "simulated nodes"},
    "rates": {"type": numbers(float), "metavar": "P,...", "help": "failures per node and iteration"},
    "optimizer": {"choices": list(failures.OPTIMIZERS), "help": "scg is the tutorial's"},
    "every": {"type": int, "metavar": "K", "help": "iterations between true bounds"},
    "peer_python": {"metavar": "PATH", "help": "the Python of an environment with GPy, to run it too"},
    "peer_iterations": {"type": int, "metavar": "N", "help": "of GPy at most"},
    "sizes": {"type": numbers(int), "metavar": "N,...", "help": "training rows"},
    "test": {"type": int, "metavar": "N", "help": "rows to predict"},
    "trees": {"type": int, "metavar": "N", "help": "of the random forest"},
    "counts": {"type": numbers(int), "metavar": "P,...", "help": "numbers of ranks"},
    "evaluations": {"type": int, "metavar": "N", "help": "that a run times"},
}


def PARALLEL(arguments: argparse.Namespace) -> bool:
    """Return whether ranks work together: `scaling` starts its own."""
    return bool(arguments.kind != "scaling")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp experiment`."""
    add = parser.add_argument
    add("kind", choices=KINDS, help="; ".join(f"{kind}: {module.SUMMARY}" for kind, module in MODULES.items()))
    add("data", nargs="?", metavar="DATA", help="HDF5 file; without it oilflow and failures make oil flow, as `synth`")
    add("-o", "--output", required=True, metavar="DIR", help="folder for KIND.json, KIND.txt, KIND.png and KIND.svg")
    add("--rows", type=int, metavar="N", help="rows of oil flow, where no DATA are given (default 1000)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")
    for name, option in OPTIONS.items():
        add(f"--{name.replace('_', '-')}", **{**option, "help": f"{option['help']} ({defaults(name)})"})


def defaults(option: str) -> str:
    """Return what an option is by default, in the experiments that have it."""
    found = {
        kind: ",".join(f"{each:g}" for each in value) if isinstance(value, tuple) else value
        for kind, module in MODULES.items()
        for name, value in ((each.name, each.default) for each in fields(module.Study))
        if name == option
    }
    return ", ".join(f"{kind}: {'none' if value is None else value}" for kind, value in found.items())


def study_of(arguments: argparse.Namespace) -> Any:
    """Return the study of the experiment that was asked for, with the options that were given."""
    Study = MODULES[arguments.kind].Study
    known = {each.name: each.default for each in fields(Study)}
    given = {}
    for name in OPTIONS:
        value = getattr(arguments, name)
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if name not in known:
            raise InputError(f"{option}: is no option of {arguments.kind}: leave it out")
        if isinstance(value, tuple) and not isinstance(known[name], tuple):
            if len(value) != 1:
                raise InputError(f"{option}: has {len(value)} numbers: give one for {arguments.kind}")
            (value,) = value
        given[name] = value
    return Study(**given)


def run(arguments: argparse.Namespace, comm: Comm | None) -> dict[str, Any]:
    """Run the experiment, and write what it found."""
    began = time.perf_counter()
    kind, folder = arguments.kind, Path(arguments.output)
    module, source = MODULES[kind], Source(arguments.data, arguments.rows, arguments.y)
    with nullcontext() if comm is None else raise_on_all_ranks(comm):
        study = study_of(arguments)
        if comm is None or comm.rank == 0:
            check_output(kind, folder, arguments.data)
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


def check_output(kind: str, folder: Path, data: str | None) -> None:
    """Refuse a folder that cannot be written to, and to run without the packages that it takes."""
    for package, extra in MODULES[kind].NEEDS.items():
        if find_spec(package) is None:
            raise InputError(f"experiment {kind}: needs {package}: pip install 'mpigp[{extra}]'")
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
