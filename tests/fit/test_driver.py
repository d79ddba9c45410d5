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
from mpigp.fit.driver import Driver, Source
from mpigp.fit.options import Options, RunOptions
from mpigp.types import Comm


def source(path: Path) -> Source:
    """Write 50 rows to a file, and return what opens them."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file["X"], file["Y"] = rng.normal(size=(50, 2)), rng.normal(size=(50, 1))

    @contextmanager
    def opened(comm: Comm) -> Iterator[DataSets]:
        with h5py.File(path) as file:
            yield find(file, "Y", "X")

    return opened


@pytest.mark.parametrize("name", ["data", "validation"])
def test_rows_that_differ_at_the_next_attempt_are_refused(tmp_path: Path, name: str) -> None:
    rows, held = (source(tmp_path / f"{each}.h5") for each in ("data", "validation"))
    options = Options(model="regression", inducing=4, max_iter=3, validate="validation.h5")
    driver = Driver(MPI.COMM_SELF, rows, options, RunOptions(), validation_source=held)
    driver.run()
    driver.run()
    with h5py.File(tmp_path / f"{name}.h5", "r+") as file:
        file["X"][3, 1] = 0.0
    with pytest.raises(InputError, match=rf"{name}.h5: /Y: has changed since this run began to read it"):
        driver.run()
