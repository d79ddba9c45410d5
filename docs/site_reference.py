"""A hook of MkDocs that generates the reference pages from the program: its commands, and its Python interface."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import mpigp
import mpigp.kernels
from mpigp.cli import COMMANDS, build_parser

PACKAGES = (mpigp, mpigp.kernels)  # those that are used from outside
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)  # of a docstring in NumPy's style

COMMANDS_HEAD = """# Commands

This page is generated from the program; `mpigp COMMAND --help` prints the same text. There are two ways to run a
command on N ranks: with any launcher, as in `mpiexec -n N mpigp COMMAND ...`, or as `mpigp --ranks N COMMAND ...`,
which starts mpiexec with the options that the installed MPI needs. In a checkout, `python run.py` is the same as
`mpigp`.

| exit code | meaning |
|---|---|
| 0 | done |
| 2 | bad usage or bad input, reported in one line on standard error; nothing was written |
| 75 | `fit` was stopped by Ctrl-C, SIGTERM, SIGUSR1, SIGUSR2, `--time-limit` or failed ranks, and can be resumed |
| 1 | anything else |

After exit code 75, continue with `--resume`: from the checkpoint that was saved, or from the beginning if a signal came
before the first iteration. If ranks are killed, plain `mpiexec` ends with an exit code of its own.

| options before the command | |
|---|---|"""

API_HEAD = """# Python API

This page is generated from the docstrings. [Python estimators](python.md) shows how to use them."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for name, lines in (("commands.md", commands()), ("api.md", api())):
        files.append(File.generated(config, name, content="\n".join(lines) + "\n"))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave out the second word of a fence, which is for the tests (`sh long=600`)."""
    return re.sub(r"^(```\w+) .*$", r"\1", markdown, flags=re.MULTILINE)


def commands() -> Iterator[str]:
    """Yield the reference of the commands, from their parsers."""
    os.environ["COLUMNS"] = "110"  # of argparse's usage
    parser = build_parser()
    yield COMMANDS_HEAD
    yield from options(parser)
    for name in COMMANDS:
        command = parser.subcommands[name]
        yield f"\n## {name}\n\n{command.description}"
        for leaf in command.leaves():
            if leaf is not command:
                yield f"\n### {leaf.prog.partition(' ')[2]}\n\n{leaf.description}"
            yield f"\n```usage\n{leaf.format_usage().strip()}\n```\n"
            yield "| option | |\n|---|---|"
            yield from options(leaf)


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the rows of a table of a parser's arguments."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
        words = [" ".join(filter(None, [word, value])) for word in action.option_strings] or [str(value)]
        shown = "`, `".join(words).replace("|", "\\|")
        told = (action.help or "").replace("%(default)s", str(action.default)).replace("|", "\\|")
        yield f"| `{shown}` | {told} |"


def api() -> Iterator[str]:
    """Yield the reference of the Python interface, and a list of all modules, from their docstrings."""
    yield API_HEAD
    named = [(f"{package.__name__}.{name}", getattr(package, name)) for package in PACKAGES for name in package.__all__]
    for full, item in named:
        name = full.rpartition(".")[2]
        yield from described(f"## {full}", name, item)
        if inspect.isclass(item):
            for method, function in inspect.getmembers(item, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("mpigp."):
                    yield from described(f"### {name}.{method}", method, function)
    yield "\n## All modules\n\n| module | |\n|---|---|"
    for found in sorted(pkgutil.walk_packages(mpigp.__path__, "mpigp."), key=lambda found: found.name):
        if not found.name.rpartition(".")[2].startswith("_"):
            told = (importlib.import_module(found.name).__doc__ or "").partition("\n")[0].replace("|", "\\|")
            yield f"| `{found.name}` | {told} |"


def described(heading: str, name: str, item: Any) -> Iterator[str]:
    """Yield the section of a class or function: its heading, how it is called, and its docstring."""
    plain = inspect.isclass(item) and issubclass(item, Exception)  # these have no signature
    given = [] if plain else inspect.signature(item).parameters.values()
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in given if each.name != "self"]
    called = f"{name}{inspect.Signature(bare)}"
    yield f"\n{heading}\n\n```usage\n{called}\n```\n"
    yield from markdown(inspect.getdoc(item) or "")


def markdown(docstring: str) -> Iterator[str]:
    """Yield a docstring of NumPy's style as Markdown: sections in bold, names as a list, examples as code."""
    text, *sections = SECTION.split(docstring)
    yield text.strip()
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        yield f"\n**{title}**\n"
        if title == "Examples":
            yield f"```pycon\n{body.strip()}\n```"
            continue
        for line in body.strip("\n").splitlines():
            names, colon, meaning = line.partition(" : ")
            yield f"- `{names}`: {meaning}" if colon and not line.startswith(" ") else f"    {line.strip()}"
