"""Run a command line of mpigp during which rank 0 changes the data file: changing.py HOW READS FILE WORDS...

It does so after so many reads of streamed rows.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mpigp.cli import main
from mpigp.data.datasets import Stream
from mpigp.mpi.processes import launched_rank


def truncated(path: Path, offset: int) -> None:
    """Cut off the second half of the file, which HDF5 then reads as zeros."""
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path, offset: int) -> None:
    """Write other numbers over those behind the offset."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(np.random.default_rng(9).normal(size=20_000).tobytes())


def set_back(path: Path, offset: int) -> None:
    """Write other numbers and set the file's time back: its status does not tell, its rows do."""
    before = path.stat()
    overwritten(path, offset)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


WAYS: dict[str, Callable[[Path, int], None]] = {each.__name__: each for each in (truncated, overwritten, set_back)}


def changing(how: str, reads: int, path: Path) -> Callable[[Stream, int], np.ndarray]:
    """Return a `Stream.read` that changes the file, once, before a read."""
    original, left = Stream.read, reads

    def read(self: Stream, first: int) -> np.ndarray:
        nonlocal left
        left -= 1
        if left == 0:
            WAYS[how](path, self.item.id.get_offset())
        return original(self, first)

    return read


if __name__ == "__main__":
    if launched_rank(os.environ) == 0:
        Stream.read = changing(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))  # type: ignore[method-assign]
    main(sys.argv[4:])
