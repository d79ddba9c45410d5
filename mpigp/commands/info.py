"""Print what a data, model, result or gradient file holds."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mpigp.files.inspect import describe
from mpigp.mpi.processes import printable

LONGEST = 100  # characters of an attribute or a list that are worth printing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp info`."""
    parser.add_argument("file", metavar="FILE", help="the HDF5 file")
    parser.add_argument("--no-summary", action="store_true", help="do not read the numbers, only their shapes")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Describe the file on standard output."""
    figures = describe(Path(arguments.file), summary=not arguments.no_summary)
    print("\n".join(map(printable, lines(figures))))
    return figures


def lines(figures: dict[str, Any]) -> Iterator[str]:
    """The description as text: the file, its parameters and attributes, and a table of its datasets."""
    rows = "" if figures["rows"] is None else f", {figures['rows']} rows"
    yield f"{figures['file']}: {figures['kind']}{rows}"
    for title in ("parameters", "attributes"):
        if figures.get(title):
            yield f"  {title}"
            for name, value in figures[title].items():
                yield f"    {name} = {text(value)}"
    table = [("dataset", "shape", "type", "min", "mean", "max", "NaN", "infinite")]
    notes: dict[str, list[str]] = {}
    for name, dataset in figures["datasets"].items():
        shape = " x ".join(map(str, dataset["shape"])) or "one"
        numbers = [text(dataset.get(key, "")) for key in ("min", "mean", "max", "nan", "infinite")]
        table.append((name, shape, dataset["dtype"], *numbers))
        notes[name] = [f"{key}: {text(value)}" for key, value in dataset.get("attributes", {}).items()]
        if "value" in dataset:
            notes[name].append(f"value: {text(dataset['value'])}")
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield from (f"      {note}" for note in notes.get(row[0], []))


def text(value: Any) -> str:
    """A value in a line: few digits, commas, and an end where it gets long."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        value = [f"{name} {text(each)}" for name, each in value.items()]
    if isinstance(value, list):
        value = ", ".join(map(text, value))
    line = "none" if value is None else " ".join(str(value).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 4] + " ..."
