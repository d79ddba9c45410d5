"""What the experiments of regression share: rows of one output, and methods whose variance is of rows held out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpigp.data.datasets import find
from mpigp.data.hdf5 import read_rows, reading
from mpigp.errors import InputError
from mpigp.types import Floats, Integers

HOLDS = "inputs /X (n, q) and one output /Y (n, 1)"
HELD_OUT = 10  # one of so many training rows, to take the variance of a method's errors from
SMALLEST = 20  # training rows that make sense


class Rows(NamedTuple):
    """X (n, q) and Y (n,)."""

    X: Floats
    Y: Floats

    def part(self, start: int, stop: int) -> Rows:
        """Return these rows, by their places."""
        return Rows(self.X[start:stop], self.Y[start:stop])

    def take(self, numbers: Integers) -> Rows:
        """Return the rows of these numbers, in this order."""
        return Rows(self.X[numbers], self.Y[numbers])


def read(path: str, y_name: str) -> Rows:
    """Return the rows of a file, in its order."""
    with reading(path) as file:
        sets = find(file, y_name, "X")
        assert sets.X is not None
        if sets.Y.shape[1] != 1:
            raise InputError(f"{path}: {sets.Y.name}: has {sets.Y.shape[1]} columns: the file must hold {HOLDS}")
        return Rows(read_rows(sets.X, 0, sets.n), read_rows(sets.Y, 0, sets.n)[:, 0])


def beside(make: Callable[[], Any], training: Rows, X_new: Floats,
           clock: Callable[[], float] = time.perf_counter) -> tuple[Floats, float, float]:  # fmt: skip
    """Return the predictions (n,) of a regressor of scikit-learn, the variance of its errors at rows held out, and the
    seconds by this clock that it took to learn all.
    """
    count = len(training.Y) // HELD_OUT
    held, learned = training.part(0, count), training.part(count, len(training.Y))
    variance = float(np.mean((make().fit(*learned).predict(held.X) - held.Y) ** 2))
    began = clock()
    regressor = make().fit(*training)
    seconds = clock() - began
    return np.asarray(regressor.predict(X_new), float), variance, seconds
