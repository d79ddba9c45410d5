"""A tour on data that the program makes itself: oil-flow readings, and a GPLVM of them evaluated on two ranks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpigp import cli
from mpigp.errors import InputError
from mpigp.launch import launch

SUMMARY = "a tour: makes oil-flow data and evaluates a GPLVM of them on two ranks"
PARALLEL = False

INDUCING, LATENT, SEED = 50, 10, 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp demo`."""
    parser.add_argument("folder", nargs="?", default="demo", metavar="FOLDER", help="where its files go (default demo)")
    parser.add_argument("--rows", type=int, default=10_000, metavar="N", help="rows of data (default 10000)")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Run each step as a user would, showing its command."""
    folder = Path(arguments.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}: choose another folder") from error
    data, parameters, gradients = (str(folder / name) for name in ("oilflow.h5", "parameters.h5", "gradients.h5"))
    step(1, ["synth", "oilflow", "--rows", str(arguments.rows), "-o", data])
    write_parameters(parameters, arguments.rows)
    step(2, ["evaluate", data, "--params", parameters, "-o", gradients, "--repeat", "5"])
    step(1, ["info", gradients])
    return {"folder": str(folder), "data": data, "parameters": parameters, "gradients": gradients}


def step(ranks: int, arguments: list[str]) -> None:
    """Show a command and run it on this many ranks."""
    launched = ["--ranks", str(ranks)] if ranks > 1 else []
    print("$ mpigp", *launched, *arguments, flush=True)
    code = launch(ranks, 1, arguments) if ranks > 1 else cli.execute(arguments)
    if code != 0:
        sys.exit(code)


def write_parameters(path: str, rows: int) -> None:
    """Write parameters of a GPLVM of `rows` rows: latent points from the prior, and inducing points among them."""
    rng = np.random.default_rng(SEED)
    mu = rng.standard_normal((rows, LATENT))
    with h5py.File(path, "w") as file:
        file.attrs["model"] = "gplvm"
        file["Z"] = mu[rng.permutation(rows)[:INDUCING]]
        file["beta"] = 100.0
        file["kernel/variance"] = 1.0
        file["kernel/alpha"] = np.full(LATENT, 1 / LATENT)
        file["latent/mu"] = mu
        file["latent/S"] = np.full((rows, LATENT), 0.1)
