"""A tour in under a minute: oil-flow data, a GPLVM of them learned on two ranks of which one is killed, and a report.

The fit goes on without the rank that died, where the MPI can. The same fit on one rank, in which nobody dies, then
shows that nothing was lost: all numbers that were learned have the same bits.
"""

import argparse
import subprocess
import sys
import time
from typing import Any

from mpigp.errors import InputError
from mpigp.files.atomic import made_folder
from mpigp.files.model_file import open_model
from mpigp.launch.fault_injection import FaultInjector
from mpigp.launch.mpiexec import find_mpiexec, mpi_version, outlives

VICTIM, MOMENT = 1, 100  # the rank to kill, and after which iteration
LEARN = {"--model": "gplvm", "--latent": 5, "--inducing": 30, "--standardize": "center", "--max-iter": 500}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp demo`."""
    parser.add_argument("folder", nargs="?", default="demo", metavar="FOLDER", help="where its files go (default demo)")
    parser.add_argument("--rows", type=int, default=2000, metavar="N", help="rows of data (default 2000)")


def run(arguments: argparse.Namespace, comm: None) -> dict[str, Any]:
    """Run each step as a user would, showing its command."""
    began = time.monotonic()
    folder = made_folder(arguments.folder)
    if arguments.rows < LEARN["--inducing"]:
        raise InputError(f"--rows: is {arguments.rows}: give a number ≥ {LEARN['--inducing']}")
    survives = outlives(mpi_version(find_mpiexec()))
    names = ("oilflow.h5", "model.h5", "metrics.jsonl", "undisturbed.h5", "report.html")
    data, model, metrics, undisturbed, page = (str(folder / name) for name in names)
    learn = ["fit", data, "--overwrite", *(str(word) for option in LEARN.items() for word in option)]

    say("Oil-flow data: gamma rays through a pipe, and which of three ways the oil, gas and water flow in it.")
    step("synth", "oilflow", "--rows", str(arguments.rows), "-o", data)
    plan = f"Rank {VICTIM} is to be killed after iteration {MOMENT}."
    if not survives:
        plan = "This MPI ends the whole job when a rank dies, so none is killed; Open MPI ≥ 5 outlives it."
    say(f"A GPLVM of them, on two ranks. {plan}")
    with FaultInjector(metrics, VICTIM if survives else None, MOMENT) as injector:
        step("--ranks", "2", *learn, "-o", model, "--metrics", metrics)
    with open_model(model) as file:
        timing = file.timing()
    assert timing is not None
    left = len(timing.rows)
    how = "the other went on alone" if left == 1 else "the whole job died of it, and was started again"
    killed = f"Rank {VICTIM} was killed after iteration {injector.killed_at}; {how}."
    say("No rank was killed." if injector.killed_at is None else killed)
    say("The same fit on one rank, in which nobody dies.")
    step(*learn, "-o", undisturbed)
    with open_model(model) as first, open_model(undisturbed) as second:
        same = first.bits() == second.bits()
    say("Both models have the same bits." if same else "The models DIFFER: please report this.")
    step("report", model, "-o", page, "--data", data, "--metrics", metrics)
    seconds = time.monotonic() - began
    say(f"Done in {seconds:.0f} s. The report is {page}: open it in a browser.")
    return {
        "folder": str(folder), "data": data, "model": model, "report": page, "killed_at": injector.killed_at,
        "ranks_left": left, "same_bits": same, "seconds": seconds, "exit_code": 0 if same else 1,
    }  # fmt: skip


def say(text: str) -> None:
    """Print a sentence of the tour."""
    print(f"\n# {text}", flush=True)


def step(*words: str) -> None:
    """Show a command line and run it."""
    print("$ mpigp", *words, flush=True)
    code = subprocess.run([sys.executable, "-m", "mpigp", *words]).returncode
    if code != 0:
        sys.exit(code)
