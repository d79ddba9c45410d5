"""Run a command line of mpigp with so many bytes more than Python and its libraries take: limited.py BYTES WORDS..."""

import resource
import sys
from pathlib import Path

import numpy as np
import scipy.linalg

from mpigp.cli import build_parser, main
from mpigp.mpi.communicator import connected

if __name__ == "__main__":
    build_parser()  # loads the commands
    connected()
    # NumPy's and SciPy's BLAS take buffers of their own at first use.
    scipy.linalg.cholesky(np.eye(300) + np.ones((300, 300)) @ np.ones((300, 300)))
    taken = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
    limit = 1024 * int(taken.split()[1]) + int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    main(sys.argv[2:])
