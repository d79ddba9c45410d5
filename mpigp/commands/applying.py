"""A model applied to the rows of all ranks: the seconds that takes, and results that are finite."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mpigp.errors import InputError
from mpigp.files.model_file import FITTED
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.types import Comm, Floats


def timed(comm: Comm, method: Callable, *arguments: Any) -> tuple[Any, float]:
    """Return what a method returns, and the seconds from its beginning on all ranks to its end on all."""
    comm.Barrier()
    start = time.perf_counter()
    with np.errstate(all="ignore"):  # `check_finite` is next
        result = method(*arguments)
    comm.Barrier()
    return result, time.perf_counter() - start


def check_finite(comm: Comm, model: str, results: Iterable[Floats]) -> None:
    """Refuse a model of which numbers come that are not finite, on any rank."""
    with raise_on_all_ranks(comm):
        if not all(np.isfinite(values).all() for values in results):
            raise InputError(f"{model}: its predictions are not finite: {FITTED}")
