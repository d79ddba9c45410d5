"""The first parameters of a fit: latent points, inducing points, lengthscales, variance and noise."""

from typing import Any

import numpy as np

from mpigp.data.datasets import Columns
from mpigp.errors import InputError
from mpigp.files.model_file import open_model
from mpigp.fit.options import Options
from mpigp.fit.start import inducing
from mpigp.fit.start.pca import pca, random_latent
from mpigp.fit.start.standardize import standardization
from mpigp.gp.parameters import Globals, Standardization
from mpigp.gp.statistics import model_of
from mpigp.kernels.composition import Parameter
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Floats

SIGNAL_TO_NOISE = 100.0
LATENT_VARIANCE = 0.1
REACH = 4.0  # lengthscales from the middle of an input to its farthest row


def initialize(X: DistributedRows | None, Y: DistributedRows, options: Options, seed: int,
               x_scale: Floats | None = None) -> tuple[Globals, Columns, Floats | None]:  # fmt: skip
    """Return the first globals, and this rank's mu and S (rows, q), from standardized rows. Collective.

    X : (n, q); mu is X, and S None. Or None for a GPLVM: mu and S come by PCA, at random, or from a model file
    """
    if X is not None:
        return first_globals(X, Y, options, seed, x_scale), X.local, None
    q, init = options.latent, options.init
    assert q is not None
    if init in ("pca", "random"):
        mu = np.ascontiguousarray(pca(Y, q) if init == "pca" else random_latent(Y.n, Y.share, q, seed))
        S = np.full(mu.shape, LATENT_VARIANCE)
    else:
        with raise_on_all_ranks(Y.comm), open_model(init, n=Y.n, q=q) as model:
            mu, S = model.latent(*Y.share)
    return first_globals(Y.with_local(mu), Y, options, seed), mu, S


def first_globals(X: DistributedRows, Y: DistributedRows, options: Options, seed: int,
                  x_scale: Floats | None = None) -> Globals:  # fmt: skip
    """Return the first globals, of inputs or latent means X (n, q) and outputs Y (n, d).

    x_scale : (q,), by which the inputs were divided, if they were

    Lengthscales come from the spread of the inputs: one standard deviation for latent points, √q of them for the inputs
    of regression, whose distances grow with their number; but then no row is more than REACH lengthscales from the
    middle, in any input: from farther away no inducing point is seen, and α has no gradient (an input that is nearly
    constant, with a few outliers). The variance is that of the outputs, and the noise a hundredth of it.
    """
    units = standardization(X, "scale")[0]
    with np.errstate(all="ignore"):
        alpha = 1 / (units.scale**2 * (X.columns if options.model == "regression" else 1))
        if options.model == "regression":
            low, high = X.extremes()
            alpha = np.minimum(alpha, (REACH / np.maximum(units.mean - low, high - units.mean)) ** 2)
        variance = float(np.mean(standardization(Y, "scale")[0].scale ** 2))
        beta = np.divide(SIGNAL_TO_NOISE, variance)
    if not np.isfinite([*alpha, variance, beta]).all():
        raise InputError("standardize: the columns are too large or too small to be squared: choose scale")
    backend = model_of(options.model, options.kernel).backend
    if backend.composed:
        low, high = X.extremes()
        parameters = backend.named_parameters(X.columns)
        alpha, variance = first_parameters(parameters, alpha, variance, units, high - low, x_scale), 1.0
    if options.placement == "greedy":
        Z = inducing.greedy(X, options.inducing, backend, alpha, seed)
    elif options.placement == "kmeans":
        Z = inducing.kmeans(X, options.inducing, seed)
    else:
        Z = inducing.random_rows(X, options.inducing, seed)
    return Globals(np.ascontiguousarray(Z), variance, alpha, float(beta))


def first_parameters(parameters: list[Parameter], alpha: Floats, variance: float, units: Standardization,
                     extent: Floats, x_scale: Floats | None) -> Floats:  # fmt: skip
    """Return the first values of the parameters of a composed kernel.

    alpha : (q,), weights of distances.   units, extent : of the inputs.   x_scale : (q,), of their standardization

    All terms have the same variance at the start; in a linear one it is divided among its columns. A period that is not
    given is a quarter of the extent of its column. Where an earlier term has a part of the same kind on the same
    column, the lengthscale is a third of that, since parts that start alike stay alike.
    """
    terms = 1 + max(each.term for each in parameters)
    squares = units.scale**2 + units.mean**2
    values = []
    for place, (term, part, kind, name, column, start) in enumerate(parameters):
        value: Any = 1.0  # a shape, or the alpha of a periodic part
        before = [each for each in parameters[:place] if each.kind == kind and each.name == name]
        if name == "variance":
            value = variance / terms
        elif name == "period" and start is not None:
            value = start / (1.0 if x_scale is None else x_scale[column])
        elif name == "period":
            value = extent[column] / 4 or 1.0
        elif kind == "linear":
            own = sum(each.part == part for each in parameters)
            first = not any(each.term == term and each.part != part for each in before)
            value = (variance / terms if first else 1.0) / own / squares[column]
        elif name == "alpha" and kind != "periodic":
            alike = sum(each.column == column and each.term != term for each in before)
            value = alpha[column] * 9.0 ** min(alike, 3)
        values.append(float(value))
    return np.array(values)
