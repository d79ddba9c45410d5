"""Where a fit starts: latent points, inducing points, lengthscales, and a signal-to-noise ratio of 100."""

from __future__ import annotations

import numpy as np

from mpigp.data.datasets import Columns
from mpigp.files.model_file import open_model
from mpigp.fit.options import Options
from mpigp.fit.start import inducing
from mpigp.fit.start.pca import pca, random_latent
from mpigp.fit.start.standardize import standardization
from mpigp.gp.parameters import Globals
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Floats

SIGNAL_TO_NOISE = 100.0
LATENT_VARIANCE = 0.1


def initialize(
    X: DistributedRows | None, Y: DistributedRows, options: Options, seed: int
) -> tuple[Globals, Columns, Floats | None]:
    """Return the first globals, and this rank's mu and S (rows, q), from standardized rows. Collective.

    X : (n, q), or None for a GPLVM, whose latent points are found here; in regression mu is X, and S None
    """
    if X is not None:
        return first_globals(X, Y, options, seed), X.local, None
    mu, S = latent(Y, options, seed)
    return first_globals(Y.with_local(mu), Y, options, seed), mu, S


def latent(Y: DistributedRows, options: Options, seed: int) -> tuple[Floats, Floats]:
    """Return the first mu and S (rows, q) of the outputs Y (n, d): by `pca`, `random`, or those of a model file."""
    q, init = options.latent, options.init
    assert q is not None
    if init == "pca":
        mu = pca(Y, q)
    elif init == "random":
        mu = random_latent(Y.n, Y.share, q, seed)
    else:
        with raise_on_all_ranks(Y.comm), open_model(init, n=Y.n, q=q) as model:
            return model.latent(*Y.share)
    return np.ascontiguousarray(mu), np.full(mu.shape, LATENT_VARIANCE)


def first_globals(X: DistributedRows, Y: DistributedRows, options: Options, seed: int) -> Globals:
    """Return the first globals, of inputs or latent means X (n, q) and outputs Y (n, d).

    Lengthscales come from the spread of the inputs: one standard deviation for latent points, √q of them for the inputs
    of regression, whose distances grow with their number. The variance is that of the outputs, and the noise a
    hundredth of it.
    """
    spread = standardization(X, "scale")[0].scale
    alpha = 1 / (spread**2 * (X.columns if options.model == "regression" else 1))
    variance = float(np.mean(standardization(Y, "scale")[0].scale ** 2))
    if options.placement == "greedy":
        Z = inducing.greedy(X, options.inducing, alpha, seed)
    elif options.placement == "kmeans":
        Z = inducing.kmeans(X, options.inducing, seed)
    else:
        Z = inducing.random_rows(X, options.inducing, seed)
    return Globals(np.ascontiguousarray(Z), variance, alpha, SIGNAL_TO_NOISE / variance)
