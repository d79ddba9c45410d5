"""How a file was made: the versions, the machine, and the seconds that each rank spent."""

import importlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import __version__
from mpigp.mpi.memory import lines
from mpigp.mpi.processes import own_peak_memory
from mpigp.mpi.timers import PHASES, Timers
from mpigp.types import Comm, Floats

PACKAGES = ("numpy", "scipy", "h5py", "mpi4py")
LONGEST = 10_000  # characters of a command: an attribute of HDF5 holds 64 kB


class Timing(NamedTuple):
    """seconds : (ranks, phases), of each rank in each of PHASES.   rows : (ranks,), of each rank."""

    seconds: Floats
    rows: NDArray[np.int64]


def timing(comm: Comm, phases: Timers, rows: int) -> Timing | None:
    """Return the seconds and rows of all ranks, on rank 0; None on the others. Called by all ranks."""
    gathered = comm.gather(([phases.seconds[name] for name in PHASES], rows))
    return None if gathered is None else Timing(*map(np.array, zip(*gathered, strict=True)))


def balance(work: Floats) -> float:
    """Return the mean over the ranks of their work (ranks,), as a share of the busiest rank's."""
    return float(work.mean() / work.max()) if work.max() > 0 else 1.0


def by_rank(comm: Comm, seconds: Mapping[str, float], rows: int) -> dict[str, Any]:
    """Return what each rank was and did, in lists of as many entries as ranks, on rank 0. Called by all ranks.

    `seconds` of each phase by its name, `rows`, `memory` (the peak, in bytes) and `nodes`; and, a number, the `cores`
    that the ranks may run on together.
    """
    from mpi4py import MPI

    node = MPI.Get_processor_name()
    gathered = comm.gather((seconds, rows, own_peak_memory(), node, [(node, core) for core in os.sched_getaffinity(0)]))
    if gathered is None:
        return {}
    each, all_rows, memory, nodes, cores = zip(*gathered, strict=True)
    return {
        "seconds": {name: [mine[name] for mine in each] for name in PHASES}, "rows": list(all_rows),
        "memory": list(memory), "nodes": list(nodes), "cores": len({core for mine in cores for core in mine}),
    }  # fmt: skip


def provenance(comm: Comm, threads: int, command: str) -> dict[str, str]:
    """Return the attributes `command`, `versions` and `machine` (JSON) of a file. Called by all ranks."""
    from mpi4py import MPI

    hosts = len(set(comm.allgather(MPI.Get_processor_name())))
    machine = {"cpu": cpu(), "hosts": hosts, "ranks": comm.size, "threads": threads}
    command = command.encode(errors="replace").decode()[:LONGEST]  # names of files need not be text
    return {"command": command, "versions": json.dumps(versions()), "machine": json.dumps(machine)}


def versions() -> dict[str, str]:
    """Return the versions of this program and of all that its numbers may depend on."""
    from mpi4py import MPI

    library = MPI.Get_library_version().split("\n")[0].split(",")[0]
    packages = {name: importlib.import_module(name).__version__ for name in PACKAGES}
    return {"mpigp": __version__, "python": platform.python_version(), **packages, "MPI": " ".join(library.split())}


def cpu() -> str:
    """Return the name of this machine's CPU, as well as the system tells it."""
    text = lines(Path("/proc/cpuinfo"))
    names = (line.partition(":")[2].strip() for line in text if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
