"""Write a synthetic data file of any number of rows."""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from mpigp.data import synth
from mpigp.errors import InputError
from mpigp.files.atomic import check_writable, replacing

PARALLEL = False

OPTIONS = {  # of one kind only, with their defaults
    "oilflow": {"photons": synth.PHOTONS},
    "regression": {"inputs": 8, "outputs": 1, "noise": 0.1},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp synth`."""
    add = parser.add_argument
    add("kind", choices=list(OPTIONS), help="what to simulate")
    add("--rows", type=int, required=True, metavar="N", help="number of rows")
    add("-o", "--output", required=True, metavar="DATA", help="the HDF5 file to write")
    add("--seed", type=int, default=0, metavar="S", help="the same seed gives the same rows (default 0)")
    add("--dtype", choices=["float32", "float64"], default="float64", help="numbers on disk")
    add("--photons", type=float, metavar="N0", help="oilflow: photons per beam and energy (default 8e6)")
    add("--inputs", type=int, metavar="Q", help="regression: columns of X (default 8)")
    add("--outputs", type=int, metavar="D", help="regression: columns of Y (default 1)")
    add("--noise", type=float, metavar="SD", help="regression: noise per unit of signal (default 0.1)")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Simulate the rows, block by block, into the output file."""
    check_writable(arguments.output)
    options = checked_options(arguments)
    rows, seed = arguments.rows, arguments.seed
    make: Callable[[int], dict[str, NDArray]]
    attributes: dict[str, dict[str, Any]]  # by dataset; "/" is the file itself
    if arguments.kind == "oilflow":
        make = partial(synth.oilflow_block, seed, photons=options["photons"])
        attributes = {"/": {}, "Y": {"columns": synth.COLUMNS}, "labels": {"classes": synth.CONFIGURATIONS}}
    else:
        function = synth.random_function(seed, options["inputs"], options["outputs"])
        make = partial(synth.regression_block, function, seed, noise=options["noise"])
        attributes = {"/": {"alpha": synth.relevance(options["inputs"])}}
    attributes["/"] |= {"source": f"mpigp synth {arguments.kind}", "seed": seed, **options}

    with threadpool_limits(limits=1, user_api="blas"):  # the same bits on any number of cores
        shapes = write(Path(arguments.output), rows, make, np.dtype(arguments.dtype), attributes)
    held = ", ".join(name + (f" ({shape[1]})" if len(shape) > 1 else "") for name, shape in shapes.items())
    print(f"{arguments.output}: {rows} rows of {held}")
    figures = {"file": arguments.output, "kind": arguments.kind, "rows": rows, "seed": seed}
    return figures | options | {"datasets": shapes}


def checked_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of this kind, defaults filled in; refuse what is out of range or of another kind."""
    for kind, defaults in OPTIONS.items():
        for option in defaults:
            if kind != arguments.kind and getattr(arguments, option) is not None:
                raise InputError(f"--{option}: is an option of {kind}: leave it out for {arguments.kind}")
    options = {
        option: default if getattr(arguments, option) is None else getattr(arguments, option)
        for option, default in OPTIONS[arguments.kind].items()
    }
    for name in ("rows", "inputs", "outputs"):
        value = options.get(name, arguments.rows)
        if value < 1:
            raise InputError(f"--{name} {value}: must be at least 1")
    if not 0 <= arguments.seed < 2**63:
        raise InputError(f"--seed {arguments.seed}: must lie between 0 and 2**63 - 1")
    if not 1.0 <= options.get("photons", 1.0) <= 1e18:  # beyond that the counts overflow
        raise InputError(f"--photons {options['photons']:g}: must lie between 1 and 1e18")
    if not 0.0 <= options.get("noise", 0.0) < math.inf:
        raise InputError(f"--noise {options['noise']:g}: must be a finite number and not negative")
    return options


def write(
    path: Path,
    rows: int,
    make: Callable[[int], dict[str, NDArray]],
    dtype: np.dtype,
    attributes: dict[str, dict[str, Any]],
) -> dict[str, tuple[int, ...]]:
    """Write the first `rows` rows of the blocks `make(0)`, `make(1)`, ...; return the datasets' shapes.

    One block at a time is in memory. The datasets are contiguous: a rank's rows are one stretch of the file.
    """
    block = make(0)
    dtypes = {name: dtype if array.dtype.kind == "f" else array.dtype for name, array in block.items()}
    needed = rows * sum(array[0].size * dtypes[name].itemsize for name, array in block.items())
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise InputError(
            f"{path}: {rows} rows need {needed / 1e9:.3g} GB and {free / 1e9:.3g} GB are free there: "
            "choose fewer rows, --dtype float32 or another disk"
        )
    progress = tqdm(total=rows, unit="row", unit_scale=True, disable=None)
    with replacing(path) as part, h5py.File(part, "w") as file, progress:
        for name, array in block.items():
            file.create_dataset(name, shape=(rows, *array.shape[1:]), dtype=dtypes[name])
        for name, pairs in attributes.items():
            file[name].attrs.update(pairs)
        for number, start in enumerate(range(0, rows, synth.BLOCK)):
            block = make(number) if number else block
            stop = min(start + synth.BLOCK, rows)
            for name, array in block.items():
                file[name][start:stop] = array[: stop - start]
            progress.update(stop - start)
        return {name: file[name].shape for name in block}
