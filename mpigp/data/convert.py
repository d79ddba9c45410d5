"""Conversion of tables to data files: the choice of the columns of X, Y and labels, and their copying."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from mpigp.data.columns import storable
from mpigp.data.tables import NpzTable, Table, number
from mpigp.errors import InputError

MAX_CLASSES = 2**16  # distinct labels; all of them are in memory


class Assignment(NamedTuple):
    """The columns that become `/X` and `/Y`, and the one that becomes `/labels`."""

    x: list[int]
    y: list[int]
    label: int | None


def select(table: Table, wanted: Sequence[str], option: str) -> list[int]:
    """Return the columns of these names or numbers."""
    names = table.names or []
    columns: list[int] = []
    for word in wanted:
        if names.count(word) > 1:
            raise InputError(f"{table.path}: {option}: several columns are named {word}: give a number")
        if word in table.groups:
            columns += table.groups[word]
        elif word in names:
            columns.append(names.index(word))
        elif word.isdecimal() and int(word) < table.width:
            columns.append(int(word))
        else:
            known = ", ".join([*table.groups, *names][:20])
            remedy = f"give names{f' ({known})' if known else ''} or numbers from 0 to {table.width - 1}"
            raise InputError(f"{table.path}: {option}: no column {word!r}: {remedy}")
    return columns


def assign(table: Table, x: Sequence[str] | None, y: Sequence[str] | None, labels: str | None) -> Assignment:
    """Assign the columns; where only X or only Y is named, the other gets the columns that are left.

    Where neither is named everything is Y, except that in an NPZ file with an array Y, the arrays X, Y and labels are
    used by their names.
    """
    if isinstance(table, NpzTable) and x is None and y is None and "Y" in table.groups:
        x, y = [name for name in ("X",) if name in table.groups], ["Y"]
        labels = labels or ("labels" if "labels" in table.groups else None)
    chosen = [] if labels is None else select(table, [labels], "`labels`")
    if len(chosen) > 1:
        raise InputError(f"{table.path}: `labels` {labels}: has {len(chosen)} columns: choose one column")
    x_columns = select(table, x or [], "`x_columns`")
    y_columns = select(table, y or [], "`y_columns`")
    named = Counter([*x_columns, *y_columns])
    for column, times in named.items():
        if times > 1:
            raise InputError(f"{table.path}: column {table.name(column)} is chosen twice: choose it once")
    left = [column for column in range(table.width) if column not in named and column not in chosen]
    if y is None:
        y_columns = left
    elif x is None:
        x_columns = left
    if not x_columns and not y_columns:
        raise InputError(f"{table.path}: no column is left for X or Y: choose `x_columns` or `y_columns`")
    return Assignment(x_columns, y_columns, chosen[0] if chosen else None)


class Classes:
    """The distinct labels of a column, numbered as they appear."""

    def __init__(self, table: Table, column: int) -> None:
        self.path, self.column = table.path, table.name(column)
        self.codes: dict[str, int] = {}

    def encode(self, labels: NDArray, first: int) -> NDArray[np.int32]:
        """Return the codes of these labels, the first of which is in row `first`."""
        distinct, inverse = np.unique(labels, return_inverse=True)
        texts = [str(label).strip() for label in distinct.tolist()]
        for position, text in enumerate(texts):
            if text in ("", "nan"):
                where = f"{self.path}, row {first + int(np.argmax(inverse == position)) + 1}, column {self.column}"
                raise InputError(f"{where}: the label is missing: fill it in, or leave `labels` out")
            self.codes.setdefault(text, len(self.codes))
        if len(self.codes) > MAX_CLASSES:
            reason = f"holds more than {MAX_CLASSES} different labels"
            raise InputError(f"{self.path}, column {self.column}: {reason}: choose a column that names classes")
        return np.array([self.codes[text] for text in texts], np.int32)[inverse]

    def finish(self, dataset: h5py.Dataset) -> None:
        """Replace each code: by its label where all are integers, else by its place among the sorted classes."""
        try:
            values = np.array([number(text) for text in self.codes])
        except ValueError:
            values = np.array([np.nan])
        if not (np.all(np.abs(values) < 2**31) and np.all(values == np.rint(values))):
            names = dataset.attrs["classes"] = storable(self.path, sorted(self.codes))
            places = {text: place for place, text in enumerate(names)}
            values = np.array([places[text] for text in self.codes])
        for first in range(0, len(dataset), 2**20):
            put(dataset, first, values.astype(np.int32)[dataset[first : first + 2**20]])


def create(file: h5py.File, name: str, rows: int | None, width: tuple[int, ...], dtype: np.dtype) -> h5py.Dataset:
    """Add a dataset of rows of this width: contiguous, or where their number is None, growing in chunks of rows."""
    if rows is not None:
        return file.create_dataset(name, shape=(rows, *width), dtype=dtype)
    chunk = max(2**16 // max(width, default=1), 1)
    return file.create_dataset(name, (0, *width), dtype, maxshape=(None, *width), chunks=(chunk, *width))


def put(dataset: h5py.Dataset, first: int, block: NDArray) -> None:
    """Write a block of rows that begins at row `first`."""
    if dataset.maxshape[0] is None:
        dataset.resize(max(len(dataset), first + len(block)), axis=0)
    dataset[first : first + len(block)] = block


def write(
    table: Table, assignment: Assignment, file: h5py.File, dtype: np.dtype | None, advance: Callable[[int], object]
) -> tuple[int, int]:
    """Copy the columns into an open data file, block by block; return the number of rows and of missing values.

    `dtype` None lets the table decide. `advance` is called with how much each block has read, in the table's unit.
    """
    columns, label = [*assignment.x, *assignment.y], assignment.label
    total = table.rows(columns if label is None else [*columns, label])
    split = len(assignment.x)
    parts = {name: part for name, part in (("X", slice(0, split)), ("Y", slice(split, None))) if columns[part]}
    for name, part in parts.items():
        dataset = create(file, name, total, (len(columns[part]),), dtype or table.dtype(columns[part]))
        if table.names:
            dataset.attrs["columns"] = storable(table.path, [table.names[column] for column in columns[part]])
    classes = None if label is None else Classes(table, label)
    if classes is not None:
        create(file, "labels", total, (), np.dtype(np.int32))
    rows = missing = done = 0
    for values, labels, now in table.blocks(columns, label):
        for name, part in parts.items():
            put(file[name], rows, values[:, part])
        if classes is not None and labels is not None:
            put(file["labels"], rows, classes.encode(labels, rows))
        rows += len(values)
        missing += int(np.isnan(values).sum())
        advance(now - done)
        done = now
    if rows == 0:
        raise InputError(f"{table.path}: holds no rows: give a file with rows")
    if classes is not None:
        classes.finish(file["labels"])
    return rows, missing
