"""q(x) of new rows of a GPLVM: each row's own bound given the learned q(u), maximised for all rows side by side.

With the entries y_j that a row has, w and M those of the posterior (mpigp.posterior) and M of the output's group,

    F_i = Σ_j [ ½ log β/2π − β/2 (y_j² − 2 y_j w_jᵀψ1 + w_jᵀψ2w_j + σ_f² (1 − tr M ψ2)) ] − KL(q(x) ‖ p(x))

A missing entry takes no part. A row that has none keeps the prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.chunks import chunk_count, chunk_rows
from mpigp.errors import InputError
from mpigp.hdf5 import dataset
from mpigp.optimizers.many import minimise
from mpigp.posterior import REMEDY, Posterior, Prediction
from mpigp.workers import Workers

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

CANDIDATES = 8192  # training rows, evenly spaced, that starts are sought among
NEAREST = 8  # of them, whose bounds are compared
STARTS = 4  # of them, that are followed for TRIAL rounds; the best is followed to its maximum
TRIAL = 6
BATCH = 512  # rows that are worked on together: what they remember stays in the cache
ROUNDS = 500
TOLERANCE = 1e-6


class Embedding(NamedTuple):
    """q(x) of n rows: mu (n, q) and S (n, q); and the bound (n,) of each row, in the model's units."""

    mu: Floats
    S: Floats
    bound: Floats


class Candidates(NamedTuple):
    """Training rows to start from: mu and S (k, q), and the outputs (k, d) that the model gives them, in its units."""

    mu: Floats
    S: Floats
    outputs: Floats


