"""Processes: the launcher's environment variables, /proc, lines on standard error, and the end of all ranks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import TracebackType

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
PR_SET_PDEATHSIG = 1  # of prctl(2)
ABORTING = 5.0  # seconds at most for MPI_Abort, which waits for machines that do not answer


def launched_rank(environment: Mapping[str, str]) -> int:
    """Return the rank that the launcher gave this process, without asking MPI; 0 without a launcher."""
    return next((int(environment[name]) for name in RANK_VARIABLES if environment.get(name, "").isdigit()), 0)


def default_threads(environment: Mapping[str, str]) -> int:
    """Return the threads of a rank unless the user chooses them: Slurm's CPUs per task, or one."""
    value = environment.get("SLURM_CPUS_PER_TASK", "")
    return int(value) if value.isdigit() and int(value) > 0 else 1


def can_survive(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this MPI was started with fault tolerance (ULFM), and so survives the death of a rank."""
    return environment.get("OMPI_MCA_mpi_ft_enable", "0") not in ("", "0", "false")


def say(text: str) -> None:
    """Write a line to standard error in one call: mpiexec may insert a line of its own between two."""
    with suppress(OSError):  # a full disk: what is said is worth less than what is done
        sys.stderr.write(f"mpigp: {text}\n")
        sys.stderr.flush()


def abort(code: int) -> None:
    """Abort all ranks, where MPI has connected any to this one; at least this one, where MPI_Abort does not return."""
    MPI = sys.modules.get("mpi4py.MPI")
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.size == 1:
        return
    import ctypes
    import threading

    timer = threading.Timer(ABORTING, os._exit, [code])
    timer.daemon = True
    timer.start()
    call = getattr(ctypes.CDLL(MPI.__file__), "MPI_Abort", None)  # mpi4py's keeps Python's lock, and with it the timer
    if call is None:
        MPI.COMM_WORLD.Abort(code)
    else:
        call(ctypes.c_void_p(MPI._handleof(MPI.COMM_WORLD)), code)


def printable(text: str) -> str:
    """Return text in one line, with characters that a terminal would take for something else written as escapes; lines
    that are indented, as those that show what a message points to, stay apart."""
    lines = text.split("\n    ")
    return "\n    ".join("".join(each if each.isprintable() else repr(each)[1:-1] for each in line) for line in lines)


def described(error: BaseException, trace: TracebackType | None) -> str:
    """Return an unexpected error and its place in one line; MPIGP_TRACEBACK=1 adds the traceback."""
    import traceback

    line = f"{type(error).__name__}: {' '.join(str(error).split())}"
    for where in traceback.extract_tb(trace)[-1:]:
        line += f" ({where.filename}:{where.lineno})"
    if os.environ.get("MPIGP_TRACEBACK"):
        line += "\n" + "".join(traceback.format_exception(error))
    return line


def own_peak_memory() -> int:
    """Return the peak resident memory of this process, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Status(NamedTuple):
    """A running process: the number of its parent, and its start in clock ticks of its machine."""

    parent: int
    started: int


def status(process: int) -> Status | None:
    """Return the status of a process; None if it has ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            state, parent, *fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else Status(int(parent), int(fields[17]))


def environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number and the environment of each process of this machine that this user may inspect."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", errors="replace") as file:
                pairs = (item.partition("=") for item in file.read().split("\0"))
                yield int(process), {name: value for name, _, value in pairs}
        except OSError:  # it has ended meanwhile, or belongs to somebody else
            continue


def children(process: int) -> set[int]:
    """Return the processes that the main thread of a process has started; none where the kernel does not tell."""
    with suppress(OSError), open(f"/proc/{process}/task/{process}/children") as file:
        return set(map(int, file.read().split()))
    return set()


def end_with_parent() -> None:
    """Have this process killed when its parent ends, however that happens."""
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended meanwhile
        os._exit(1)
