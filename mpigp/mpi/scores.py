"""Scores of predictions, where the outputs are known."""

import numpy as np

from mpigp.gp.posterior import Prediction
from mpigp.mpi.communicator import sum_over_ranks
from mpigp.numerics.reproducible_sum import from_superaccumulators, to_superaccumulators
from mpigp.types import Comm, Floats


def scores(comm: Comm, n: int, prediction: Prediction, Y: Floats) -> dict[str, float]:
    """Return the root mean square error and the mean log density of a row, in nats, over the n rows of all ranks."""
    square = (Y - prediction.mean) ** 2
    variance = prediction.y_variance if prediction.y_variance.ndim > 1 else prediction.y_variance[:, None]
    density = -0.5 * (np.log(2 * np.pi * variance) + square / variance)
    sums = to_superaccumulators(np.stack([square.sum(axis=1), density.sum(axis=1)], axis=1))
    sum_over_ranks(comm, sums)
    squares, densities = from_superaccumulators(sums)
    return {"rmse": float(np.sqrt(squares / (n * Y.shape[1]))), "log_density": float(densities / n)}
