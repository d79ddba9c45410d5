"""What the ranks that are left do when others die: agree on it, and go on as a smaller communicator.

It takes an MPI with fault tolerance (ULFM: Open MPI started with `mpiexec --with-ft ulfm`). Elsewhere the launcher ends
the whole job.

A death may strike in the middle of any message. MPI then owes an error to some ranks only: others may have what they
waited for, and go on for a while. And Open MPI 5 owes more than it pays: its Allgatherv, which carries `allgather`
too, returns without an error and without the data when a rank dies in it, and leaves others waiting for what it has
not sent. So nothing that was received is relied on after a failure unless all ranks have met in `confirm` since:
copies, checkpoints, the end of a run; and who comes there and knows of a death first ends all that others wait in. An
agreement is the one call of MPI that has the same outcome on all ranks that are left.

Agreements are matched by their number, and shrinking a communicator begins with one of its own. So on the way from the
last agreement to the shrinking every rank takes part in exactly one more: in `confirm`, or when it has met an error
elsewhere, in `survivors`. Otherwise one that waits in `confirm` would meet another that shrinks already.

Rarely, after deaths of several ranks at once, one of the others stays in an agreement whose outcome the rest have, and
they wait for it in the shrinking (stacks show it; compare open-mpi/ompi#13138). All have agreed a moment before, so who
waits there for long ends the job; `--ranks` starts it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from mpigp.errors import GIVEN_UP, InputError
from mpigp.mpi.communicator import NOTICE
from mpigp.mpi.processes import can_survive, say
from mpigp.types import Comm

SHRINKING = 20.0  # seconds at most: as a rule it takes milliseconds


class RankLost(Exception):
    """A rank has died since the ranks last met."""


def confirm(comm: Comm) -> None:
    """Return if all ranks have come this far with all messages before it whole; else raise on all that are left.

    Called by all ranks. A rank that has died did not agree, and one that knows of a death agrees to nothing.
    """
    if not can_survive():
        return
    well = not _disturbed(comm)
    if not well:
        comm.Revoke()  # somebody may wait for what a call that returned without an error did not send
    if not _agreed(comm, well):
        raise RankLost


def _agreed(comm: Comm, well: bool) -> bool:
    """Return whether all ranks are well: the same on all that are left."""
    from mpi4py import MPI

    try:
        return bool(comm.Agree(int(well)))
    except MPI.Exception:  # a rank has died that not all knew of
        return False


def _disturbed(comm: Comm) -> bool:
    """Return whether this rank knows of a death."""
    from mpi4py import MPI

    MPI.COMM_SELF.Iprobe()  # MPI takes no notice of anything while nobody calls it
    return comm.Is_revoked() or comm.Get_failed().Get_size() > 0


def is_failure(comm: Comm, error: Exception) -> bool:
    """Return whether a rank has died: an error of MPI may say so, and any other may come of a message without its data.

    Bad input is known to all ranks, and not waited over.
    """
    from mpi4py import MPI

    if isinstance(error, (MPI.Exception, RankLost)):
        return True
    end = time.monotonic() + (0 if isinstance(error, InputError) else NOTICE)
    while not _disturbed(comm):
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def survivors(comm: Comm, error: Exception) -> tuple[Comm, list[int]]:
    """Return the communicator of the ranks that are left, and the ranks (in the world's count) that are gone since.

    Called by all left, with the error by which each has noticed. MPI makes the same communicator on all, or none.
    """
    from mpi4py import MPI

    try:
        comm.Revoke()  # so that nobody waits for ever for one who has gone
        if not isinstance(error, RankLost):
            _agreed(comm, False)  # with those who are in `confirm`
        with _limited(comm):
            smaller = comm.Shrink()
    except MPI.Exception as failed:
        _give_up(comm, str(failed))
        raise
    gone = MPI.Group.Difference(comm.Get_group(), smaller.Get_group())
    places = list(range(gone.Get_size()))
    return smaller, sorted(MPI.Group.Translate_ranks(gone, places, MPI.COMM_WORLD.Get_group()))


@contextmanager
def _limited(comm: Comm) -> Iterator[None]:
    """End the job if the block takes too long."""
    timer = threading.Timer(SHRINKING, _give_up, [comm, f"they have waited for {SHRINKING:g} s"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _give_up(comm: Comm, reason: str) -> None:
    """End the job, because its ranks cannot go on."""
    say(f"rank {comm.rank}: the ranks that are left cannot meet: {reason}")
    comm.Abort(GIVEN_UP)
