"""Rows streamed from their file block by block; the next block is read while one is in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import h5py
import numpy as np

from mpigp.chunks import Share
from mpigp.data.hdf5 import read_rows
from mpigp.errors import InputError
from mpigp.types import Floats

BLOCK_BYTES = 2**22  # of all columns of a block together


def block_rows(chunk: int, width: int) -> int:
    """Return the rows of a block of so many numbers each: whole chunks, and one at least."""
    return chunk * max(1, BLOCK_BYTES // (8 * width * chunk))


class Stream:
    """Rows (rows, columns) of a dataset, of which a block at a time is in memory.

    `-=` and `/=` are applied to every block as it is read: operations on single numbers, which have the same bits as on
    a whole array.

    item : the dataset, in a file that stays open.   share : this rank's rows
    step : rows of a block, whole chunks; the same for all streams that are read together
    """

    def __init__(self, item: h5py.Dataset, share: Share, step: int) -> None:
        self.item, self.share, self.step = item, share, step
        self.shape = (share.rows, item.shape[1])
        self._operations: list[tuple[Callable[..., Any], Floats]] = []

    def __len__(self) -> int:
        return self.shape[0]

    def __isub__(self, other: Floats) -> Stream:
        self._operations.append((np.subtract, other))
        return self

    def __itruediv__(self, other: Floats) -> Stream:
        self._operations.append((np.divide, other))
        return self

    def check(self) -> None:
        """Read all rows once: NaN, Inf and damage are an InputError."""
        for first in range(0, len(self), self.step):
            self._read(first)

    def read(self, first: int) -> Floats:
        """Return the block whose first row is this one of this rank's.

        All blocks were readable once, so an error now is this rank's alone: an InputError is one that all ranks raise.
        """
        try:
            rows = self._read(first)
        except InputError as error:
            raise OSError(f"{error} (it was whole when the run began)") from error
        for operation, other in self._operations:
            operation(rows, other, out=rows)
        return rows

    def _read(self, first: int) -> Floats:
        start, stop = self.share
        return read_rows(self.item, start + first, min(stop, start + first + self.step))


Columns: TypeAlias = Floats | Stream
"""Rows (rows, columns) of a rank: in memory, or in their file."""


def blocks(*columns: Columns) -> Iterator[tuple[int, list[Floats]]]:
    """Yield the rows block by block: the number of a block's first row, and the block of each of the columns.

    Rows in memory are one block, unless others are streamed along with them. There is always a block, if without rows.
    """
    step = next((each.step for each in columns if isinstance(each, Stream)), None)
    if step is None:
        yield 0, [each for each in columns if not isinstance(each, Stream)]
        return

    def read(first: int) -> list[Floats]:
        return [each.read(first) if isinstance(each, Stream) else each[first : first + step] for each in columns]

    from concurrent.futures import ThreadPoolExecutor  # here, because rows in memory do not need it

    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(read, 0)
        for first in range(0, max(1, len(columns[0])), step):
            block = coming.result()
            if first + step < len(columns[0]):
                coming = reader.submit(read, first + step)
            yield first, block
