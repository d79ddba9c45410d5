"""MPI_Init under a watchdog.

A rank that dies while the others are in MPI_Init may leave them there for ever (`mpiexec --with-ft ulfm`: they wait for
its address). So a thread watches meanwhile: when another rank of this machine ends, or MPI_Init takes too long, it ends
this rank with a line. mpi4py calls MPI_Init with Python's lock held, which would stop that thread too; ctypes does not.
"""

import ctypes
import os
import sys
import threading
import time
from contextlib import suppress

from mpigp.errors import InputError
from mpigp.mpi.marks import FAILED, mark
from mpigp.mpi.processes import RANK_VARIABLES, can_survive, children, launched_rank, say
from mpigp.mpi.signals import stop_signals

LIMIT = "MPIGP_INIT_TIMEOUT"  # the variable with the seconds that MPI_Init may take
SECONDS = 120.0  # unless the variable says otherwise: others may still be reading Python from a busy disk
LOOK = 0.1  # seconds between two looks at the other ranks of this machine
NOTICE = 1.0  # seconds for the line of the first of them
LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
SLOW = 10.0  # seconds for a launcher to start all ranks of a machine


def initialize() -> None:
    """Initialize MPI, unless the script has done so."""
    import mpi4py

    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    if can_survive():  # HAN's collectives hide failures where a communicator spans machines (open-mpi/ompi#11794)
        os.environ.setdefault("OMPI_MCA_coll", "^han")
    from mpi4py import MPI

    if MPI.Is_initialized():
        return
    if MPI.Get_library_version().startswith("Open MPI v5"):  # its one-sided driver for libfabric sleeps for a second
        os.environ.setdefault("OMPI_MCA_btl", "^ofi")
    library = ctypes.CDLL(MPI.__file__)
    if not hasattr(library, "MPI_Init_thread"):
        MPI.Init_thread()
        return
    limit, done = _limit(), threading.Event()
    threading.Thread(target=_watch, args=(limit, done), daemon=True).start()
    code = library.MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
    if code == MPI.SUCCESS and MPI.COMM_WORLD.size > 1 and not can_survive() and hasattr(library, "PMIx_Fence"):
        # Open MPI's MPI_Init crashes where a message of a rank that has left it arrives (open-mpi/ompi#13559).
        library.PMIx_Fence(None, ctypes.c_size_t(0), None, ctypes.c_size_t(0))
    done.set()
    if code != MPI.SUCCESS:
        raise RuntimeError(f"MPI_Init_thread failed with code {code}")
    for comm in (MPI.COMM_SELF, MPI.COMM_WORLD):
        comm.Set_errhandler(MPI.ERRORS_RETURN)  # as mpi4py does: an error becomes an exception


def _limit() -> float:
    """Return the seconds that MPI_Init may take."""
    text = os.environ.get(LIMIT) or str(SECONDS)
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{LIMIT}: is {text!r}, not a number of seconds: correct or unset it") from None


def _watch(limit: float, done: threading.Event) -> None:
    """End this rank when another one of this machine has ended, or the limit has passed, before MPI_Init is done."""
    began = time.monotonic()
    wanted = next((int(os.environ[name]) for name in LOCAL_SIZES if os.environ.get(name, "").isdigit()), 0)
    ranks: dict[int, int] = {}  # of this machine, by process
    # Others end the ranks themselves; the children of a script around this rank are not the other ranks.
    sees_others = can_survive() and _rank(os.getppid()) is None
    while not done.wait(LOOK):
        seconds, there = time.monotonic() - began, children(os.getppid())
        ranks |= {each: rank for each in there - set(ranks) if (rank := _rank(each)) is not None}
        if os.getpid() not in there or not sees_others:  # or the kernel does not tell
            ranks.clear()
        gone = {rank for process, rank in ranks.items() if process not in there}
        if gone or (ranks and len(ranks) < wanted and seconds > SLOW):
            named = f"rank {min(gone)}" if gone else "a rank"
            left = min(rank for process, rank in ranks.items() if process in there)
            _end(f"{named} of this machine ended while others were in MPI_Init", left, done)
        if seconds > limit:
            _end(f"MPI_Init did not finish within {limit:g} s ({LIMIT} changes that)", 0, done)


def _rank(process: int) -> int | None:
    """Return the rank of a process; None where it has none."""
    with suppress(OSError), open(f"/proc/{process}/environ", errors="replace") as file:
        environment = dict(item.partition("=")[::2] for item in file.read().split("\0"))
        if any(name in environment for name in RANK_VARIABLES[:2]):  # Slurm's is its batch script's too
            return launched_rank(environment)
    return None


def _end(reason: str, speaker: int, done: threading.Event) -> None:
    """End this rank, and with it the job; the `speaker` among the ranks says why, and others if it does not."""
    rank, signals = launched_rank(os.environ), stop_signals()
    if rank != speaker and done.wait(NOTICE):
        return
    if rank == speaker and not (signals and signals.received):  # which is why the other rank ended, and was said
        say(f"rank {rank}: {reason}: the job ends")
    mark(FAILED)
    os._exit(1)
