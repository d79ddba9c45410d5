"""Tables in NumPy's own files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.data.tables.table import Table, narrowest, reading
from mpigp.errors import InputError


class NpyTable(Table):
    """An array in an NPY file, mapped into memory rather than read."""

    kind = "NPY"

    def __init__(self, path: Path) -> None:
        with reading(path, self.kind):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or array.dtype.kind not in "biuf":
            raise InputError(f"{path}: holds no array of numbers with rows and columns: save one")
        self.array = array if array.ndim == 2 else array[:, None]
        super().__init__(path, self.array.shape[1])

    def rows(self, columns: Sequence[int]) -> int:
        return len(self.array)

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        return narrowest([self.array.dtype])

    def read(self, columns: Sequence[int]) -> Iterator[tuple[list[NDArray], int]]:
        for first in range(0, len(self.array), self.step):
            block = self.array[first : first + self.step]
            yield list(block[:, columns].T), first + len(block)


class Member(NamedTuple):
    """An array of an NPZ file: how its numbers lie there, and the columns of the table that it makes up."""

    file: str
    rows: int
    dtype: np.dtype
    fortran: bool  # column after column instead of row after row
    offset: int  # bytes before the first number
    columns: list[int]

    def stripes(self, wanted: set[int]) -> list[tuple[int, list[int]]]:
        """The stretches to read side by side for the wanted columns: the byte each begins at, its columns."""
        if not self.fortran:
            return [(self.offset, self.columns)]
        length = self.rows * self.dtype.itemsize
        return [(self.offset + i * length, [c]) for i, c in enumerate(self.columns) if c in wanted]


class NpzTable(Table):
    """The arrays of an NPZ file side by side, decompressed as the rows go by.

    The name of an array stands for all its columns.
    """

    kind = "NPZ"

    def __init__(self, path: Path) -> None:
        self.members: dict[str, Member] = {}
        width = 0
        with reading(path, self.kind), zipfile.ZipFile(path) as archive:
            for file in archive.namelist():
                with archive.open(file) as stream:
                    shape, fortran, dtype = read_header(stream)
                    offset = stream.tell()
                if len(shape) in (1, 2) and dtype.kind in "biufUS":
                    columns = list(range(width, width + (shape[1] if len(shape) == 2 else 1)))
                    member = Member(file, shape[0], dtype, fortran, offset, columns)
                    self.members[file.removesuffix(".npy")] = member
                    width += len(columns)
        if not width:
            raise InputError(f"{path}: holds no array with rows and columns: save one in it")
        super().__init__(path, width)
        self.groups = {name: member.columns for name, member in self.members.items()}

    def name(self, column: int) -> str:
        array = next(name for name, columns in self.groups.items() if column in columns)
        return f"{array}[{self.groups[array].index(column)}]"

    def holding(self, columns: Sequence[int]) -> dict[str, Member]:
        """The arrays that hold these columns."""
        return {name: member for name, member in self.members.items() if {*member.columns} & {*columns}}

    def rows(self, columns: Sequence[int]) -> int:
        lengths = {name: member.rows for name, member in self.holding(columns).items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {rows}" for name, rows in lengths.items())
            raise InputError(
                f"{self.path}: the arrays differ in their number of rows: {listed}: "
                "choose arrays of one length by `x_columns`, `y_columns` and `labels`"
            )
        return next(iter(lengths.values()))

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        return narrowest([member.dtype for member in self.holding(columns).values()])

    def read(self, columns: Sequence[int]) -> Iterator[tuple[list[NDArray], int]]:
        total = self.rows(columns)
        with zipfile.ZipFile(self.path) as archive, ExitStack() as stack:
            streams: list[tuple[IO[bytes], np.dtype, list[int]]] = []
            for member in self.holding(columns).values():
                for offset, stripe in member.stripes({*columns}):
                    stream = stack.enter_context(archive.open(member.file))
                    stream.seek(offset)
                    streams.append((stream, member.dtype, stripe))
            for first in range(0, total, self.step):
                count = min(self.step, total - first)
                fields: dict[int, NDArray] = {}
                for stream, dtype, stripe in streams:
                    numbers = np.frombuffer(stream.read(count * len(stripe) * dtype.itemsize), dtype)
                    block = numbers.reshape(count, len(stripe))
                    block = block.astype(str) if dtype.kind == "S" else block
                    fields.update(zip(stripe, block.T, strict=True))
                yield [fields[column] for column in columns], first + count


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran order, and type of the array whose NPY file a stream begins."""
    if np.lib.format.read_magic(stream) == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)
