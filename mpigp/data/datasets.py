"""From a data file to the rows of a rank: every rank opens the file and reads its own slice, at once or in blocks.

Rows that are streamed are read block by block; the next block is read while one is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import h5py
import numpy as np

from mpigp.chunks import Share, chunk_rows, share
from mpigp.data.columns import ColumnView, Source, column_names, match
from mpigp.data.hdf5 import dataset, read_rows
from mpigp.data.held_out import HeldOut, RowView
from mpigp.data.watched_file import WatchedFile
from mpigp.errors import InputError
from mpigp.types import Comm, Floats, Integers

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
    file : the dataset's file, which remembers what is wrong with it
    """

    def __init__(self, item: Source, share: Share, step: int, file: WatchedFile | None = None) -> None:
        self.item, self.share, self.step = item, share, step
        self.file = watched(item) if file is None else file
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

    def raw(self) -> Stream:
        """Return the same rows as they are in the file."""
        return Stream(self.item, self.share, self.step, self.file)

    def check(self) -> None:
        """Read all rows once: NaN, Inf and damage are an InputError."""
        for first in range(0, len(self), self.step):
            self._read(first)

    def read(self, first: int) -> Floats:
        """Return the block whose first row is this one of this rank's.

        All blocks were readable once, so what is wrong now is seen by this rank alone. It becomes the problem of the
        file, and the block is zeros: an error here would leave the other ranks waiting for this one.
        """
        try:
            rows = self._read(first)
        except InputError as error:
            self.file.look()
            self.file.problem = self.file.problem or f"{error} (it was whole when the run began)"
            rows = np.zeros((max(0, min(self.step, len(self) - first)), self.shape[1]))
        for operation, other in self._operations:
            operation(rows, other, out=rows)
        return rows

    def _read(self, first: int) -> Floats:
        start, stop = self.share
        return read_rows(self.item, start + first, min(stop, start + first + self.step))


Columns: TypeAlias = Floats | Stream
"""Rows (rows, columns) of a rank: in memory, or in their file."""


def watched(*items: Source | None) -> WatchedFile:
    """Return the one file of these datasets."""
    views = ColumnView, RowView
    return WatchedFile(*(each.item if isinstance(each, views) else each for each in items if each is not None))


def blocks(*columns: Columns) -> Iterator[tuple[int, list[Floats]]]:
    """Yield the rows block by block: the number of a block's first row, and the block of each of the columns.

    Rows in memory are one block, unless others are streamed along with them. There is always a block, if without rows.
    Before the last block of streamed rows is given away, their file is looked at: has it changed meanwhile?
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
            else:
                for file in {each.file for each in columns if isinstance(each, Stream)}:
                    file.look()
            yield first, block


class DataSets(NamedTuple):
    """The datasets of a data file, their shapes checked; X is None where there are no inputs to read.

    columns : by "x" and "y", the names of the columns, where they have some
    """

    Y: Source
    X: Source | None
    columns: Mapping[str, list[str]]

    @property
    def n(self) -> int:
        return self.Y.shape[0]

    @property
    def d(self) -> int:
        return self.Y.shape[1]

    @property
    def where(self) -> str:
        """What an error about Y begins with."""
        return f"{self.Y.file.filename}: {self.Y.name}: "

    def matched(self, columns: Mapping[str, list[str]], model: str) -> DataSets:
        """Return the columns that a model has, by their names (`columns`, as above) where both have names."""
        X = None if self.X is None else match(self.X, columns.get("x"), f"the inputs of {model}")
        Y = match(self.Y, columns.get("y"), f"the outputs of {model}")
        return DataSets(Y, X, {**self.columns, **columns})

    def split(self, fraction: float, seed: int) -> tuple[DataSets, DataSets]:
        """Return the rows that remain when a fraction is held out, by the seed, and those that are held out."""
        if self.n < 2:
            raise InputError(f"{self.where}has one row: no row is left when one is held out: give more rows")
        chosen = HeldOut.of(self.n, fraction, seed)
        held = len(chosen.numbers)

        def of(n: int, numbers: Callable[[int, int], Integers]) -> DataSets:
            Y, X = (None if each is None else RowView(each, n, numbers) for each in (self.Y, self.X))
            return DataSets(Y, X, self.columns)

        return of(self.n - held, chosen.remaining), of(held, chosen.held)

    def share(self, comm: Comm) -> Share:
        """Return this rank's rows."""
        return share(self.n, comm.rank, comm.size)

    def rows(self, share: Share, stream: bool, missing: bool = False) -> tuple[Columns | None, Columns]:
        """Return these rows of X and Y, checked; to `stream` them, the file must stay open."""
        file = watched(self.X, self.Y)
        if not stream:
            X, Y = None if self.X is None else read_rows(self.X, *share), read_rows(self.Y, *share, missing)
            file.check()
            return X, Y
        sets = [each for each in (self.X, self.Y) if each is not None]
        step = block_rows(chunk_rows(self.n), sum(each.shape[1] for each in sets))
        streams = [Stream(each, share, step, file) for each in sets]
        for each in streams:
            each.check()
        file.check()
        return (streams[0] if self.X is not None else None), streams[-1]


def find(file: h5py.File, y_name: str, x_name: str | None) -> DataSets:
    """Return the datasets Y (n, d) and, where x_name is given, X (n, q)."""
    Y = dataset(file, y_name, 2, "a data file has /Y (n, d), and /X (n, q) for regression; `x` and `y` name others")
    X = None
    if not Y.size:
        shape = f"has shape {Y.shape}: there must be at least one row and one column"
        raise InputError(f"{file.filename}: {Y.name}: {shape}")
    if x_name is not None:
        X = dataset(file, x_name, 2, "regression needs inputs /X (n, q); `x` names another dataset")
        if X.shape[0] != Y.shape[0]:
            counts = f"{X.name} has {X.shape[0]} rows, {Y.name} has {Y.shape[0]}"
            raise InputError(f"{file.filename}: {counts}: they must have as many")
    named = {"x": None if X is None else column_names(X), "y": column_names(Y)}
    return DataSets(Y, X, {each: names for each, names in named.items() if names is not None})
