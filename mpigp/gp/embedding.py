"""q(x) of new rows of a GPLVM: each row's own bound given the learned q(u), maximized for all rows side by side.

With the entries y_j that a row has, w and M those of the posterior (mpigp.gp.posterior) and M of the output's group,

    F_i = Σ_j [ ½ log β/2π − β/2 (y_j² − 2 y_j w_jᵀψ1 + w_jᵀψ2w_j + σ_f² (1 − tr M ψ2)) ] − KL(q(x) ‖ p(x))

A missing entry takes no part. A row that has none keeps the prior.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpigp import native
from mpigp.gp.batch_lbfgs import minimize
from mpigp.gp.posterior import Extra, Posterior, Prediction
from mpigp.kernels.backend import RowBounds
from mpigp.kernels.latent_backend import LatentBackend
from mpigp.numerics.threads import Workers
from mpigp.types import Floats, Integers

CANDIDATES = 8192  # training rows, evenly spaced, that starts are sought among
STARTS = 4  # of them, that are followed for TRIAL rounds; the best is followed to its maximum
TRIAL = 6
BATCH = 512  # rows that are worked on together
ROUNDS = 500
TOLERANCE = 1e-7


class Embedding(NamedTuple):
    """q(x) of n rows: mu (n, q) and S (n, q); and the bound (n,) of each row, in the model's units."""

    mu: Floats
    S: Floats
    bound: Floats


class Candidates(NamedTuple):
    """q(x) of training rows to start from: mu and S (k, q)."""

    mu: Floats
    S: Floats


