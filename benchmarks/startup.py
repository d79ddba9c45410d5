"""Count the files that a rank opens until its first evaluation: python -m benchmarks.startup

A job of many ranks opens all of them on one shared disk. It is measured by strace for a small regression, as a rank of
mpiexec and as a single process, whose MPI also reads the topology of the machine. A file counts if it was opened;
paths that were tried in vain, most of them by the dynamic linker, are counted beside.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.support.launch import ROOT
from mpigp.launch.mpiexec import available_cores, find_mpiexec, flags, mpi_version

TIMEOUT = 300  # seconds
CALL = re.compile(r'openat\([^"]*"(?P<path>[^"]*)".*= (?P<result>-?\d+)')
FIT = ("--model", "regression", "--inducing", "10", "--max-iter", "1")
PHASES = ("Python, mpigp and its libraries", "MPI", "the data, to the first evaluation")
STRACE = 'exec strace -f -e trace=openat -o "$0.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}" "$@"'


class Opened(NamedTuple):
    """A path that a process tried to open: in which of PHASES, and whether it could."""

    path: str
    phase: str
    success: bool


def start(folder: Path, ranks: int | None) -> list[Opened]:
    """Fit small data on this many ranks, or without mpiexec; return what the last rank opened until it evaluated."""
    program, launcher = [sys.executable, str(ROOT / "run.py")], []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if ranks is not None:
        mpiexec = find_mpiexec()
        needed = flags(mpi_version(mpiexec), ranks, 1, available_cores(os.environ), os.geteuid() == 0)
        launcher = [mpiexec, *needed, "-n", str(ranks)]
    data, model, trace = (str(folder / name) for name in ("data.h5", "model.h5", "trace"))
    fit = [*program, "fit", data, "-o", model, "--overwrite", *FIT]
    traced = [*launcher, "sh", "-c", STRACE, trace, *fit]
    for command in ([*program, "synth", "regression", "--rows", "200", "-o", data], fit, traced):  # byte code, then it
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT, env=environment, cwd=folder)
    return until_first_evaluation(Path(f"{trace}.{(ranks or 1) - 1}").read_text(), data)


def until_first_evaluation(trace: str, data: str) -> list[Opened]:
    """Return the paths in the lines of strace, up to the first checkpoint, which follows the first evaluations."""
    found, phase = [], 0
    for call in CALL.finditer(trace):
        path = call["path"]
        if path.endswith(".part"):  # the checkpoint
            break
        phase = max(phase, 1 if "/libmpi" in path or "/MPI." in path else 2 if path == data else 0)
        found.append(Opened(path, PHASES[phase], int(call["result"]) >= 0))
    return found


def owner(path: str) -> str:
    """Return to whom a file belongs: a package, Python, MPI, or the system."""
    if package := re.search(r"/site-packages/(?P<name>\w+)", path):
        return package["name"]
    if path.startswith(str(ROOT)):
        return "mpigp"
    if path.startswith(("/sys", "/proc", "/dev", "/etc")):
        return "/" + path.split("/")[1]
    if re.search(r"/python3[^/]*/", path):
        return "Python"
    return "MPI" if re.search("openmpi|ompi|mpich|/ucx|libfabric|libmpi|pmix", path) else "others"


def show(title: str, opened: list[Opened]) -> None:
    """Print the counts by phase and by owner."""
    files = [each for each in opened if each.success]
    print(f"{title}: {len(files)} files, and {len(opened) - len(files)} paths in vain")
    for phase in PHASES:
        owners = Counter(owner(each.path) for each in files if each.phase == phase)
        shares = ", ".join(f"{name} {count}" for name, count in owners.most_common())
        print(f"  {phase}: {owners.total()} ({shares})")


def main() -> None:
    """Measure and print both ways to start."""
    if shutil.which("strace") is None:
        sys.exit("strace is missing: install it, as a package of this name")
    with tempfile.TemporaryDirectory() as folder:
        show("a rank of mpiexec -n 2", start(Path(folder), 2))
        show("a single process", start(Path(folder), None))


if __name__ == "__main__":
    main()
