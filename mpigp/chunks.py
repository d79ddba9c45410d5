"""Rows cut into chunks by n alone, and whole chunks given to ranks.

A chunk's sums are computed by one thread, always with the same shape, so they have the same bits wherever that is.
"""

from typing import NamedTuple

SMALLEST = 64
LARGEST = 512
WANTED = 64  # chunks, where the limits above allow it: enough to share out, few enough to cost nothing


def chunk_rows(n: int) -> int:
    """Return the rows of a chunk, a power of two that depends on n alone."""
    rows = SMALLEST
    while rows < LARGEST and rows * WANTED < n:
        rows *= 2
    return rows


def chunk_count(n: int) -> int:
    """Return the number of chunks of n rows; the last may be shorter."""
    return -(-n // chunk_rows(n))


class Share(NamedTuple):
    """The contiguous rows [start, stop) of one rank, whole chunks; start == stop where a rank has none."""

    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


def share(n: int, rank: int, size: int) -> Share:
    """Return the rows of `rank` among `size` ranks, whose numbers of chunks differ by at most one."""
    rows, count = chunk_rows(n), chunk_count(n)
    return Share(min(n, rank * count // size * rows), min(n, (rank + 1) * count // size * rows))
