"""Tables in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpigp.data.tables.table import Block, Table, narrowest, reading
from mpigp.errors import InputError


class ParquetTable(Table):
    """A Parquet file, read batch by batch by pyarrow, which is imported only here."""

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
        self.names = names = list(self.schema.names)
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{path}: several columns are named {name}: rename them")

    def rows(self, columns: Sequence[int]) -> int:
        return self.count

    def dtype(self, columns: Sequence[int]) -> np.dtype:
        single = self.arrow.float32()
        return narrowest([np.dtype("f4" if self.schema.types[c] == single else "f8") for c in columns])

    def blocks(self, columns: Sequence[int], label: int | None) -> Iterator[Block]:
        wanted = [self.name(column) for column in ([*columns] if label is None else [*columns, label])]
        first = 0
        with reading(self.path, "Parquet"), self.arrow.parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=self.step, columns=wanted):
                fields = [self.fields(batch[self.name(column)], column) for column in columns]
                labels = None
                if label is not None:
                    texts = batch[self.name(label)].to_pylist()
                    labels = np.array(["" if text is None else text for text in texts])
                values = self.stack(fields, columns, first)
                first += batch.num_rows
                yield Block(values, labels, first)

    def fields(self, values: Any, column: int) -> NDArray | list[str | None]:
        """An Arrow array as an array of numbers with NaN where it is null, or as a list of texts."""
        types = self.arrow.types
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_string(values.type) or types.is_large_string(values.type):
            return values.to_pylist()
        try:
            return values.cast(self.arrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        except self.arrow.ArrowNotImplementedError:
            raise InputError(
                f"{self.path}, column {self.name(column)}: holds {values.type}, no numbers: leave it out"
            ) from None
