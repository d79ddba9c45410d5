"""Probabilistic PCA (Tipping and Bishop 1999) of data with missing entries, learnt by EM: what a GPLVM has to beat.

    y = W x + mean + noise        x ~ N(0, I) (q)        noise ~ N(0, noise I)

Entries that are NaN are missing: each row's likelihood is that of its observed entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BLOCK = 256  # rows
TOLERANCE = 1e-7  # relative change of the log likelihood, per step, to stop at


class PPCA(NamedTuple):
    """W (d, q), mean (d,), and the noise's variance."""

    W: np.ndarray
    mean: np.ndarray
    noise: float


class Latent(NamedTuple):
    """q(x_i) = N(x (n, q), S (n, q, q)), and the log likelihood of the rows' observed entries (n,)."""

    x: np.ndarray
    S: np.ndarray
    log_likelihood: np.ndarray


def closed_form(Y: np.ndarray, q: int) -> PPCA:
    """Return the maximum-likelihood solution for complete rows (n, d), with q < d."""
    n, d = Y.shape
    mean = Y.mean(axis=0)
    values, vectors = np.linalg.eigh((Y - mean).T @ (Y - mean) / n)
    noise = float(values[: d - q].mean())
    return PPCA(vectors[:, d - q :] * np.sqrt(values[d - q :] - noise), mean, noise)


def learn(Y: np.ndarray, q: int, start: PPCA | None = None, steps: int = 1000) -> PPCA:
    """Return the solution for rows (n, d) with missing entries, by EM.

    It starts from the closed form of the rows with column means in the place of what is missing, which is the solution
    where nothing is; or from `start`.
    """
    observed = ~np.isnan(Y)
    filled = np.where(observed, Y, 0.0)
    if start is None:
        start = closed_form(np.where(observed, Y, np.nanmean(Y, axis=0)), q)
        steps = 0 if observed.all() else steps
    model, before = start, -np.inf
    for _ in range(steps):
        latent = infer(model, Y)
        total = float(latent.log_likelihood.sum())
        if total - before <= TOLERANCE * abs(total):
            break
        before, model = total, _maximise(latent, filled, observed, q)
    return model


def _maximise(latent: Latent, filled: np.ndarray, observed: np.ndarray, q: int) -> PPCA:
    """The M step: every column is a linear regression on (x, 1), over the rows that have it.

    The latent points get a mean and a covariance of their own, which W and the mean then take over: without these (Liu,
    Rubin and Wu 1998, PX-EM) a step moves the mean by a share noise / variance of its way.
    """
    n, d = filled.shape
    x = np.column_stack([latent.x, np.ones(n)])
    xx = x[:, :, None] * x[:, None, :]
    xx[:, :q, :q] += latent.S
    gram = (observed.T @ xx.reshape(n, -1)).reshape(d, q + 1, q + 1)
    W = np.linalg.solve(gram, (filled.T @ x)[:, :, None])[:, :, 0]
    # Σ ⟨(y − W x)²⟩ = Σ y² − 2 y W x + W ⟨xxᵀ⟩ W, whose last two terms are −Σ y W x at the solution
    noise = float(np.vdot(filled, filled - observed * (x @ W.T))) / observed.sum()
    centre = latent.x.mean(axis=0)
    spread = np.linalg.cholesky(latent.S.mean(axis=0) + np.cov(latent.x.T, bias=True).reshape(q, q))
    return PPCA(W[:, :q] @ spread, W[:, q] + W[:, :q] @ centre, noise)


def infer(model: PPCA, Y: np.ndarray) -> Latent:
    """The E step: M_i = W_oᵀ W_o + noise I over a row's observed entries o; x_i = M_i⁻¹ W_oᵀ (y_o − mean_o)."""
    W, mean, noise = model
    n, q = len(Y), W.shape[1]
    observed = ~np.isnan(Y)
    rest = np.where(observed, Y - mean, 0.0)
    WW = (W[:, :, None] * W[:, None, :]).reshape(len(W), -1)
    M = (observed @ WW).reshape(n, q, q) + noise * np.eye(q)
    projected = rest @ W
    x = np.linalg.solve(M, projected[:, :, None])[:, :, 0]
    counts = observed.sum(axis=1)
    # log |W_o W_oᵀ + noise I| and yᵀ (W_o W_oᵀ + noise I)⁻¹ y, by the q × q matrix
    log_determinant = np.linalg.slogdet(M)[1] + (counts - q) * np.log(noise)
    square = ((rest**2).sum(axis=1) - (projected * x).sum(axis=1)) / noise
    log_likelihood = -0.5 * (counts * np.log(2 * np.pi) + log_determinant + square)
    return Latent(x, noise * np.linalg.inv(M), log_likelihood)


def reconstruct(model: PPCA, Y: np.ndarray) -> np.ndarray:
    """Return the expectation (n, d) of all entries, given those observed."""
    blocks = np.array_split(Y, max(1, len(Y) // BLOCK))  # each row takes q² numbers
    return np.concatenate([infer(model, block).x for block in blocks]) @ model.W.T + model.mean


def rmse(found: np.ndarray, true: np.ndarray, where: np.ndarray) -> float:
    """Return the root mean square error over the entries `where`."""
    return float(np.sqrt(np.mean((found - true)[where] ** 2)))


def choose(train: np.ndarray, given: np.ndarray, true: np.ndarray, sizes: Sequence[int]) -> dict[int, float]:
    """Return, for each q, the error at what is missing in rows `given` but known in `true`, learning from `train`."""
    hidden = np.isnan(given) & ~np.isnan(true)
    return {q: rmse(reconstruct(learn(train, q), given), true, hidden) for q in sizes}
