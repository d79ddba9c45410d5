"""The common part of all tables: numbered columns, which may have names, and rows that are read in blocks.

Messages count rows from 1 and columns from 0.
"""

from __future__ import annotations

import csv
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.errors import InputError
from mpigp.types import Floats

MISSING = {"", "na", "n/a", "null"}  # besides "nan", which float() understands
BLOCK_FIELDS = 2**18  # about so many fields are in memory
BLOCK_ROWS = 2**14


class Block(NamedTuple):
    """Consecutive rows of a table."""

    values: Floats  # (rows, columns), NaN where missing
    labels: NDArray | None  # (rows,) numbers or text
    done: int  # how much of the table, in its unit, has been read


class Table(ABC):
    """A file of `width` columns that is read in blocks of at most `step` rows.

    `names` are the columns' names where they are known; `groups` are names that stand for several columns.
    """

    kind: str  # of file, for messages
    unit = "row"
    names: list[str] | None = None

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self.width = width
        self.step = min(max(BLOCK_FIELDS // max(width, 1), 1), BLOCK_ROWS)
        self.groups: dict[str, list[int]] = {}

    @abstractmethod
    def rows(self, columns: Sequence[int]) -> int | None:
        """Number of rows of these columns; None where only reading can tell."""

    @abstractmethod
    def read(self, columns: Sequence[int]) -> Iterator[tuple[list[Any], int]]:
        """Yield blocks of rows: the fields of each column, and how much of the table has been read, in its unit."""

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        """Yield the rows from first to last: these columns as numbers, and the labels as they are."""
        first = 0
        with reading(self.path, self.kind):
            for fields, done in self.read([*columns] if label is None else [*columns, label]):
                pairs = zip(columns, fields, strict=False)  # the labels come last
                values = np.stack([self.numbers(column, each, first) for column, each in pairs], axis=1)
                yield Block(values, None if label is None else self.labels(fields[-1]), done)
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


def number(text: str) -> float:
    """The number in a field, NaN where it is missing; ValueError where it is neither."""
    text = text.strip()
    if "_" in text:  # float() would read 2020_01 as 202001
        raise ValueError(text)
    return float("nan") if text.lower() in MISSING else float(text)


def narrowest(dtypes: Sequence[np.dtype]) -> np.dtype:
    """float32 if it holds every value of these types, else float64."""
    if all(dtype.kind in "biuf" for dtype in dtypes) and np.result_type(np.float32, *dtypes) == np.float32:
        return np.dtype(np.float32)
    return np.dtype(np.float64)


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of a damaged or foreign file into an InputError that names it."""
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, ValueError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as {kind}: {reason}: check the file or `format`") from error
