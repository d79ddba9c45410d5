"""Tables in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpigp.data.tables.table import Table, narrowest, reading
from mpigp.errors import InputError
from mpigp.types import Floats


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
        self.names = names = list(self.schema.names)
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{path}: several columns are named {name}: rename them")

    def rows(self, columns: Sequence[int]) -> int:
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

    def labels(self, fields: Any) -> NDArray:
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
            raise InputError(
                f"{self.path}, column {self.name(column)}: holds {values.type}, no numbers: leave it out"
            ) from None
