"""Tables in CSV, NPY, NPZ and Parquet files: numbered columns, which may have names, and rows read in blocks.

Messages count rows from 1 and columns from 0.
"""

import csv
import io
import math
import zipfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.data.declared import check_declared
from mpigp.errors import InputError
from mpigp.types import Floats

MISSING = {"", "na", "n/a", "null"}  # besides "nan", which float() understands
BLOCK_FIELDS = 2**18  # about so many fields are in memory
BLOCK_ROWS = 2**14
FORMATS = {"csv": (".csv", ".tsv", ".txt"), "npy": (".npy",), "npz": (".npz",), "parquet": (".parquet", ".pq")}


class Table(ABC):
    """A file of `width` columns that is read in blocks of at most `step` rows."""

    kind: str  # of file, for messages
    unit = "row"
    names: list[str] | None = None  # of the columns, where they are known

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self.width = width
        self.step = min(max(BLOCK_FIELDS // max(width, 1), 1), BLOCK_ROWS)
        self.groups: dict[str, list[int]] = {}  # names that stand for several columns

    def rows(self, columns: Sequence[int]) -> int | None:
        """Number of rows of these columns; None where only reading can tell."""
        return None

    @abstractmethod
    def read(self, columns: Sequence[int]) -> Iterator[tuple[list[Any], int]]:
        """Yield blocks of rows: the fields of each column, and how much of the table has been read, in its unit."""

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[tuple[Floats, NDArray | None, int]]:
        """Yield the rows in blocks: these columns as numbers (rows, columns), NaN where missing; the labels (rows,),
        numbers or text; and how much of the table, in its unit, has been read."""
        first = 0
        with reading(self.path, self.kind):
            for fields, done in self.read([*columns] if label is None else [*columns, label]):
                pairs = zip(columns, fields, strict=False)  # the labels come last
                values = np.stack([self.numbers(column, each, first) for column, each in pairs], axis=1)
                yield values, None if label is None else self.labels(fields[-1]), done
                first += len(values)

    def size(self, columns: Sequence[int]) -> int | None:
        """How much there is to read, in the table's unit."""
        return self.rows(columns)

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        """float32 if it holds these columns as the file does, else float64."""
        return np.dtype(np.float64)

    def name(self, column: int) -> str:
        """The name of a column in messages."""
        return self.names[column] if self.names else str(column)

    def labels(self, fields: Any) -> NDArray:
        """Return the fields of a column as labels."""
        return np.array(fields)

    def numbers(self, column: int, values: Any, first: int) -> Floats:
        """Return the fields of a column from row `first` on, which are numbers or text, as numbers."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
            with np.errstate(all="ignore"):  # bytes that are no number of a type longer than float64
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
                where = f"{self.path}, row {first + row + 1}, column {self.name(column)}"
                remedy = "correct it, leave it empty if it is missing, or leave the column out"
                raise InputError(f"{where}: {text!r} is no number: {remedy}") from None
        return result


def number(text: str) -> float:
    """The number in a field, NaN where it is missing; ValueError where it is neither."""
    text = text.strip()
    if "_" in text:  # float() would read 2020_01 as 202001
        raise ValueError(text)
    return float("nan") if text.lower() in MISSING else float(text)


def narrowest(dtypes: Sequence[np.dtype]) -> np.dtype:
    """float32 if it holds every value of these types, else float64."""
    single = all(dtype.kind in "biuf" for dtype in dtypes) and np.result_type(np.float32, *dtypes) == np.float32
    return np.dtype(np.float32 if single else np.float64)


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of a damaged or foreign file into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the libraries that read damaged files raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as {kind}: {reason}: check the file or `format`") from error


class CsvTable(Table):
    """Delimited text, never held whole; `header`: whether the first row names the columns (None: it tells itself)."""

    kind, unit = "CSV", "B"

    def __init__(self, path: Path, delimiter: str, header: bool | None) -> None:
        self.delimiter = delimiter
        with reading(path, self.kind), path.open("rb") as file:
            names = [field.strip() for field in next(self.records(file), [])]
        if not names:
            raise InputError(f"{path}: is empty: give a file with rows")
        super().__init__(path, len(names))
        self.header = are_names(names) if header is None else header
        self.names = names if self.header else None

    def records(self, file: io.BufferedReader) -> Iterator[list[str]]:
        """The fields of each row that is not blank."""
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        return filter(None, csv.reader(text, delimiter=self.delimiter))

    def size(self, columns: Sequence[int]) -> int:
        return self.path.stat().st_size

    def read(self, columns: Sequence[int]) -> Iterator[tuple[list[list[str]], int]]:
        rows = count(1)
        with self.path.open("rb") as file:
            records = self.records(file)
            if self.header:
                next(records)
            while block := list(islice(records, self.step)):
                for record, row in zip(block, rows, strict=False):
                    if len(record) != self.width:
                        fields = f"has {len(record)} fields, the first row of the file {self.width}"
                        raise InputError(f"{self.path}, row {row}: {fields}: correct the row, or choose `delimiter`")
                yield [[record[column] for record in block] for column in columns], file.tell()


def are_names(fields: list[str]) -> bool:
    """Whether the first row of a file looks like the columns' names: some text, and no number."""
    present = [field for field in fields if field.lower() not in MISSING]
    for field in present:
        with suppress(ValueError):
            number(field)
            return False
    return bool(present)


class NpyTable(Table):
    """An array in an NPY file, mapped into memory rather than read."""

    kind = "NPY"

    def __init__(self, path: Path) -> None:
        with reading(path, self.kind), np.errstate(all="ignore"):  # of a shape that nothing can have
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
    """The arrays of an NPZ file side by side, decompressed in blocks; an array's name stands for all its columns."""

    kind = "NPZ"

    def __init__(self, path: Path) -> None:
        self.members: dict[str, Member] = {}
        width = 0
        with reading(path, self.kind), zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                file = entry.filename
                with archive.open(entry) as stream:
                    first = np.lib.format.read_magic(stream) == (1, 0)
                    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                    shape, fortran, dtype = read(stream)
                    offset = stream.tell()
                if min(shape, default=0) < 0:
                    raise ValueError(f"{file} has the shape {shape}")
                check_declared(f"{path}: {file}", math.prod(shape) * dtype.itemsize, path.stat().st_size, 1)
                if len(shape) in (1, 2) and dtype.kind in "biufUS":
                    columns = list(range(width, width + (shape[1] if len(shape) == 2 else 1)))
                    width += len(columns)
                    self.members[file.removesuffix(".npy")] = Member(file, shape[0], dtype, fortran, offset, columns)
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
            remedy = "choose arrays of one length by `x_columns`, `y_columns` and `labels`"
            raise InputError(f"{self.path}: the arrays differ in their number of rows: {listed}: {remedy}")
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


class ParquetTable(Table):
    """A Parquet file, read batch by batch by pyarrow, which is imported only here."""

    kind = "Parquet"

    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise InputError(f"{path}: reading Parquet needs pyarrow: pip install 'mpigp[parquet]'") from None
        self.arrow = pyarrow
        with reading(path, self.kind), pyarrow.parquet.ParquetFile(path) as file:
            self.schema, self.count = file.schema_arrow, file.metadata.num_rows
        super().__init__(path, len(self.schema))
        self.names = list(self.schema.names)
        for name, times in Counter(self.names).items():
            if times > 1:
                raise InputError(f"{path}: several columns are named {name}: rename them")

    def size(self, columns: Sequence[int]) -> int:
        return self.count

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        single = self.arrow.float32()
        return narrowest([np.dtype("f4" if self.schema.types[c] == single else "f8") for c in columns])

    def read(self, columns: Sequence[int]) -> Iterator[tuple[list[Any], int]]:
        names = [self.name(column) for column in columns]
        done = 0
        with self.arrow.parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=self.step, columns=names):
                done += batch.num_rows
                yield [batch[name] for name in names], done
        if done != self.count:
            raise InputError(f"{self.path}: declares {self.count} rows and holds {done}: is the file whole?")

    def labels(self, fields: Any) -> NDArray:
        if self.arrow.types.is_nested(fields.type):
            raise InputError(f"{self.path}: `labels`: is of type {fields.type}: choose a column of text or integers")
        return np.array(["" if text is None else text for text in fields.to_pylist()])

    def numbers(self, column: int, values: Any, first: int) -> Floats:
        types = self.arrow.types
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_string(values.type) or types.is_large_string(values.type):
            return super().numbers(column, values.to_pylist(), first)
        try:
            return values.cast(self.arrow.float64(), safe=False).to_numpy(zero_copy_only=False)  # null becomes NaN
        except self.arrow.ArrowNotImplementedError:
            where = f"{self.path}, column {self.name(column)}"
            raise InputError(f"{where}: holds {values.type}, no numbers: leave it out") from None


def open_table(path: Path, kind: str | None, delimiter: str | None, header: bool | None) -> Table:
    """Open a table; what is None is determined by the file's name and its first row."""
    if not path.is_file():
        raise InputError(f"{path}: {'is not a file' if path.exists() else 'does not exist'}: check the path")
    suffix = path.suffix.lower()
    kind = kind or next((kind for kind, suffixes in FORMATS.items() if suffix in suffixes), None)
    if kind == "csv":
        return CsvTable(path, delimiter or ("\t" if suffix == ".tsv" else ","), header)
    if kind is None:
        raise InputError(f"{path}: the name does not tell the format: choose `format` {', '.join(FORMATS)}")
    opened: dict[str, Callable[[Path], Table]] = {"npy": NpyTable, "npz": NpzTable, "parquet": ParquetTable}
    return opened[kind](path)
