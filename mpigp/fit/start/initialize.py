"""Where a fit starts: latent points, inducing points, lengthscales, and a signal-to-noise ratio of 100."""

from __future__ import annotations

import numpy as np

from mpigp.chunks import Share
from mpigp.data.streams import Columns
from mpigp.errors import InputError
from mpigp.files.model_file import open_model
from mpigp.fit.start import inducing
from mpigp.fit.start.pca import pca, random_latent
from mpigp.fit.start.standardize import standardization
from mpigp.gp.parameters import Globals
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.types import Comm, Floats

SIGNAL_TO_NOISE = 100.0
LATENT_VARIANCE = 0.1
PLACEMENTS = ("random", "greedy", "kmeans")


def latent(comm: Comm, n: int, share: Share, Y: Columns, q: int, init: str, seed: int) -> tuple[Floats, Floats]:
    """Return the first mu and S (rows, q): by `pca`, `random`, or those of a model file."""
    if init == "pca":
        mu = pca(comm, n, Y, q)
    elif init == "random":
        mu = random_latent(n, share.start, share.stop, q, seed)
    else:
        with raise_on_all_ranks(comm), open_model(init, n=n, q=q) as file:
            return file.latent(share.start, share.stop)
    return np.ascontiguousarray(mu), np.full(mu.shape, LATENT_VARIANCE)


def place(comm: Comm, n: int, start: int, X: Columns, m: int, how: str, alpha: Floats, seed: int) -> Floats:
    """Return the inducing points (m, q), among or between the rows X of all ranks."""
    if m > n:
        raise InputError(f"--inducing: is {m}, but there are {n} rows: give at most as many inducing points as rows")
    if how == "greedy":
        return inducing.greedy(comm, n, start, X, m, alpha, seed)
    if how == "kmeans":
        return inducing.kmeans(comm, n, start, X, m, seed)
    return inducing.random_rows(comm, n, start, X, m, seed)


def start_globals(
    comm: Comm, n: int, start: int, mu: Columns, Y: Columns, m: int, placement: str, long: bool, seed: int
) -> Globals:
    """Return the first globals.

    Lengthscales come from the spread of the inputs: one standard deviation for latent points, √q of them for inputs of
    regression (`long`), whose distances grow with their number. The variance is that of the outputs, and the noise a
    hundredth of it.
    """
    q = mu.shape[1]
    spread = standardization(comm, n, mu, "scale")[0].scale
    alpha = 1 / (spread**2 * (q if long else 1))
    variance = float(np.mean(standardization(comm, n, Y, "scale")[0].scale ** 2))
    Z = place(comm, n, start, mu, m, placement, alpha, seed)
    return Globals(np.ascontiguousarray(Z), variance, alpha, SIGNAL_TO_NOISE / variance)
