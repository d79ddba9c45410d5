"""A benchmark from the command line to its file: measured in a folder of its own, printed, written."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support import machine
from benchmarks.support.launch import RunFailed

Record = dict[str, Any]


def run(
    measure: Callable[[Path, argparse.Namespace], Record],
    table: Callable[[Record], Iterator[str]],
    arguments: argparse.Namespace,
) -> None:
    """Measure, print the table, write the JSON file `arguments.output`; exit code 1 if a run failed."""
    try:
        with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as folder:
            results = measure(Path(folder), arguments)
    except RunFailed as failure:
        sys.exit(f"failed: {failure}")
    print("\n".join(table(results)))
    if arguments.output:
        arguments.output.write_text(json.dumps({"machine": machine.describe(), **results}, indent=1) + "\n")


def parse_with_peers(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add `--peer` and `--python`, of which there are as many, and parse the command line."""
    add = parser.add_argument
    add("--peer", action="append", default=[], choices=("gpy", "gpflow"), help="a program to time too")
    add("--python", action="append", default=[], help="the Python that has it: one for each --peer")
    arguments = parser.parse_args()
    if len(arguments.peer) != len(arguments.python):
        parser.error("give one --python PATH for each --peer NAME")
    return arguments


def spread(values: Iterator[float]) -> dict[str, float]:
    """Return the median, the least and the greatest."""
    numbers = list(values)
    return {"median": median(numbers), "least": min(numbers), "greatest": max(numbers)}


def figure(values: dict[str, float], goal: float) -> str:
    """Return a median with its range, marked if it is below the goal."""
    middle, least, greatest = values["median"], values["least"], values["greatest"]
    mark = "!" if middle < goal else " "
    return f"{middle:6.2f}{mark} ({least:.2f} to {greatest:.2f}; asked {goal:g})"
