"""The density of rows under a learned GPLVM, as its predictions have it: by samples around its mode.

    p(y) = ∫ N(y; m(x), v(x) + 1/β) N(x; 0, I) dx

with the mean m and the variance v of the function at x. The bound that `embed` finds is below log p(y), and the further
the larger v is: of an output with a residual r it takes β(r² + v)/2, and the density βr²/2(1 + βv) + log(1 + βv)/2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from mpigp.gp.batch_lbfgs import minimize
from mpigp.gp.embedding import Embedding
from mpigp.gp.posterior import Posterior
from mpigp.types import Floats

ROUNDS, TOLERANCE = 60, 1e-6  # of the search for the mode
STEP = 1e-4  # of the differences that tell the curvature there
SAMPLES = 20


def log_densities(posterior: Posterior, found: Embedding, Y: Floats, rng: np.random.Generator) -> Floats:
    """Return estimates of log p(y) of rows Y (n, d) in the model's units, whose q(x) were found.

    From the mean of q(x) to the mode of p(y|x) p(x), and there samples by its curvature. The model is of the RBF
    kernel, and was learned from whole rows.
    """
    with threadpool_limits(1):
        mode, _ = minimize(
            lambda x, rows: joint(posterior, Y[rows], x), found.mu[None], np.sqrt(found.S)[None], 0, ROUNDS, TOLERANCE
        )
        precisions, axes = curvature(posterior, Y, mode)
        weights = np.empty((SAMPLES, len(Y)))
        for sample in weights:
            drawn = rng.standard_normal(mode.shape)
            value, _ = joint(posterior, Y, mode + np.einsum("nij,nj->ni", axes, drawn / np.sqrt(precisions)))
            sample[:] = 0.5 * (drawn**2 + np.log(2 * math.pi / precisions)).sum(axis=1) - value
    return np.asarray(logsumexp(weights, axis=0)) - math.log(SAMPLES)


def curvature(posterior: Posterior, Y: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues (n, q) of the second derivatives of `joint` at x (n, q), and their vectors (n, q, q).

    An eigenvalue is taken as 1, the prior's, where it is less, so that samples go no further than the prior's would.
    """
    second = np.empty((*x.shape, x.shape[1]))
    for place in range(x.shape[1]):
        step = STEP * np.eye(x.shape[1])[place]
        second[:, place] = (joint(posterior, Y, x + step)[1] - joint(posterior, Y, x - step)[1]) / (2 * STEP)
    values, axes = np.linalg.eigh(0.5 * (second + second.transpose(0, 2, 1)))
    return np.maximum(values, 1.0), axes


def joint(posterior: Posterior, Y: Floats, x: Floats) -> tuple[Floats, Floats]:
    """Return −log p(y|x) p(x) (n,) of rows Y (n, d) at x (n, q), in the model's units, and its gradient by x."""
    d, (R,), W, Z, alpha = Y.shape[1], posterior.factors, posterior.weights, posterior.Z, posterior.alpha
    k = posterior.backend.covariance(Z, x, alpha).T
    Rk = k @ R.T
    v = posterior.variance * np.maximum(1 - (Rk * Rk).sum(axis=1), 0.0) + 1 / posterior.beta
    residuals = Y - k @ W
    square = (residuals * residuals).sum(axis=1)
    value = 0.5 * (d * np.log(2 * math.pi * v) + square / v + (x * x + math.log(2 * math.pi)).sum(axis=1))
    by_v = 0.5 * (d / v - square / v**2)
    by_k = -(residuals / v[:, None]) @ W.T - 2 * posterior.variance * by_v[:, None] * (Rk @ R)
    g = by_k * k
    return value, x - alpha * (x * g.sum(axis=1, keepdims=True) - g @ Z)
