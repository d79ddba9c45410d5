"""Tables in CSV, NPY, NPZ and Parquet files, read a block of rows at a time.

A table has numbered columns, which may have names. Messages count rows from 1 and columns from 0.
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.errors import InputError

Array = NDArray[np.float64]

MISSING = {"", "na", "n/a", "null"}  # besides "nan", which float() understands
BLOCK_FIELDS = 2**18  # at most so many fields in memory


class Block(NamedTuple):
    """Consecutive rows of a table."""

    values: Array  # (rows, columns asked for), NaN where missing
    labels: NDArray | None  # (rows,) numbers or text
    done: int  # how much of the table, in its unit, has been read


def number(text: str) -> float:
    """The number in a field, NaN where it is missing; ValueError where it is neither."""
    text = text.strip()
    if "_" in text:  # float() would read 2020_01 as 202001
        raise ValueError(text)
    return float("nan") if text.lower() in MISSING else float(text)


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what goes wrong inside a damaged or foreign file into one line that names it."""
    try:
        yield
    except (OSError, EOFError, ValueError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as {kind}: {reason}: check the file, or choose --format") from error


class Table(ABC):
    """A file of `width` columns that is read in blocks of at most `step` rows.

    `names` are the columns' names where they are known; `groups` are names that stand for several columns at once.
    """

    unit = "row"
    names: list[str] | None = None

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self.width = width
        self.step = min(max(BLOCK_FIELDS // max(width, 1), 1), 2**14)
        self.groups: dict[str, list[int]] = {}

    @abstractmethod
    def rows(self, columns: Sequence[int]) -> int | None:
        """Number of rows of these columns; None where only reading can tell."""

    @abstractmethod
    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        """The rows from first to last: these columns as numbers, and the labels as they are."""

    def size(self, columns: Sequence[int]) -> int | None:
        """How much there is to read, in the table's unit."""
        return self.rows(columns)

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        """The smaller of float32 and float64 that holds these columns as the file does."""
        return np.dtype(np.float64)

    def name(self, column: int) -> str:
        """What to call a column in a message."""
        return self.names[column] if self.names else str(column)

    def numbers(self, values: NDArray | Sequence[Any], column: int, first: int) -> Array:
        """The fields of one column, numbers or text, as numbers; the first of them stands in row `first`."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            return values.astype(np.float64)
        texts = ["" if value is None else str(value) for value in values]
        try:
            if "_" not in "".join(texts):
                return np.fromiter(map(float, texts), np.float64, len(texts))
        except ValueError:
            pass  # something is missing or wrong: look at each
        result = np.empty(len(texts))
        for row, text in enumerate(texts):
            try:
                result[row] = number(text)
            except ValueError:
                raise InputError(
                    f"{self.path}, row {first + row + 1}, column {self.name(column)}: {text!r} is no number: "
                    "correct it, leave it empty if it is missing, or leave the column out"
                ) from None
        return result

    def stack(self, values: Sequence[NDArray | Sequence[Any]], columns: Sequence[int], first: int) -> Array:
        """The fields of several columns as one array (rows, columns)."""
        numbers = [self.numbers(column, number, first) for column, number in zip(values, columns, strict=True)]
        return np.stack(numbers, axis=1) if numbers else np.empty((0, 0))


class CsvTable(Table):
    """Delimited text. `header` says whether the first row names the columns; None: it does if it holds no number."""

    unit = "B"

    def __init__(self, path: Path, delimiter: str, header: bool | None) -> None:
        self.delimiter = delimiter
        with reading(path, "CSV"), path.open("rb") as file:
            names = [field.strip() for field in next(self.records(file), [])]
        if not names:
            raise InputError(f"{path}: is empty: give a file with rows")
        super().__init__(path, len(names))
        self.header = names_columns(names) if header is None else header
        self.names = names if self.header else None

    def records(self, file: io.BufferedReader) -> Iterator[list[str]]:
        """The fields of each row that is not blank."""
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        return filter(None, csv.reader(text, delimiter=self.delimiter))

    def rows(self, columns: Sequence[int]) -> None:
        return None

    def size(self, columns: Sequence[int]) -> int:
        return self.path.stat().st_size

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        first = 0
        with reading(self.path, "CSV"), self.path.open("rb") as file:
            records = self.records(file)
            if self.header:
                next(records)
            while block := list(islice(records, self.step)):
                for row, record in enumerate(block, first + 1):
                    if len(record) != self.width:
                        raise InputError(
                            f"{self.path}, row {row}: has {len(record)} fields where the first row of the file has "
                            f"{self.width}: correct the row, or choose --delimiter"
                        )
                values = self.stack([[record[c] for record in block] for c in columns], columns, first)
                labels = None if label is None else np.array([record[label] for record in block])
                first += len(block)
                yield Block(values, labels, file.tell())


def names_columns(fields: list[str]) -> bool:
    """Whether the first row of a text file looks like names: some text, and no number."""

    def is_number(text: str) -> bool:
        try:
            number(text)
        except ValueError:
            return False
        return True

    present = [field for field in fields if field.lower() not in MISSING]
    return bool(present) and not any(map(is_number, present))


class NpyTable(Table):
    """An array in a NumPy file, mapped into memory rather than read."""

    def __init__(self, path: Path) -> None:
        with reading(path, "NPY"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or array.dtype.kind not in "biuf":
            raise InputError(f"{path}: holds no array of numbers with rows and columns: save one with numpy.save")
        self.array = array.reshape(len(array), -1)
        super().__init__(path, self.array.shape[1])

    def rows(self, columns: Sequence[int]) -> int:
        return len(self.array)

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        return narrowest([self.array.dtype])

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        for start in range(0, len(self.array), self.step):
            block = self.array[start : start + self.step]
            labels = None if label is None else np.array(block[:, label])
            yield Block(block[:, columns].astype(np.float64), labels, start + len(block))


class Member(NamedTuple):
    """An array of an NPZ file: how its numbers lie in the file, and the table's columns that it makes up."""

    file: str
    rows: int
    dtype: np.dtype
    fortran: bool  # column after column instead of row after row
    offset: int  # bytes before the first number
    columns: list[int]

    def stripes(self, wanted: set[int]) -> Iterator[tuple[int, list[int]]]:
        """What to read side by side to have the wanted columns: where each stretch begins, and its columns."""
        if not self.fortran:
            yield self.offset, self.columns
            return
        for place, column in enumerate(self.columns):
            if column in wanted:
                yield self.offset + place * self.rows * self.dtype.itemsize, [column]


class NpzTable(Table):
    """The arrays of an NPZ file side by side, decompressed as rows go by; an array's name stands for its columns."""

    def __init__(self, path: Path) -> None:
        self.members: list[Member] = []
        groups: dict[str, list[int]] = {}
        width = 0
        with reading(path, "NPZ"), zipfile.ZipFile(path) as archive:
            for file in archive.namelist():
                with archive.open(file) as stream:
                    shape, fortran, dtype = read_header(stream)
                    offset = stream.tell()
                if len(shape) in (1, 2) and dtype.kind in "biufUS":
                    columns = list(range(width, width + (shape[1] if len(shape) == 2 else 1)))
                    self.members.append(Member(file, shape[0], dtype, fortran, offset, columns))
                    groups[file.removesuffix(".npy")] = columns
                    width += len(columns)
        super().__init__(path, width)
        self.groups = groups

    def holding(self, columns: Sequence[int]) -> list[Member]:
        """The arrays that hold these columns."""
        return [member for member in self.members if set(member.columns) & set(columns)]

    def name(self, column: int) -> str:
        (array, columns), *_ = [(name, group) for name, group in self.groups.items() if column in group]
        return f"{array}[{columns.index(column)}]" if len(columns) > 1 else array

    def rows(self, columns: Sequence[int]) -> int:
        lengths = {member.file.removesuffix(".npy"): member.rows for member in self.holding(columns)}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {rows}" for name, rows in lengths.items())
            raise InputError(
                f"{self.path}: the arrays differ in their number of rows: {listed}: "
                "choose arrays of one length with --x-columns, --y-columns and --labels"
            )
        return next(iter(lengths.values()))

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        return narrowest([member.dtype for member in self.holding(columns)])

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        wanted = {*columns} if label is None else {*columns, label}
        total = self.rows(sorted(wanted))
        with reading(self.path, "NPZ"), zipfile.ZipFile(self.path) as archive, ExitStack() as stack:
            streams = []
            for member in self.holding(sorted(wanted)):
                for offset, held in member.stripes(wanted):
                    stream = stack.enter_context(archive.open(member.file))
                    stream.seek(offset)
                    streams.append((stream, member.dtype, held))
            for first in range(0, total, self.step):
                count = min(self.step, total - first)
                fields: dict[int, NDArray] = {}
                for stream, dtype, held in streams:
                    data = stream.read(count * len(held) * dtype.itemsize)
                    array = np.frombuffer(data, dtype).reshape(count, len(held))
                    fields.update(zip(held, (array.astype(str) if dtype.kind == "S" else array).T, strict=True))
                values = self.stack([fields[column] for column in columns], columns, first)
                yield Block(values, None if label is None else fields[label], first + count)


def read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of the NumPy array that a stream begins."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


class ParquetTable(Table):
    """A Parquet file, read by pyarrow batch by batch."""

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InputError(f"{path}: reading Parquet needs pyarrow: pip install 'mpigp[parquet]'") from None
        self.arrow = pyarrow
        with reading(path, "Parquet"), pyarrow.parquet.ParquetFile(path) as file:
            self.schema, self.count = file.schema_arrow, file.metadata.num_rows
        super().__init__(path, len(self.schema))
        self.names = list(self.schema.names)
        if len(set(self.names)) < self.width:
            raise InputError(f"{path}: two columns have the same name: rename one of them")

    def rows(self, columns: Sequence[int]) -> int:
        return self.count

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        float32 = self.arrow.float32()
        return narrowest([np.dtype("f4" if self.schema.types[c] == float32 else "f8") for c in columns])

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        wanted = [self.schema.names[c] for c in ([*columns] if label is None else [*columns, label])]
        first = 0
        with reading(self.path, "Parquet"), self.arrow.parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=self.step, columns=wanted):
                values = self.stack([self.plain(batch, column) for column in columns], columns, first)
                labels = None
                if label is not None:
                    labels = np.array(["" if v is None else v for v in batch[self.schema.names[label]].to_pylist()])
                first += batch.num_rows
                yield Block(values, labels, first)

    def plain(self, batch: Any, column: int) -> NDArray | list[str | None]:
        """A column of a batch as an array of numbers with NaN where it is null, or as a list of texts."""
        values, types = batch[self.schema.names[column]], self.arrow.types
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_string(values.type) or types.is_large_string(values.type):
            return values.to_pylist()
        try:
            return values.cast(self.arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        except self.arrow.ArrowNotImplementedError:
            raise InputError(
                f"{self.path}, column {self.name(column)}: is of type {values.type}, no number: leave the column out"
            ) from None


def narrowest(dtypes: Sequence[np.dtype]) -> np.dtype:
    """float32 if it holds every value of these types, else float64."""
    numeric = all(dtype.kind in "biuf" for dtype in dtypes)
    return np.dtype(np.float32 if numeric and np.result_type(np.float32, *dtypes) == np.float32 else np.float64)


READERS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".npy": "npy", ".npz": "npz", ".parquet": "parquet", ".pq": "parquet"}


def open_table(path: Path, kind: str | None, delimiter: str | None, header: bool | None) -> Table:
    """Open a table; what is None is told from the file's name and its first row."""
    if not path.is_file():
        raise InputError(f"{path}: {'is not a file' if path.exists() else 'does not exist'}: check the path")
    suffix = path.suffix.lower()
    kind = kind or READERS.get(suffix)
    if kind is None:
        raise InputError(f"{path}: cannot tell the format from the name: choose --format csv, npy, npz or parquet")
    if kind == "csv":
        return CsvTable(path, delimiter or ("\t" if suffix == ".tsv" else ","), header)
    return {"npy": NpyTable, "npz": NpzTable, "parquet": ParquetTable}[kind](path)