def candidates(mu: Floats, S: Floats) -> Candidates:
    """Return evenly spaced rows of mu and S (n, q), arrays or datasets."""
    step = max(1, -(-len(mu) // CANDIDATES))
    return Candidates(*(np.ascontiguousarray(values[::step], np.float64) for values in (mu, S)))


def embed(posterior: Posterior, candidates: Candidates, Y: Floats, threads: int = 1) -> Embedding:
    """Return q(x) of rows Y (n, d) in the data's units; NaN entries are missing."""
    n, q = len(Y), posterior.q
    mu, S, bound = np.zeros((n, q)), np.ones((n, q)), np.zeros(n)
    problem = _Problem(posterior, candidates, threads)
    for first in range(0, n, BATCH * threads):
        Y_batch = posterior.outputs(Y[first : first + BATCH * threads])
        there = np.isfinite(Y_batch)
        whole, some = there.all(axis=1), there.any(axis=1)
        for chosen in (np.flatnonzero(whole), np.flatnonzero(some & ~whole)):
            if len(chosen):
                rows = first + chosen
                mu[rows], S[rows], bound[rows] = problem.solve(Y_batch[chosen])
    return Embedding(mu, S, bound)


def reconstruct(posterior: Posterior, candidates: Candidates, Y: Floats, threads: int = 1) -> Prediction:
    """Return the prediction of all outputs of rows Y (n, d), in the data's units; NaN entries are missing."""
    embedding = embed(posterior, candidates, Y, threads)
    return posterior.moments(embedding.mu, embedding.S, threads)


class _Problem:
    """The bounds of rows given a posterior, and candidates to start from."""

    def __init__(self, posterior: Posterior, candidates: Candidates, threads: int) -> None:
        self.posterior, self.candidates, d = posterior, candidates, posterior.d
        m, q, groups = *posterior.Z.shape, len(posterior.factors)
        by_output = -0.25 * posterior.beta * posterior.quadratics()
        by_output[d:] *= -posterior.prior_variance
        self.weights = np.ascontiguousarray(by_output.T)  # (pairs, d + groups)
        self.members = (posterior.group[:, None] == np.arange(groups)).astype(np.float64)  # (d, groups)
        counts = np.concatenate([np.ones(d), self.members.sum(axis=0)])
        self.whole_weights = np.ascontiguousarray((self.weights @ counts)[:, None])
        self.psi1_weights = posterior.beta * posterior.weights
        self.workers = Workers(threads, posterior.backend.workspace(m, q, d, d + groups))

    def solve(self, Y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return mu, S and the bound of rows Y (n, d) in the model's units, with NaN where an entry is missing.

        Either all rows miss an entry, or none does.
        """
        q, beta = self.posterior.q, self.posterior.beta
        there = np.isfinite(Y)
        observed = None if there.all() else np.hstack([there, there @ self.members])
        Y = np.where(there, Y, 0.0)
        each = 0.5 * math.log(beta / (2 * math.pi)) - 0.5 * beta * self.posterior.prior_variance
        constant = each * there.sum(axis=1) - 0.5 * beta * (Y * Y).sum(axis=1)

        def variances(logarithms: Floats) -> Floats:
            return np.exp(np.clip(logarithms, -600.0, 600.0))

        def objective(point: Floats, rows: Integers) -> tuple[Floats, Floats]:
            mu, S = np.ascontiguousarray(point[:, :q]), variances(point[:, q:])
            values, by_mu, by_S = self.bounds(mu, S, Y[rows], None if observed is None else observed[rows])
            return -(values + constant[rows]), -np.hstack([by_mu, S * by_S])

        mu, S = self._starts(Y, observed)
        # S is the inverse of the bound's curvature by mu, and that by log S is one half.
        units = np.concatenate([np.sqrt(S), np.full(S.shape, math.sqrt(2.0))], axis=2)
        start = np.concatenate([mu, np.log(S)], axis=2)
        best, value = minimize(objective, start, units, TRIAL, ROUNDS, TOLERANCE)
        return best[:, :q], variances(best[:, q:]), -value

    def _starts(self, Y: Floats, observed: Floats | None) -> tuple[Floats, Floats]:
        """Return mu and S (STARTS, n, q): those candidates at which the bounds of rows Y (n, d) are best."""
        # By products whose bits do not depend on how many rows are here.
        row = [Y, np.ones((len(Y), 1))] + ([] if observed is None else [observed])
        at = self._whole_candidates if observed is None else self._partial_candidates
        best = native.largest_dots(np.hstack(row), at, min(STARTS, len(at))).T
        return self.candidates.mu[best], self.candidates.S[best]

    @cached_property
    def _whole_candidates(self) -> Floats:
        """The coefficients (k, d + 1) of a row's entries and of 1 in its bound at k candidates, but for a constant."""
        psi1, fixed, psi2 = self._candidate_terms(self.whole_weights)
        return np.hstack([psi1, fixed + psi2])

    @cached_property
    def _partial_candidates(self) -> Floats:
        """The same for rows that miss entries, and the coefficients of the outputs and groups that are observed."""
        return np.hstack(self._candidate_terms(self.weights))

    def _candidate_terms(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the terms of rows' bounds at k candidates: of ψ1 for each output (k, d), of KL (k, 1), and of ψ2 for
        each column of weights (pairs, c): (k, c)."""
        (mu, S), p = self.candidates, self.posterior
        by_psi1, by_psi2 = np.empty((len(mu), p.d)), np.empty((len(mu), weights.shape[1]))
        arguments = self.psi1_weights, 2 * np.ascontiguousarray(weights.T), by_psi1, by_psi2
        p.run_loop(self.workers, p.backend.gplvm_moments, arguments, mu, S)
        if not p.backend.unit:  # of each output, if those are apart, else of all
            outputs, prior = self._prior_weights, p.backend.diagonal(mu, S, p.alpha) - 1
            by_psi2 += np.outer(prior, outputs if weights.shape[1] > 1 else [outputs.sum()])
        return by_psi1, -0.5 * (S + mu**2 - 1 - np.log(S)).sum(axis=1, keepdims=True), by_psi2

    @cached_property
    def _prior_weights(self) -> Floats:
        """The weights (d + groups,) of an output's ⟨k(x, x)⟩ − 1 in the bound: the constant has what 1 contributes."""
        groups = self.weights.shape[1] - self.posterior.d
        return np.append(np.full(self.posterior.d, -0.5 * self.posterior.beta * self.posterior.prior_variance),
                         np.zeros(groups))  # fmt: skip

    def bounds(self, mu: Floats, S: Floats, Y: Floats, observed: Floats | None) -> RowBounds:
        """Return F_i but for its constant, and its derivatives by mu and S."""
        out, p = RowBounds(np.empty(len(mu)), np.empty_like(mu), np.empty_like(mu)), self.posterior
        arguments = self.whole_weights if observed is None else self.weights, self.psi1_weights, out
        p.run_loop(self.workers, p.backend.gplvm_bounds, arguments, mu, S, Extra(Y, observed))
        if isinstance(p.backend, LatentBackend):
            by_prior = self._prior_weights.sum() if observed is None else observed @ self._prior_weights
            weights = np.broadcast_to(by_prior, len(mu))
            _, by_mu, by_S = p.backend.prior_gradient(p.points, mu, S, weights)
            values = weights * (p.backend.prior(p.points, mu, S) - 1)
            return RowBounds(out.values + values, out.by_mu + by_mu, out.by_S + by_S)
        return out
