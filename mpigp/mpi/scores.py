"""Scores of predictions, where the outputs are known."""

from __future__ import annotations

import numpy as np

from mpigp.gp.posterior import Prediction
from mpigp.numerics.reproducible_sum import from_superaccumulators, to_superaccumulators
from mpigp.types import Comm, Floats


def scores(comm: Comm, n: int, prediction: Prediction, Y: Floats) -> dict[str, float]:
    """Return the root mean square error and the mean log density of a row, in nats, over the rows of all ranks.

    n : rows of all ranks.   prediction, Y (rows, d) : of this rank's rows
    """
    from mpi4py import MPI

    square = (Y - prediction.mean) ** 2
    variance = prediction.y_variance if prediction.y_variance.ndim > 1 else prediction.y_variance[:, None]
    density = -0.5 * (np.log(2 * np.pi * variance) + square / variance)
    sums = to_superaccumulators(np.stack([square.sum(axis=1), density.sum(axis=1)], axis=1))
    comm.Allreduce(MPI.IN_PLACE, sums, op=MPI.SUM)
    squares, densities = from_superaccumulators(sums)
    return {"rmse": float(np.sqrt(squares / (n * Y.shape[1]))), "log_density": float(densities / n)}
