"""The driver of a fit: an attempt after a failure reads the rows again, and they must be the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpigp.data.datasets import DataSets, find
from mpigp.errors import InputError
from mpigp.fit.driver import Driver
from mpigp.fit.options import Options, RunOptions
from mpigp.types import Comm


def test_rows_that_differ_at_the_next_attempt_are_refused(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file["X"], file["Y"] = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))

    @contextmanager
    def source(comm: Comm) -> Iterator[DataSets]:
        with h5py.File(path) as file:
            yield find(file, "Y", "X")

    driver = Driver(MPI.COMM_SELF, source, Options(model="regression", inducing=4, max_iter=3), RunOptions())
    driver.run()
    driver.run()
    with h5py.File(path, "r+") as file:
        file["X"][3, 1] = 0.0
    with pytest.raises(InputError, match=r"data.h5: /Y: has changed since this run began to read it"):
        driver.run()
