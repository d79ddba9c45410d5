"""Write the batch script of a fit for Slurm, from the options of `fit` and those of the job; --submit submits it."""

import argparse
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpigp.commands import fit
from mpigp.data.datasets import find
from mpigp.data.hdf5 import reading
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, replacing
from mpigp.launch import slurm as batch

# Options of sbatch that most jobs have, with what they mean here.
COMMON = {
    "nodes": ("N", "nodes"), "ntasks-per-node": ("N", "ranks of a node"), "cpus-per-task": ("N", "threads of a rank"),
    "time": ("TIME", "limit, like 4:00:00"), "partition": ("NAME", "where to run"), "account": ("NAME", "whose hours"),
    "array": ("LIST", "like 1-3: a fit for each number, which takes the place of %%a in the options of fit"),
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp slurm`."""
    parser.add_argument("what", choices=["fit"], help="the command that the job runs, with its options")
    add_job_arguments(parser)
    fit.add_arguments(parser)
    for action in parser._actions:
        if action.type is not None:
            action.type = in_array(action.type)


def in_array(kind: Any) -> Callable[[str], Any]:
    """Return the type of an option's values, of which some may have %a for the number of a fit within its array."""

    def value(text: str) -> Any:
        return kind(text.replace("%a", "1"))

    value.__name__ = getattr(kind, "__name__", str(kind))  # as errors name it
    return value


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that are the job's, not the fit's."""
    add = parser.add_argument_group("the job").add_argument
    for name, (value, words) in COMMON.items():
        add(f"--{name}", metavar=value, help=words)
    add("--sbatch", action="append", default=[], metavar="NAME=VALUE",
        help="any other option of sbatch, like mem=4G; may be given several times")  # fmt: skip
    add("--script", choices=batch.SCRIPTS, help="which of the scripts (default: fit, with several threads fit-hybrid)")
    add("--setup", metavar="COMMANDS",
        help="what finds mpigp and its MPI, like 'module load mpigp' (default: this one)")  # fmt: skip
    add("--write", metavar="FILE", help="the script (default: named as MODEL, with the ending .sbatch)")
    add("--submit", action="store_true", help="submit it, and print the job's number")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Check, fill in, write, submit."""
    fit.options_of(arguments)
    words = fit_words(arguments.command_line)
    if arguments.array and "%a" not in arguments.output:
        raise InputError(f"-o: is {arguments.output} for every fit of the array: write %a for its number: model-%a.h5")
    script = Path(arguments.write or Path(arguments.output.replace("%a", "array")).with_suffix(".sbatch"))
    check_writable(script, arguments.data, arguments.output)
    several = (arguments.cpus_per_task or "1") != "1"
    if arguments.script == "fit" and several:
        raise InputError("--script: is fit, whose ranks have one thread: choose fit-hybrid, or leave it out")
    if arguments.submit:  # data that the fit would refuse, hours later
        first = re.match(r"\d*", arguments.array or "")
        with reading(arguments.data.replace("%a", first.group() if first else "")) as data:
            find(data, arguments.y, arguments.x if arguments.model == "regression" else None)

    text = batch.template(arguments.script or ("fit-hybrid" if several else "fit"))
    text = batch.filled(text, sbatch_options(arguments), arguments.setup or batch.environment(), words)
    with replacing(script) as temporary:
        temporary.write_text(text, "utf-8")
    print(script)
    if not arguments.submit:
        return {"script": str(script)}
    job = batch.sbatch([str(script)])
    print(f"job {job}")
    return {"script": str(script), "job": job}


def fit_words(command_line: str) -> list[str]:
    """Return the words of `mpigp slurm fit ...` that are for `fit`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_job_arguments(parser)
    parser.add_argument("--config")
    parser.add_argument("--json", action="store_true")
    _, words = parser.parse_known_args(shlex.split(command_line))
    words.remove("fit")  # before it may be options from a file
    return words[words.index("slurm") + 1 :]


def sbatch_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of sbatch that were given."""
    given = {name: getattr(arguments, name.replace("-", "_")) for name in COMMON}
    options = {name: value for name, value in given.items() if value is not None}
    for each in arguments.sbatch:
        name, _, value = each.partition("=")
        options[name.lstrip("-")] = value
    for name, value in options.items():
        if not name or any(character.isspace() for character in name + value):
            raise InputError(f"--{name}: is {value!r}: give an option of sbatch without spaces")
    return options