def read_candidates(file: h5py.File, posterior: Posterior) -> Candidates:
    """Return evenly spaced training rows of a model file."""
    mu, S = (dataset(file, f"latent/{name}", 2, REMEDY) for name in ("mu", "S"))
    if mu.shape != S.shape or mu.shape[1] != posterior.q:
        raise InputError(f"{file.filename}: /latent/mu: does not fit /latent/S and /Z: {REMEDY}")
    step = max(1, -(-len(mu) // CANDIDATES))
    return candidates(posterior, mu[::step], S[::step])


def candidates(posterior: Posterior, mu: Floats, S: Floats) -> Candidates:
    """Return these training rows (k, q) as candidates."""
    return Candidates(mu, S, posterior.outputs(posterior.predict(mu).mean))


def embed(posterior: Posterior, candidates: Candidates, Y: Floats, threads: int = 1) -> Embedding:
    """Return q(x) of rows Y (n, d) in the data's units; NaN entries are missing."""
    n, q = len(Y), posterior.q
    mu, S, bound = np.zeros((n, q)), np.ones((n, q)), np.zeros(n)
    problem = _Problem(posterior, threads)
    for first in range(0, n, BATCH * threads):
        Y_batch = posterior.outputs(Y[first : first + BATCH * threads])
        there = np.isfinite(Y_batch)
        whole, some = there.all(axis=1), there.any(axis=1)
        for chosen in (np.flatnonzero(whole), np.flatnonzero(some & ~whole)):
            if len(chosen):
                rows = first + chosen
                mu[rows], S[rows], bound[rows] = problem.solve(candidates, Y_batch[chosen])
    return Embedding(mu, S, bound)


def reconstruct(posterior: Posterior, candidates: Candidates, Y: Floats, threads: int = 1) -> Prediction:
    """Return what is known of all outputs of rows Y (n, d), in the data's units; NaN entries are missing."""
    found = embed(posterior, candidates, Y, threads)
    return posterior.moments(found.mu, found.S, threads)


def _units(S: Floats) -> Floats:
    """Return units (n, 2q) of mu and log S in which the bound's curvature is about one: S is the inverse of that by mu,
    and that by log S is one half."""
    return np.hstack([np.sqrt(S), np.full(S.shape, math.sqrt(2.0))])


def _dots(left: Floats, right: Floats) -> Floats:
    """Return left (a, d) rightᵀ, right (b, d)."""
    return native.chunk_dots(left, right, left.shape[1])[0]


class _Problem:
    """The bounds of rows given a posterior."""

    def __init__(self, posterior: Posterior, threads: int) -> None:
        self.posterior, d = posterior, posterior.d
        m, q, groups = *posterior.Z.shape, len(posterior.factors)
        by_output = -0.25 * posterior.beta * posterior.quadratics()
        by_output[d:] *= -posterior.variance
        self.weights = np.ascontiguousarray(by_output.T)  # (pairs, d + groups)
        self.members = (posterior.group[:, None] == np.arange(groups)).astype(np.float64)  # (d, groups)
        counts = np.concatenate([np.ones(d), self.members.sum(axis=0)])
        self.whole_weights = np.ascontiguousarray((self.weights @ counts)[:, None])
        self.psi1_weights = posterior.beta * posterior.weights
        self.workers = Workers(threads, native.workspace(m, q, d, d + groups))

    def solve(self, candidates: Candidates, Y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return mu, S and the bound of rows Y (n, d) in the model's units, with NaN where an entry is missing.

        Either all rows miss an entry, or none does.
        """
        n, q, beta = len(Y), self.posterior.q, self.posterior.beta
        there = np.isfinite(Y)
        observed = None if there.all() else there.astype(np.float64)
        if observed is not None:
            observed = np.hstack([observed, observed @ self.members])
        Y = np.where(there, Y, 0.0)
        each = 0.5 * math.log(beta / (2 * math.pi)) - 0.5 * beta * self.posterior.variance
        constant = each * there.sum(axis=1) - 0.5 * beta * (Y * Y).sum(axis=1)

        def objective(point: Floats, rows: Rows, units: Floats) -> tuple[Floats, Floats]:
            point = point * units[rows]
            mu, S = np.ascontiguousarray(point[:, :q]), np.exp(np.clip(point[:, q:], -600.0, 600.0))
            values, by_mu, by_S = self.bounds(mu, S, Y[rows], None if observed is None else observed[rows])
            return -(values + constant[rows]), -np.hstack([by_mu, S * by_S]) * units[rows]

        best, value = np.empty((n, 2 * q)), np.full(n, np.inf)
        for mu, S in self._starts(candidates, Y, there, objective):
            units = _units(S)
            point, found = minimise(
                partial(objective, units=units), np.hstack([mu, np.log(S)]) / units, TRIAL, TOLERANCE
            )
            better = found < value
            best[better], value[better] = (point * units)[better], found[better]
        units = _units(np.exp(best[:, q:]))
        best, value = minimise(partial(objective, units=units), best / units, ROUNDS, TOLERANCE)
        best *= units
        return best[:, :q], np.exp(best[:, q:]), -value

    def _starts(
        self,
        candidates: Candidates,
        Y: Floats,
        there: NDArray[np.bool_],
        objective: Callable[..., tuple[Floats, Floats]],
    ) -> list[tuple[Floats, Floats]]:
        """Return STARTS times mu and S (n, q): of the training rows whose outputs are nearest in the entries that a row
        has, those with the best bounds."""
        outputs = candidates.outputs
        # But for Σy², the same for all; by products whose bits do not depend on how many rows are here.
        distance = _dots(there.astype(np.float64), outputs**2) - 2 * _dots(Y, outputs)
        count = min(NEAREST, len(outputs))
        nearest = np.argpartition(distance, count - 1, axis=1)[:, :count]
        nearest = np.take_along_axis(
            nearest, np.lexsort((nearest, np.take_along_axis(distance, nearest, axis=1)), axis=1), axis=1
        )
        rows, ones = np.arange(len(Y)), np.ones((len(Y), 2 * self.posterior.q))
        points = np.hstack([candidates.mu, np.log(candidates.S)])
        values = np.stack([objective(points[chosen], rows, ones)[0] for chosen in nearest.T])
        order = np.argsort(values, axis=0, kind="stable")[:STARTS]
        chosen = [nearest[rows, each] for each in order]
        return [(candidates.mu[each], candidates.S[each]) for each in chosen]

    def bounds(self, mu: Floats, S: Floats, Y: Floats, observed: Floats | None) -> tuple[Floats, Floats, Floats]:
        """Return F_i (n,) but for its constant, and its derivatives by mu and S (n, q)."""
        n = len(mu)
        values, by_mu, by_S = np.empty(n), np.empty_like(mu), np.empty_like(mu)
        weights = self.whole_weights if observed is None else self.weights
        rows = native.Rows(mu, S, Y, chunk_rows(n), chunk_count(n), observed)
        loops, points = self.posterior.loops, self.posterior.points

        def work(first: int, last: int, space: Floats) -> None:
            loops.gplvm_bounds(points, rows, first, last, space, weights, self.psi1_weights, by_mu, by_S, values)

        self.workers.share(work, chunk_count(n))
        return values, by_mu, by_S
