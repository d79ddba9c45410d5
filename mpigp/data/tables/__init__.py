"""Tables in CSV, NPY, NPZ and Parquet files, read a block of rows at a time."""

from __future__ import annotations

from pathlib import Path

from mpigp.data.tables.arrays import NpyTable, NpzTable
from mpigp.data.tables.parquet import ParquetTable
from mpigp.data.tables.table import Block, Table, number
from mpigp.data.tables.text import CsvTable
from mpigp.errors import InputError

__all__ = ["FORMATS", "Block", "NpzTable", "Table", "number", "open_table"]

FORMATS = {
    "csv": (".csv", ".tsv", ".txt"),
    "npy": (".npy",),
    "npz": (".npz",),
    "parquet": (".parquet", ".pq"),
}


def open_table(path: Path, kind: str | None, delimiter: str | None, header: bool | None) -> Table:
    """Open a table; what is None is determined by the file's name and its first row."""
    if not path.is_file():
        raise InputError(f"{path}: {'is not a file' if path.exists() else 'does not exist'}: check the path")
    suffix = path.suffix.lower()
    kind = kind or next((kind for kind, suffixes in FORMATS.items() if suffix in suffixes), None)
    if kind == "csv":
        return CsvTable(path, delimiter or ("\t" if suffix == ".tsv" else ","), header)
    if kind == "npy":
        return NpyTable(path)
    if kind == "npz":
        return NpzTable(path)
    if kind == "parquet":
        return ParquetTable(path)
    raise InputError(f"{path}: the name does not tell the format: choose `format` {', '.join(FORMATS)}")
