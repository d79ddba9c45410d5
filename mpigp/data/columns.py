"""Names of columns, which a dataset has in its attribute `columns`, and rows whose columns a model finds by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import h5py

from mpigp.data.hdf5 import h5py_errors, plain
from mpigp.data.held_out import RowView
from mpigp.errors import InputError

MOST = 8  # names that a message lists


def storable(where: object, texts: Iterable[str]) -> list[str]:
    """Return names or labels; text that HDF5 cannot store is refused."""
    texts = list(texts)
    for text in texts:
        if "\0" in text or text.encode(errors="ignore").decode() != text:
            raise InputError(f"{where}: the name or label {text!r} holds characters that are none: change it")
    return texts


def listed(names: Sequence[str]) -> str:
    """Return names in one line, the first of many."""
    words = [" ".join(name.split()) for name in names[:MOST]]
    return ", ".join(words) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")


def numbered(columns: Sequence[int], names: Sequence[str] | None) -> str:
    """Return the numbers of columns, with their names where they have some."""
    return ", ".join(f"{each} ({listed([names[each]])})" if names else str(each) for each in columns)


def column_names(item: h5py.Dataset) -> list[str] | None:
    """Return the names of the columns of a dataset (n, columns); None where it has none."""
    where = f"{item.file.filename}: {item.name}: attribute columns"
    with h5py_errors(where):
        if "columns" not in item.attrs:
            return None
        value = plain(item.attrs["columns"])
    names = [str(name) for name in (value if isinstance(value, list) else [value])]
    if len(names) != item.shape[1]:
        counts = f"has {len(names)} names, and the dataset {item.shape[1]} columns"
        raise InputError(f"{where}: {counts}: give each column its name, or delete the attribute")
    return names


class ColumnView:
    """Some columns of a dataset, in an order of their own, to be read like a dataset.

    note : a line that says which columns these are
    """

    def __init__(self, item: h5py.Dataset, columns: Sequence[int], note: str) -> None:
        self.item, self.columns, self.note = item, list(columns), note
        self.name, self.file, self.dtype, self.ndim = item.name, item.file, item.dtype, 2
        self.shape = (item.shape[0], len(self.columns))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Any:
        return self.item[rows][:, self.columns]


Source: TypeAlias = h5py.Dataset | ColumnView | RowView
"""Rows (n, columns) in a file."""


def match(item: h5py.Dataset, wanted: Sequence[str] | None, model: str) -> Source:
    """Return the columns of a dataset that have the names `wanted` by a model, in its order.

    Where the dataset or the model has no names, columns are taken by position: all of them.
    """
    names = None if wanted is None else column_names(item)
    if wanted is None or names is None or names == list(wanted):
        return item
    where = f"{item.file.filename}: {item.name}"
    given, wishes = Counter(names), Counter(wanted)
    if missing := [name for name in wanted if name not in given]:
        has = f"lacks {listed(missing)}, and has {listed(names)}"
        raise InputError(f"{where}: {has}: {model} are found by name: add or rename columns")
    if repeated := [name for name in wishes if given[name] > 1]:
        raise InputError(f"{where}: several columns are named {listed(repeated)}: give each a name of its own")
    if repeated := [name for name in wishes if wishes[name] > 1]:
        several = f"several of {model} are named {listed(repeated)}, and cannot be found by name"
        raise InputError(f"{where}: {several}: give the columns in the model's order with its names, or without names")
    ignored = [name for name in names if name not in wishes]
    note = f"{where}: columns are in another order than {model}, and read by name: {listed(wanted)}"
    if ignored:
        note = f"{where}: columns are read by name, as {model}: {listed(wanted)}; ignored: {listed(ignored)}"
    place = {name: column for column, name in enumerate(names)}
    return ColumnView(item, [place[name] for name in wanted], note)


def check_rows(item: Source, columns: int, model: str) -> None:
    """Refuse a dataset of new rows that has none, or other columns than those of the model."""
    where = f"{item.file.filename}: {item.name}"
    if item.shape[1] != columns:
        raise InputError(f"{where}: has {item.shape[1]} columns, not {columns} as {model}: they must agree")
    if not len(item):
        raise InputError(f"{where}: has no rows: give at least one")


def note_of(source: Source | None) -> str:
    """Return how the columns were found, where it is worth a line."""
    return source.note if isinstance(source, ColumnView) else ""


def tell(*notes: str) -> None:
    """Print the notes that are not empty: once all input is known to be good, since what is refused has one line."""
    for note in filter(None, notes):
        print(note)
