"""A rank dies; one of the others meets an error in a message, and one waits in `confirm`: both must meet again."""

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

from mpigp.survival import confirm, is_failure, survivors

if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    comm.Barrier()
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        if comm.rank == 0:
            comm.Recv(np.empty(1), source=2)
        confirm(comm)
    except Exception as error:
        assert is_failure(comm, error)
        comm, gone = survivors(comm, error)
        found = np.empty(comm.size, int)
        comm.Allgather(np.array([comm.rank]), found)
        print(f"gone {gone}, left {found.tolist()}", flush=True)
        os._exit(0)
    sys.exit("nobody noticed")
