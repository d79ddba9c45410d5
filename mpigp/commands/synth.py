"""Write a synthetic data file of any number of rows."""

import argparse
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mpigp.data import synth
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable
from mpigp.files.blocks import write_blocks

KINDS = {  # with their own options, which are attributes of the file too
    "oilflow": ("gamma rays through a pipe with three-phase oil flow", ("photons",)),
    "regression": ("a smooth random function with noise", ("inputs", "outputs", "noise")),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the kinds of `mpigp synth`, and their options."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND")
    for kind, (summary, _) in KINDS.items():
        add = kinds.add_parser(kind, help=summary, description=f"Write a synthetic data file: {summary}.").add_argument
        add("--rows", type=int, required=True, metavar="N", help="number of rows")
        add("-o", "--output", required=True, metavar="DATA", help="the HDF5 file to write")
        add("--seed", type=int, default=0, metavar="S", help="the same seed gives the same rows (default 0)")
        add("--dtype", choices=["float32", "float64"], default="float64", help="numbers on disk")
        if kind == "oilflow":
            add("--photons", type=float, default=synth.PHOTONS, metavar="N0",
                help="photons per beam and energy (default 8e6)")  # fmt: skip
        else:
            add("--inputs", type=int, default=8, metavar="Q", help="columns of X (default 8)")
            add("--outputs", type=int, default=1, metavar="D", help="columns of Y (default 1)")
            add("--noise", type=float, default=0.1, metavar="SD", help="noise per unit of signal (default 0.1)")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Simulate the rows, block by block, into the output file."""
    check_writable(arguments.output)
    check(arguments)
    rows, seed = arguments.rows, arguments.seed
    options = {name: getattr(arguments, name) for name in KINDS[arguments.kind][1]}
    attributes: dict[str, dict[str, Any]]  # by dataset; "/" is the file itself
    if arguments.kind == "oilflow":
        make = partial(synth.oilflow_block, seed, photons=arguments.photons)
        attributes = {"/": {}, "Y": {"columns": synth.COLUMNS}, "labels": {"classes": synth.CONFIGURATIONS}}
    else:
        function = synth.random_function(seed, arguments.inputs, arguments.outputs)
        make = partial(synth.regression_block, function, seed, noise=arguments.noise)
        attributes = {"/": {"alpha": synth.relevance(arguments.inputs)}}
    attributes["/"] |= {"source": f"mpigp synth {arguments.kind}", "seed": seed, **options}

    shapes = write_blocks(Path(arguments.output), rows, make, np.dtype(arguments.dtype), attributes)
    print(f"{arguments.output}: {rows} rows of {listed(shapes)}")
    figures = {"file": arguments.output, "kind": arguments.kind, "rows": rows, "seed": seed}
    return figures | options | {"datasets": shapes}


def listed(shapes: dict[str, tuple[int, ...]]) -> str:
    """Return the names of datasets, with their numbers of columns."""
    return ", ".join(name + (f" ({shape[1]})" if len(shape) > 1 else "") for name, shape in shapes.items())


def check(arguments: argparse.Namespace) -> None:
    """Refuse values that are out of range."""
    given = vars(arguments)
    for name in ("rows", "inputs", "outputs"):
        if given.get(name, 1) < 1:
            raise InputError(f"--{name} {given[name]}: must be at least 1")
    if not 0 <= arguments.seed < 2**63:
        raise InputError(f"--seed {arguments.seed}: must lie between 0 and 2**63 - 1")
    if not 1.0 <= given.get("photons", 1.0) <= 1e18:  # beyond that the counts overflow
        raise InputError(f"--photons {arguments.photons:g}: must lie between 1 and 1e18")
    if not 0.0 <= given.get("noise", 0.0) < math.inf:
        raise InputError(f"--noise {arguments.noise:g}: must be a finite number and not negative")
