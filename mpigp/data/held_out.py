"""Rows of a data file that a fit does not learn from, and the rows that remain; each can be read like a dataset."""

from collections.abc import Callable
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpigp.types import Integers

BLOCK_BYTES = 2**23  # of the file that are in memory at a time
HELD_OUT_STREAM = 3  # keeps these random numbers apart from others of the same seed


def scattered(n: int, count: int, generator: np.random.Generator) -> Integers:
    """Return `count` of the numbers 0 … n − 1, in order: one at random from each of so many equal runs of them.

    Every so-many-th number would be as even, but could miss whole classes of data that repeat in a cycle.
    """
    edges = np.arange(count + 1) * n // count
    return edges[:-1] + (generator.random(count) * np.diff(edges)).astype(np.int64)


class HeldOut(NamedTuple):
    """The numbers of the rows that are held out, in order, and how many remaining rows are before each of them."""

    numbers: Integers
    before: Integers

    @classmethod
    def of(cls, n: int, fraction: float, seed: int) -> "HeldOut":
        """Hold out a fraction of n ≥ 2 rows, by these three alone: at least one row, and not all."""
        count = min(max(round(fraction * n), 1), n - 1)
        numbers = scattered(n, count, np.random.default_rng([seed, HELD_OUT_STREAM]))
        return cls(numbers, numbers - np.arange(count))

    def held(self, start: int, stop: int) -> Integers:
        """Return the numbers of the rows [start, stop) of those held out."""
        return self.numbers[start:stop]

    def remaining(self, start: int, stop: int) -> Integers:
        """Return the numbers of the rows [start, stop) of those that remain.

        Row i of these comes behind the rows held out that have at most i remaining ones before them.
        """
        rows = np.arange(start, stop)
        return rows + np.searchsorted(self.before, rows, side="right")


class RowView:
    """Some rows of a dataset, in their order, to be read like a dataset.

    numbers : returns the numbers in the dataset, in order, of the rows [start, stop) of the view, which has n
    """

    def __init__(self, item: h5py.Dataset, n: int, numbers: Callable[[int, int], Integers]) -> None:
        self.item, self.numbers = item, numbers
        self.name, self.file, self.dtype, self.ndim = item.name, item.file, item.dtype, 2
        self.shape = (n, item.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Any:
        start, stop, _ = rows.indices(len(self))
        numbers = self.numbers(start, stop)
        found = np.empty((len(numbers), self.shape[1]), self.dtype)
        step = max(1, BLOCK_BYTES // (self.dtype.itemsize * self.shape[1]))
        low = 0
        while low < len(numbers):  # between two blocks may be rows that are not read
            first = int(numbers[low])
            high = int(np.searchsorted(numbers, first + step))
            found[low:high] = self.item[first : int(numbers[high - 1]) + 1][numbers[low:high] - first]
            low = high
        return found

    def row_number(self, row: int) -> int:
        """Return the number in the dataset of a row of the view."""
        return int(self.numbers(row, row + 1)[0])
