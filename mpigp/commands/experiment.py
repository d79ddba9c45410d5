"""Repeat an experiment of the tutorial: `failures` (§5.2) learns a GPLVM on a simulated cluster whose nodes fail."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mpigp import synth
from mpigp.atomic import check_writable, replacing
from mpigp.data import find
from mpigp.errors import InputError
from mpigp.experiments.failures import OPTIMIZERS, Study, jobs, record, run_all
from mpigp.hdf5 import read_rows, reading
from mpigp.ranks import together

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

Floats = NDArray[np.float64]

SUMMARY = "an experiment of the tutorial: what failing nodes do to learning"
PARALLEL = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mpigp experiment`."""
    parser.set_defaults(**{each.name: each.default for each in fields(Study)})
    add = parser.add_argument
    add("kind", choices=["failures"], help="which experiment")
    add(
        "data",
        nargs="?",
        metavar="DATA",
        help="HDF5 file with /Y (n, d) (default: oil flow, as `synth` makes it)",
    )
    add("-o", "--output", required=True, metavar="DIR", help="folder for failures.json, failures.png and failures.svg")
    add("--rows", type=int, metavar="N", help="rows of oil flow, where no DATA are given (default 1000)")
    add("--nodes", type=int, metavar="N", help="simulated nodes (default %(default)s)")
    add("--iterations", type=int, metavar="N", help="of each run (default %(default)s)")
    add("--repeats", type=int, metavar="N", help="runs of each rate and way (default %(default)s)")
    add("--rates", type=rates, metavar="P,...", help="failures per node and iteration (default 0,0.01,0.02)")
    add("--inducing", type=int, metavar="M", help="inducing points (default %(default)s)")
    add("--latent", type=int, metavar="Q", help="latent dimensions (default %(default)s)")
    add("--optimizer", choices=list(OPTIMIZERS), help="default %(default)s, the tutorial's")
    add("--every", type=int, metavar="K", help="iterations between true bounds (default %(default)s)")
    add("--seed", type=int, metavar="S", help="of everything random (default %(default)s)")
    add("--jitter", type=float, metavar="J", help="added to K_mm's diagonal (default %(default)s)")
    add("--y", default="Y", metavar="NAME", help="dataset of the outputs (default Y)")


def rates(text: str) -> tuple[float, ...]:
    """Return the numbers of a list with commas."""
    try:
        return tuple(float(word) for word in text.split(",") if word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text}: give numbers with commas between them, like 0,0.01") from None


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Run all, gather, write."""
    from mpi4py import MPI

    began = time.perf_counter()
    folder = Path(arguments.output)
    study = Study(**{each.name: getattr(arguments, each.name) for each in fields(Study)})
    with together(comm):
        if comm.rank == 0:
            check_output(folder, arguments.data)
        Y = outputs(arguments)
        study.check(*Y.shape)

    mine = len(jobs(study, range(comm.rank, study.repeats, comm.size)))
    with tqdm(total=mine, unit="run", disable=None if comm.rank == 0 else True) as progress:
        runs = run_all(comm, MPI.COMM_SELF, Y, study, arguments.threads, progress.update)
    if comm.rank != 0:
        return {}
    from mpigp.experiments.figure import draw

    found = record(runs, study)
    seconds = time.perf_counter() - began
    found |= {"data": arguments.data or "oilflow", "shape": list(Y.shape)}
    found |= {"seconds": seconds, "ranks": comm.size, "threads": arguments.threads}
    path = folder / "failures.json"
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(found, allow_nan=False) + "\n", "utf-8")
    written = [str(path), *draw(runs, study, folder)]
    print(shown(found["table"]))
    if found["recover_coincides"] is not None:
        print("recover: bit for bit the same as without failures" if found["recover_coincides"] else
              "recover: DIFFERS from the runs without failures: please report this")  # fmt: skip
    print(f"{len(runs)} runs in {seconds:.1f} s on {comm.size} ranks of {arguments.threads} threads")
    print("\n".join(written))
    return {name: value for name, value in found.items() if name != "runs"} | {"written": written}


def check_output(folder: Path, data: str | None) -> None:
    """Refuse a folder that cannot be written to, and to run without what draws the figure."""
    if find_spec("matplotlib") is None:
        raise InputError("experiment: needs matplotlib to draw: pip install 'mpigp[report]'")
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder: create it, or choose another with -o")
    for kind in ("json", "png", "svg"):
        check_writable(folder / f"failures.{kind}", *([data] if data else []))


def outputs(arguments: argparse.Namespace) -> Floats:
    """Return all rows of Y (n, d): those of the file, or oil flow."""
    if arguments.data:
        if arguments.rows is not None:
            raise InputError("--rows: is the number of rows to make, and DATA are given: leave one of them out")
        with reading(arguments.data) as file:
            sets = find(file, arguments.y, None)
            return read_rows(sets.Y, 0, sets.n)
    rows = 1000 if arguments.rows is None else arguments.rows
    if rows < 1:
        raise InputError(f"--rows: is {rows}: give a number ≥ 1")
    blocks = [synth.oilflow_block(0, block)["Y"] for block in range(-(-rows // synth.BLOCK))]
    return np.concatenate(blocks)[:rows].copy()


COLUMNS = {  # of the table: heading, name, format
    "true bound": ("bound", "11.1f"), "± sd": ("spread", "10.1f"), "median": ("median", "10.1f"),
    "seen bound": ("seen", "11.1f"), "largest α": ("largest", "9.3f"), "second": ("second", "7.3f"),
    "others": ("others", "7.3f"), "failures": ("failures", "8.1f"), "steps": ("steps", "7.1f"),
}  # fmt: skip


def shown(table: list[dict[str, Any]]) -> str:
    """Return the table as text: true final bounds, and ARD weights as the tutorial quotes them."""
    rows = [["  rate", "way    ", *(f"{heading:>{kind.split('.')[0]}}" for heading, (_, kind) in COLUMNS.items())]]
    for line in table:
        cells = [
            f"{'none':>{kind.split('.')[0]}}" if line[name] is None else format(line[name], kind)
            for name, kind in COLUMNS.values()
        ]
        rows.append([f"{line['rate']:6.3g}", f"{line['way']:7}", *cells])
    return "\n".join(" ".join(row) for row in rows)
