"""A rank dies, and the two others must meet again, one of which is in `confirm` already; python meeting.py CASE.

error : the other meets an error in a message
silence : the other waits for a message of the one in `confirm`, who knows of the death, and has left out what it had
    to send: as MPI's own collectives do that return without an error
alone : one of them has agreed, but does not come to the shrinking: the other may not wait for ever
"""

import os
import signal
import sys
import time

import numpy as np
from mpi4py import MPI

from mpigp.mpi import ulfm as survival
from mpigp.mpi.processes import end_with_parent
from mpigp.mpi.ulfm import confirm, is_failure, survivors

if __name__ == "__main__":
    end_with_parent()
    comm = MPI.COMM_WORLD
    comm.Barrier()
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "alone":
        survival.SHRINKING = 1.0
        if comm.rank == 1:
            survival._agreed(comm, False)
            time.sleep(600)
    try:
        if comm.rank == 0:
            comm.Recv(np.empty(1), source=1 if sys.argv[1] == "silence" else 2)
        elif sys.argv[1] == "silence":
            assert is_failure(comm, ValueError("what was received makes no sense"))
        confirm(comm)
    except Exception as error:
        assert is_failure(comm, error)
        comm, gone = survivors(comm, error)
        found = np.empty(comm.size, int)
        comm.Allgather(np.array([comm.rank]), found)
        print(f"gone {gone}, left {found.tolist()}", flush=True)
        os._exit(0)
    sys.exit("nobody noticed")
