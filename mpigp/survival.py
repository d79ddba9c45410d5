"""What the ranks that are left do when others die: agree on it, and go on as a smaller communicator.

It takes an MPI with fault tolerance (ULFM: Open MPI started with `mpiexec --with-ft ulfm`). Elsewhere the launcher ends
the whole job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

NOTICE = 1.0  # seconds, after which a death is known to everyone


def can_survive(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this MPI was started so that it outlives a dead rank."""
    return environment.get("OMPI_MCA_mpi_ft_enable", "0") not in ("", "0", "false")


def is_failure(comm: Comm, error: Exception) -> bool:
    """Return whether a rank has died: an error of MPI may say so, and so may any other that came of half a message."""
    from mpi4py import MPI

    if isinstance(error, MPI.Exception):
        return True
    end = time.monotonic() + NOTICE
    while not comm.Get_failed().Get_size():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def survivors(comm: Comm) -> tuple[Comm, list[int]]:
    """Return the communicator of the ranks that are left, and the ranks of `comm` that are gone. Called by all left."""
    from mpi4py import MPI

    comm.Revoke()  # so that nobody waits for ever for one who has gone
    while True:
        smaller = comm.Shrink()
        try:
            smaller.Barrier()
        except MPI.Exception:  # another died meanwhile
            smaller.Revoke()
            continue
        break
    gone = MPI.Group.Difference(comm.Get_group(), smaller.Get_group())
    places = list(range(gone.Get_size()))
    return smaller, sorted(MPI.Group.Translate_ranks(gone, places, comm.Get_group()))
