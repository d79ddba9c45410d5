"""Where the data of an experiment come from: a file, or `synth`."""

from __future__ import annotations

from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from mpigp.data import synth
from mpigp.data.datasets import find
from mpigp.data.hdf5 import dataset, h5py_errors, read_rows, reading
from mpigp.errors import InputError
from mpigp.types import Floats

Labels = NDArray[np.int64]

ROWS = 1000  # of oil flow


class Source(NamedTuple):
    """path : of a data file, or None to make oil flow.   rows : of it.   y : name of the file's outputs."""

    path: str | None
    rows: int | None = None
    y: str = "Y"

    @property
    def name(self) -> str:
        return self.path or "oilflow"

    def file(self, kind: str, holds: str) -> str:
        """Return the path of the file that an experiment cannot do without."""
        if self.rows is not None:
            raise InputError(f"--rows: is the number of rows of oil flow to make: leave it out for {kind}")
        if self.path is None:
            raise InputError(f"{kind}: DATA is missing: name an HDF5 file with {holds}")
        return self.path

    def oilflow(self, labelled: bool = True) -> tuple[Floats, Labels | None]:
        """Return all rows of Y (n, d) of the file, or of oil flow; and their labels (n,) if asked for and there."""
        if self.path:
            if self.rows is not None:
                raise InputError("--rows: is the number of rows to make, and DATA are given: leave one of them out")
            with reading(self.path) as file:
                sets = find(file, self.y, None)
                labels = read_labels(file, "labels", sets.n) if labelled and "labels" in file else None
                return read_rows(sets.Y, 0, sets.n), labels
        rows = ROWS if self.rows is None else self.rows
        if rows < 1:
            raise InputError(f"--rows: is {rows}: give a number ≥ 1")
        blocks = [synth.oilflow_block(0, block) for block in range(-(-rows // synth.BLOCK))]
        Y, labels = (np.concatenate([block[name] for block in blocks])[:rows].copy() for name in ("Y", "labels"))
        return Y, labels.astype(np.int64)


def read_labels(file: h5py.File, name: str, n: int) -> Labels:
    """Return the labels (n,) of a file's rows."""
    item = dataset(file, name, 1, "labels are whole numbers (n,)")
    where = f"{file.filename}: /{name}"
    if len(item) != n:
        raise InputError(f"{where}: has {len(item)} labels for {n} rows: there must be as many")
    with h5py_errors(where):
        values = item[()]
    if not np.array_equal(values, np.round(values)):
        raise InputError(f"{where}: holds numbers that are not whole: labels are whole numbers (n,)")
    return values.astype(np.int64)
