"""A tour on data that the program makes itself: oil-flow readings, and a GPLVM of them learnt on two ranks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from mpigp import cli
from mpigp.errors import InputError
from mpigp.launch import launch

SUMMARY = "a tour: makes oil-flow data and learns a GPLVM of them on two ranks"
PARALLEL = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp demo`."""
    parser.add_argument("folder", nargs="?", default="demo", metavar="FOLDER", help="where its files go (default demo)")
    parser.add_argument("--rows", type=int, default=2000, metavar="N", help="rows of data (default 2000)")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Run each step as a user would, showing its command."""
    folder = Path(arguments.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}: choose another folder") from error
    data, model = str(folder / "oilflow.h5"), str(folder / "model.h5")
    learn = {"--model": "gplvm", "--latent": 5, "--inducing": 30, "--standardize": "center", "--max-iter": 200}
    step(1, ["synth", "oilflow", "--rows", str(arguments.rows), "-o", data])
    step(2, ["fit", data, "-o", model, *(str(word) for option in learn.items() for word in option)])
    step(2, ["evaluate", data, "--params", model, "--repeat", "5"])
    return {"folder": str(folder), "data": data, "model": model}


def step(ranks: int, arguments: list[str]) -> None:
    """Show a command and run it on this many ranks."""
    launched = ["--ranks", str(ranks)] if ranks > 1 else []
    print("$ mpigp", *launched, *arguments, flush=True)
    code = launch(ranks, 1, arguments) if ranks > 1 else cli.execute(arguments)
    if code != 0:
        sys.exit(code)
