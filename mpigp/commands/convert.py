"""Make a data file of a CSV, NPY, NPZ or Parquet file."""

import argparse
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from tqdm import tqdm

from mpigp.commands.synth import listed
from mpigp.data.convert import assign, write
from mpigp.data.hdf5 import plain
from mpigp.data.tables import FORMATS, open_table
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, replacing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp convert`."""
    add = parser.add_argument
    add("input", metavar="IN", help="the table to read")
    add("-o", "--output", required=True, metavar="DATA", help="the HDF5 file to write")
    add("--x-columns", metavar="A,B,...", help="columns of X, by name or number from 0; '' for no X")
    add("--y-columns", metavar="C,D,...", help="columns of Y (default: all that are neither X nor labels)")
    add("--labels", metavar="COLUMN", help="the column of classes, integers or text")
    add("--format", choices=list(FORMATS), help="what the input is (default: by its name)")
    add("--delimiter", metavar="CHARACTER", help="CSV: between fields; may be 'tab' (default: by the name)")
    add("--header", choices=["auto", "yes", "no"], default="auto", help="CSV: does the first row name columns?")
    add("--dtype", choices=["float32", "float64"], help="numbers on disk (default: float32 if that loses nothing)")


def names(text: str | None) -> list[str] | None:
    """The names in a comma-separated option; None where it is not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Copy the table into the output file, a block of rows at a time."""
    check_writable(arguments.output, arguments.input)
    delimiter = {"tab": "\t", "\\t": "\t"}.get(arguments.delimiter, arguments.delimiter)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise InputError(f"--delimiter {arguments.delimiter!r}: must be one character, or 'tab'")
    header = {"auto": None, "yes": True, "no": False}[arguments.header]
    path = Path(arguments.input)
    table = open_table(path, arguments.format, delimiter, header)
    assignment = assign(table, names(arguments.x_columns), names(arguments.y_columns), arguments.labels)
    dtype = np.dtype(arguments.dtype) if arguments.dtype else None

    size = table.size([*assignment.x, *assignment.y])
    progress = tqdm(total=size, unit=table.unit, unit_scale=True, disable=None)
    # the format of HDF5 1.8 may name any number of columns
    with replacing(arguments.output) as part, h5py.File(part, "w", libver="v108") as file, progress:
        rows, missing = write(table, assignment, file, dtype, progress.update)
        file.attrs["source"] = plain(path.name)
        shapes = {name: dataset.shape for name, dataset in file.items()}
    print(f"{arguments.output}: {rows} rows of {listed(shapes)}" + (f", {missing} values missing" if missing else ""))
    return {"file": arguments.output, "rows": rows, "missing": missing, "datasets": shapes}
