"""Tables of delimited text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from mpigp.data.tables.table import MISSING, Block, Table, number, reading
from mpigp.errors import InputError


class CsvTable(Table):
    """Delimited text, never held whole.

    `header` says whether the first row names the columns; None lets the row itself tell.
    """

    unit = "B"

    def __init__(self, path: Path, delimiter: str, header: bool | None) -> None:
        self.delimiter = delimiter
        with reading(path, "CSV"), path.open("rb") as file:
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
                            f"{self.path}, row {row}: has {len(record)} fields, the first row of the file "
                            f"{self.width}: correct the row, or choose `delimiter`"
                        )
                values = self.stack([[record[c] for record in block] for c in columns], columns, first)
                labels = None if label is None else np.array([record[label] for record in block])
                first += len(block)
                yield Block(values, labels, file.tell())


def are_names(fields: list[str]) -> bool:
    """Whether the first row of a file looks like the columns' names: some text, and no number."""
    present = [field for field in fields if field.lower() not in MISSING]
    for field in present:
        with suppress(ValueError):
            number(field)
            return False
    return bool(present)
