"""Splits of a file's rows into those to learn from and those to predict, standardized by the first."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from experiments.regression import Rows
from experiments.timed_training import Problem
from mpigp.data.hdf5 import dataset, h5py_errors, reading
from mpigp.errors import InputError
from mpigp.fit.options import Options
from mpigp.fit.start.initialize import first_globals
from mpigp.fit.start.standardize import standardization
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Integers


def read_mask(path: str, n: int) -> Integers | None:
    """Return /test_mask (n, splits) of a file, 1 for rows to predict; None where it has none."""
    with reading(path) as file:
        if "test_mask" not in file:
            return None
        item = dataset(file, "test_mask", 2, "a mask is (n, splits), 1 for rows to predict and 0 for the others")
        with h5py_errors(f"{path}: /test_mask"):
            mask = item[()]
    if len(mask) != n or not np.isin(mask, (0, 1)).all():
        raise InputError(f"{path}: /test_mask: is no mask of {n} rows: it must hold 0 and 1, a row for each of /Y")
    return mask.astype(np.int64)


def held_out(n: int, mask: Integers | None, test: float, seed: int) -> Integers:
    """Return 1 (n,) for the rows that are left to be predicted, and 0 for the others."""
    if mask is not None:
        return mask[:, seed]
    return (np.random.default_rng(seed).permutation(n) < round(test * n)).astype(np.int64)


class Split(NamedTuple):
    """Rows to learn from and rows to predict, standardized by the first; scale : of Y."""

    training: Rows
    test: Rows
    scale: float

    def start(self, m: int, seed: int) -> Problem:
        """Return the regression with m inducing points, and the parameters at which `fit` starts."""
        from mpi4py import MPI

        X, Y = self.training.X, self.training.Y[:, None]
        inputs, outputs = (DistributedRows(MPI.COMM_SELF, len(X), values) for values in (X, Y))
        start = first_globals(inputs, outputs, Options(model="regression", inducing=m), seed)
        return Problem(X, Y, self.test.X, self.test.Y[:, None], start.Z, start.alpha, start.variance, start.beta)

    def in_units(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a record with its scores in the data's units."""
        nlpd = record["nlpd"] + math.log(self.scale)
        return {**record, "rmse": record["rmse"] * self.scale, "nlpd": nlpd}


def split(rows: Rows, test: Integers, seed: int) -> Split:
    """Return the rows in the seed's order, those that are 1 in `test` (n,) to be predicted."""
    from mpi4py import MPI

    order = np.random.default_rng(seed).permutation(len(rows.Y))
    training, new = (rows.take(order[test[order] == which]) for which in (0, 1))
    units = [
        standardization(DistributedRows(MPI.COMM_SELF, len(training.Y), values), "scale")[0]
        for values in (training.X, training.Y[:, None])
    ]
    for part in (training, new):
        units[0].apply(part.X)
        units[1].apply(part.Y[:, None])
    return Split(training, new, float(units[1].scale[0]))
