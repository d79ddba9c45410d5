"""Recovery from failed ranks: the surviving ranks agree on the failure and continue on a smaller communicator.

It needs an MPI with fault tolerance (ULFM: Open MPI started with `mpiexec --with-ft ulfm`). Elsewhere the launcher ends
the whole job.

A rank may fail in the middle of any message. MPI then reports an error to some ranks only: others may have received
their message, and continue for a while. Open MPI 5 reports even less than the standard demands: its Allgatherv, which
carries `allgather` too, may return without an error and without the data when a rank fails in it, and leaves other
ranks waiting for data that it has not sent. So after a failure no received data (copies, checkpoints, the end of a run)
is relied on unless all ranks have called `confirm` since. A rank that knows of a failure revokes the communicator
before it agrees. MPI_Comm_agree is the one call that has the same outcome on all surviving ranks.

Agreements are matched by their order, and MPI_Comm_shrink begins with one of its own. So between the last agreement and
the shrinking every rank takes part in exactly one more: in `confirm`, or in `survivors` when it has met an error
elsewhere. Otherwise a rank in `confirm` would be matched with another that is shrinking already.

Rarely, after several ranks fail at once, one survivor stays in an agreement that the others have left, and they wait
for it in MPI_Comm_shrink (stack traces show it; compare open-mpi/ompi#13138). All ranks agreed a moment before, so a
rank that waits there for long aborts the job; `--ranks` starts it again.
"""

import atexit
import ctypes
import os
import sys
import threading
import time

from mpigp.errors import GIVEN_UP, InputError
from mpigp.mpi.communicator import NOTICE
from mpigp.mpi.marks import FAILED, mark
from mpigp.mpi.processes import abort, can_survive, say
from mpigp.types import Comm

SHRINKING = 20.0  # seconds at most for MPI_Comm_shrink, which usually takes milliseconds


class RankLost(Exception):
    """A rank has failed since the last agreement."""


def confirm(comm: Comm) -> None:
    """Return if no rank has failed so far, so that all earlier messages are complete; else raise on all survivors.

    Collective. A failed rank does not agree, and a rank that knows of a failure agrees with "no".
    """
    if not can_survive():
        return
    intact = not _failed(comm)
    if not intact:
        comm.Revoke()  # a rank may wait for data of a call that returned here without an error
    if not _agreed(comm, intact):
        raise RankLost


def _agreed(comm: Comm, intact: bool) -> bool:
    """Return whether all ranks say that the communicator is intact: the same on all survivors."""
    from mpi4py import MPI

    try:
        return bool(comm.Agree(int(intact)))
    except MPI.Exception:  # a failure that not all ranks knew of
        return False


def _failed(comm: Comm) -> bool:
    """Return whether this rank knows of a failure."""
    from mpi4py import MPI

    MPI.COMM_SELF.Iprobe()  # MPI detects failures only inside its calls
    return comm.Is_revoked() or comm.Get_failed().Get_size() > 0


def is_failure(comm: Comm, error: Exception) -> bool:
    """Return whether an error comes of a failed rank: MPI reports it, or a message arrived without its data.

    An InputError is raised on all ranks, so there is no waiting for MPI to detect a failure.
    """
    from mpi4py import MPI

    if isinstance(error, (MPI.Exception, RankLost)):
        return True
    end = time.monotonic() + (0 if isinstance(error, InputError) else NOTICE)
    while not _failed(comm):
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def survivors(comm: Comm, error: Exception) -> tuple[Comm, list[int]]:
    """Return the communicator of the surviving ranks, and the failed ranks (as numbered in MPI_COMM_WORLD).

    Collective over the survivors, each with the error that reported the failure to it.
    """
    from mpi4py import MPI

    timer = threading.Timer(SHRINKING, give_up, [comm, f"MPI_Comm_shrink did not finish within {SHRINKING:g} s"])
    timer.daemon = True
    try:
        comm.Revoke()  # so that no rank waits forever for a failed one
        if not isinstance(error, RankLost):
            _agreed(comm, False)  # matches the agreement of ranks in `confirm`
        timer.start()
        smaller = comm.Shrink()
    except MPI.Exception as failure:
        give_up(comm, f"MPI_Comm_shrink failed: {failure}")
        raise
    finally:
        timer.cancel()
    failed = MPI.Group.Difference(comm.Get_group(), smaller.Get_group())
    numbers = list(range(failed.Get_size()))
    return smaller, sorted(MPI.Group.Translate_ranks(failed, numbers, MPI.COMM_WORLD.Get_group()))


def give_up(comm: Comm, reason: str) -> None:
    """End the job, because it cannot recover."""
    say(f"rank {comm.rank}: {reason}")
    mark(FAILED)
    abort(GIVEN_UP)


def finalize_in_time(seconds: float = 10.0) -> None:
    """Bound MPI_Finalize at the end of this script: after a failure it rarely waits for the failed ranks for ever."""
    ending = threading.Event()

    def watch() -> None:
        ending.wait()
        time.sleep(seconds)
        os._exit(int(hasattr(sys, "last_type")))  # the output is written; 1 behind an exception that nobody caught

    def end() -> None:
        from mpi4py import MPI

        sys.stdout.flush()
        ending.set()
        if not MPI.Is_finalized():  # several fits of one script may have met failures
            ctypes.CDLL(MPI.__file__).MPI_Finalize()  # mpi4py's keeps Python's lock, and with it the other thread

    threading.Thread(target=watch, daemon=True).start()
    atexit.register(end)
