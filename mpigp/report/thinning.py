"""A random sample of a few thousand rows, spread evenly over a file of any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

MOST = 4000  # rows that a figure shows
BLOCK = 2**16  # rows in memory at a time

Indices = NDArray[np.int64]


def thinned(n: int, most: int = MOST) -> Indices:
    """Return all rows where there are at most `most`, else one at random from each of `most` equal runs of rows.

    Every so-many-th row would be as even, but could miss whole classes of data that repeat in a cycle.
    """
    if n <= most:
        return np.arange(n)
    edges = np.arange(most + 1) * n // most
    return edges[:-1] + (np.random.default_rng(0).random(most) * np.diff(edges)).astype(np.int64)


def evenly(count: int, most: int) -> Indices:
    """Return at most `most` of `count` places, evenly, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64)) if count else np.arange(0)


def pick(n: int, rows: Indices, read: Callable[[int, int], NDArray]) -> NDArray:
    """Return some of n rows, given in ascending order, from the blocks that `read` returns for [start, stop)."""
    parts = []
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        first, last = np.searchsorted(rows, (start, stop))
        parts.append(read(start, stop)[rows[first:last] - start])
    return np.concatenate(parts)
