"""A number that tells data apart: the same for the same values in the same places, on any number of ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpigp.data.streams import Columns, blocks
from mpigp.types import Comm

Words = NDArray[np.uint64]

BLOCK = 2**14  # rows looked at at a time


def mix(words: Words) -> Words:
    """Return the words with their bits mixed (the finaliser of splitmix64)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def fingerprint(comm: Comm, start: int, *arrays: Columns | None) -> str:
    """Return the fingerprint of arrays whose rows from `start` on are here. Called by all ranks.

    Every number is mixed with its place; the sum of all wraps around, so its order does not matter.
    """
    from mpi4py import MPI

    total = np.zeros(1, np.uint64)
    for which, array in enumerate(arrays):
        if array is None:
            continue
        width = array.shape[1]
        for origin, (rows,) in blocks(array):
            for first in range(0, len(rows), BLOCK):
                block = np.ascontiguousarray(rows[first : first + BLOCK])
                place = (start + origin + first) * width + (which << 56) + 1
                places = np.arange(block.size, dtype=np.uint64) + np.uint64(place)
                total += mix(block.view(np.uint64).ravel() ^ mix(places)).sum(dtype=np.uint64)
    comm.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
    return f"{int(total[0]):016x}"
