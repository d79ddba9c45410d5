"""Tables of delimited text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path

from mpigp.data.tables.table import MISSING, Table, number, reading
from mpigp.errors import InputError


class CsvTable(Table):
    """Delimited text, never held whole.

    `header` says whether the first row names the columns; None lets the row itself tell.
    """

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

    def rows(self, columns: Sequence[int]) -> None:
        return None

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
                        raise InputError(
                            f"{self.path}, row {row}: has {len(record)} fields, the first row of the file "
                            f"{self.width}: correct the row, or choose `delimiter`"
                        )
                yield [[record[column] for record in block] for column in columns], file.tell()


def are_names(fields: list[str]) -> bool:
    """Whether the first row of a file looks like the columns' names: some text, and no number."""
    present = [field for field in fields if field.lower() not in MISSING]
    for field in present:
        with suppress(ValueError):
            number(field)
            return False
    return bool(present)
