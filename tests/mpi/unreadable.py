"""Run a command line of mpigp whose streams fail on one rank, after so many reads: unreadable.py RANK READS WORDS..."""

import os
import sys

import numpy as np

from mpigp.cli import main
from mpigp.data.datasets import Stream
from mpigp.mpi.processes import launched_rank

if __name__ == "__main__":
    rank, left = int(sys.argv[1]), int(sys.argv[2])
    original = Stream.read

    def read(self: Stream, first: int) -> np.ndarray:
        global left
        left -= launched_rank(os.environ) == rank
        if left < 0:
            raise OSError("the disk is gone")
        return original(self, first)

    Stream.read = read  # type: ignore[method-assign]
    main(sys.argv[3:])
