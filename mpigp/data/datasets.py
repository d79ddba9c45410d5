"""From a data file to the rows of a rank: every rank opens the file and reads its own slice."""

from __future__ import annotations

from typing import NamedTuple

import h5py

from mpigp.chunks import Share, chunk_rows, share
from mpigp.data.hdf5 import dataset, read_rows
from mpigp.data.streams import Columns, Stream, block_rows
from mpigp.errors import InputError
from mpigp.types import Comm


class DataSets(NamedTuple):
    """The datasets of a data file, their shapes checked; X is None where there are no inputs to read."""

    Y: h5py.Dataset
    X: h5py.Dataset | None

    @property
    def n(self) -> int:
        return self.Y.shape[0]

    @property
    def q(self) -> int | None:
        return None if self.X is None else self.X.shape[1]

    @property
    def d(self) -> int:
        return self.Y.shape[1]

    @property
    def where(self) -> str:
        """What an error about Y begins with."""
        return f"{self.Y.file.filename}: {self.Y.name}: "

    def share(self, comm: Comm) -> Share:
        """Return this rank's rows."""
        return share(self.n, comm.rank, comm.size)

    def rows(self, share: Share, stream: bool, missing: bool = False) -> tuple[Columns | None, Columns]:
        """Return these rows of X and Y, checked; to `stream` them, the file must stay open."""
        if not stream:
            return None if self.X is None else read_rows(self.X, *share), read_rows(self.Y, *share, missing)
        sets = [each for each in (self.X, self.Y) if each is not None]
        step = block_rows(chunk_rows(self.n), sum(each.shape[1] for each in sets))
        streams = [Stream(each, share, step) for each in sets]
        for each in streams:
            each.check()
        return (streams[0] if self.X is not None else None), streams[-1]


def find(file: h5py.File, y_name: str, x_name: str | None) -> DataSets:
    """Return the datasets Y (n, d) and, where x_name is given, X (n, q)."""
    Y = dataset(file, y_name, 2, "a data file has /Y (n, d), and /X (n, q) for regression; `x` and `y` name others")
    sets = DataSets(Y, None)
    if not Y.size:
        raise InputError(f"{sets.where}has shape {Y.shape}: there must be at least one row and one column")
    if x_name is None:
        return sets
    X = dataset(file, x_name, 2, "regression needs inputs /X (n, q); `x` names another dataset")
    if X.shape[0] != Y.shape[0]:
        counts = f"{X.name} has {X.shape[0]} rows, {Y.name} has {Y.shape[0]}"
        raise InputError(f"{file.filename}: {counts}: they must have as many")
    return sets._replace(X=X)
