"""The loops of a kernel that states its formulas in NumPy: chunk by chunk, in shapes that the number of ranks does not
change.

The sums of the second round have no known limit: windows (mpigp.numerics.reproducible_sum) take them.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mpigp import native
from mpigp.chunks import SMALLEST
from mpigp.kernels.backend import Adjoints, RowBounds
from mpigp.kernels.base import Kernel, LatentKernel
from mpigp.kernels.single import SingleKernel
from mpigp.native import Kernel as Points
from mpigp.native import Rows
from mpigp.numerics.reproducible_sum import MOST, FixedPoint, Summation, Windows
from mpigp.numerics.threads import Part, Span
from mpigp.types import Floats

BLOCK = 2**16  # numbers of ψ2 that are made at a time


class _Block(NamedTuple):
    """Some rows of a chunk: where they are, mu (k, q), S (k, q) or None, Y (k, d), observed (k, groups) or None, and
    trace weights (k,) or None."""

    where: slice
    mu: Floats
    S: Floats | None
    Y: Floats
    observed: Floats | None
    trace_weights: Floats | None


def _cut(rows: Rows, start: int, stop: int, size: int) -> Iterator[_Block]:
    """Yield the rows [start, stop) in blocks of at most `size`."""
    for first in range(start, stop, size):
        where = slice(first, min(stop, first + size))
        some = rows.S, rows.observed, rows.trace_weights
        S, observed, trace_weights = (None if each is None else each[where] for each in some)
        yield _Block(where, rows.mu[where], S, rows.Y[where], observed, trace_weights)


def _blocks(rows: Rows, part: Part | Span, size: int | None = None) -> Iterator[_Block]:
    """Yield the rows of a part in blocks of `size`, a power of two that divides the chunks, or chunk by chunk."""
    return _cut(rows, part.first * rows.chunk, min(len(rows.Y), part.last * rows.chunk), size or rows.chunk)


def _block_rows(m: int) -> int:
    """Return the rows of a block of ψ2: a power of two, so that blocks end where chunks do, however these are cut."""
    rows = SMALLEST
    while rows > 1 and rows * m * m > BLOCK:
        rows //= 2
    return rows


def _add(summation: Summation, part: Part, *values: Floats) -> int:
    """Add values, one after the other, to the sums of a part; return how many overflowed."""
    return summation.add(part.accumulators, part.scale, np.concatenate([each.ravel() for each in values]))


def _divergence(mu: Floats, S: Floats) -> Floats:
    """Return KL(N(mu_i, S_i) ‖ N(0, I)) of each row (k,)."""
    return 0.5 * (S + mu * mu - np.log(S) - 1).sum(axis=1)


def _trace_terms(rows: Rows, where: slice, s: float, y: Floats) -> Floats:
    """Set the trace weights of rows from their y = k(x, x) − c (k,), and return the trace sums (2,): native/trace.h has
    formulas."""
    d = rows.outputs[where]
    x = np.maximum(s * y, 0.0)
    rows.trace_weights[where] = s * d * (x / (1 + x))
    values = np.where(x > 0, np.log1p(x) / (s or 1.0), y)
    return np.array([(d * values).sum(), (d * y / (1 + x)).sum()])


def _counts(block: _Block) -> Floats:
    """Return the weights (k, groups) of rows in the sums of ψ2, the trace weight last where they have one."""
    counts = np.ones((len(block.mu), 1)) if block.observed is None else block.observed
    return counts if block.trace_weights is None else np.column_stack([counts, block.trace_weights])


def _pair_weights(matrix: Floats, m: int) -> Floats:
    """Return symmetric weights (groups, m, m) from those of pairs (pairs, groups), each of which counts twice."""
    weights = np.stack([native.symmetric(np.ascontiguousarray(column), m) for column in matrix.T])
    weights[:, range(m), range(m)] *= 2
    return weights


def _row_weights(weights: Floats, block: _Block) -> Floats:
    """Return the weights (k, m, m) of each row's ψ2, from those of its groups (groups, m, m)."""
    if len(weights) == 1:
        return np.broadcast_to(weights[0], (len(block.mu), *weights[0].shape))
    return np.tensordot(_counts(block), weights, 1)


class NumpyBackend(SingleKernel):
    """The backend that calls a kernel's formulas."""

    rows_apart = False  # whether the bits of a row do not depend on the rows beside it
    factored = False
    statistics_summation: Summation = FixedPoint(1)
    gradient_summation: Summation = Windows()

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name, self.latent = kernel, name, isinstance(kernel, LatentKernel)

    def center(self, Z: Floats) -> Floats:
        return np.zeros(Z.shape[1])  # a kernel need not be stationary

    def gram(self, Z: Floats, center: Floats, alpha: Floats) -> Floats:
        return self.covariance(Z, Z, alpha)

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(self.kernel.covariance(Z, X, alpha))

    def gram_gradient(self, weights: Floats, points: Points) -> tuple[Floats, Floats]:
        # K_mm is symmetric: column m gives Z_m the same gradient as row m.
        by_Z, by_alpha = self.kernel.covariance_gradient(points.Z, points.Z, points.alpha, weights)
        return 2 * by_Z, by_alpha

    def gradient_limits(self, points: Points, lowest: Floats, highest: Floats, weight: float) -> Floats:
        return np.ones(2 * len(points.alpha))  # windows need none

    def regression_statistics(self, points: Points, rows: Rows, inverse: Floats | None, s: float, part: Part) -> int:
        overflows, lower = 0, np.tril_indices(len(points.Z))
        for chunk in _blocks(rows, part):
            K = self.covariance(points.Z, chunk.mu, points.alpha)
            A = K if inverse is None else inverse @ K
            sums = [(A @ A.T)[lower], A @ chunk.Y]
            if chunk.trace_weights is not None:
                sums.append(_trace_terms(rows, chunk.where, s, 1 - (A * A).sum(axis=0)))
            overflows += _add(self.statistics_summation, part, *sums)
        return overflows

    def regression_gradient(self, points: Points, rows: Rows, inverse: Floats | None, weights: Adjoints,
                            part: Part) -> int:  # fmt: skip
        matrix, psi1Y, fit = weights[:3]
        overflows, lower = 0, np.tril_indices(len(points.Z))
        for chunk in _blocks(rows, part):
            K, sums = self.covariance(points.Z, chunk.mu, points.alpha), []
            if inverse is None:
                by_K = matrix @ K + psi1Y @ chunk.Y.T
            else:
                A = inverse @ K
                E = chunk.Y - A.T @ fit
                by_K, sums = matrix @ A + psi1Y @ E.T, [A @ E]
                if chunk.trace_weights is not None:
                    weighted = chunk.trace_weights * A
                    by_K -= inverse.T @ weighted
                    sums.append((weighted @ A.T)[lower])
            with np.errstate(all="ignore"):
                by_Z, by_alpha = self.kernel.covariance_gradient(points.Z, chunk.mu, points.alpha, by_K)
            overflows += _add(self.gradient_summation, part, by_Z, by_alpha, *sums)
        return overflows

    def regression_moments(self, points: Points, rows: Rows, span: Span, factor: Floats, weights: Floats, mean: Floats,
                           explained: Floats) -> None:  # fmt: skip
        for block in _blocks(rows, span, SMALLEST):
            K = self.covariance(points.Z, block.mu, points.alpha)
            mean[block.where] = K.T @ weights
            explained[block.where] = np.square(factor @ K).sum(axis=0)

    def _latent(self, points: Points, block: _Block) -> tuple[LatentKernel, tuple[Floats, Floats, Floats, Floats]]:
        """Return the kernel, and the arguments of its ψ at a block."""
        assert isinstance(self.kernel, LatentKernel) and block.S is not None
        return self.kernel, (points.Z, block.mu, block.S, points.alpha)

    def _psi(self, points: Points, block: _Block) -> tuple[Floats, Floats]:
        """Return ψ1 (k, m) and ψ2 (k, m, m) of a block."""
        kernel, arguments = self._latent(points, block)
        with np.errstate(all="ignore"):
            return kernel.psi1(*arguments), kernel.psi2(*arguments)

    def _psi_gradient(self, points: Points, block: _Block, by_psi1: Floats, by_psi2: Floats) -> list[Floats]:
        """Return the gradients by Z, alpha, mu and S through the ψ of a block, and the divergence of its rows.

        by_psi1, by_psi2 : (k, m) and (k, m, m), ∂F/∂ψ
        """
        kernel, arguments = self._latent(points, block)
        with np.errstate(all="ignore"):
            first = kernel.psi1_gradient(*arguments, by_psi1)
            second = kernel.psi2_gradient(*arguments, by_psi2)
            by_Z, by_alpha, by_mu, by_S = (one + other for one, other in zip(first, second, strict=True))
            return [by_Z, by_alpha, by_mu - block.mu, by_S - 0.5 * (1 - 1 / arguments[2])]

    def gplvm_statistics(self, points: Points, rows: Rows, explained: Floats | None, s: float, part: Part) -> int:
        m, d, overflows = len(points.Z), rows.Y.shape[1], 0
        row, column = np.tril_indices(m)
        for chunk in _blocks(rows, part):
            psi2, psi1Y = np.zeros((1 if rows.observed is None else rows.observed.shape[1], m, m)), np.zeros((m, d))
            c = []
            for block in _cut(rows, chunk.where.start, chunk.where.stop, _block_rows(m)):
                psi1_rows, psi2_rows = self._psi(points, block)
                psi2 += np.tensordot(_counts(block._replace(trace_weights=None)), psi2_rows, (0, 0))
                psi1Y += psi1_rows.T @ block.Y
                if explained is not None:
                    c.append(psi2_rows[:, row, column] @ explained)
            with np.errstate(all="ignore"):
                nats = _divergence(chunk.mu, rows.S[chunk.where]).sum()
                prior = self.prior(points, chunk.mu, rows.S[chunk.where])
                others = [_trace_terms(rows, chunk.where, s, prior - np.concatenate(c))] if c else []
            if not self.unit:
                others.append(prior @ _counts(chunk._replace(trace_weights=None)))
            divergence = np.array([np.rint(nats), nats - np.rint(nats)])
            overflows += _add(self.statistics_summation, part, psi2[:, row, column].T, psi1Y, divergence, *others)
            overflows += not nats < MOST / rows.all_chunks  # nothing bounds the total
        return overflows

    def prior(self, points: Points, mu: Floats, S: Floats) -> Floats:
        """Return ⟨k(x, x)⟩ (k,) of rows."""
        return np.ones(len(mu))

    def prior_gradient(self, points: Points, mu: Floats, S: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the derivatives of Σ weights (k,) ⟨k(x, x)⟩ by the loops' parameters, mu and S, unless `unit`."""
        raise NotImplementedError

    def gplvm_gradient(self, points: Points, rows: Rows, weights: Adjoints, by_mu: Floats, by_S: Floats,
                       part: Part) -> int:  # fmt: skip
        (matrix, psi1Y, _, psi0, _), m, overflows = weights, len(points.Z), 0
        pair_weights, lower = _pair_weights(matrix, m), np.tril_indices(m)
        for chunk in _blocks(rows, part):
            by_Z, by_alpha, tilted = np.zeros_like(points.Z), np.zeros_like(points.alpha), np.zeros((m, m))
            for block in _cut(rows, chunk.where.start, chunk.where.stop, _block_rows(m)):
                gradients = self._psi_gradient(points, block, block.Y @ psi1Y.T, _row_weights(pair_weights, block))
                by_Z += gradients[0]
                by_alpha += gradients[1]
                by_mu[block.where], by_S[block.where] = gradients[2:]
                if not self.unit:
                    assert block.S is not None
                    by_prior = _counts(block) @ (psi0 if block.trace_weights is None else np.append(psi0, 0.5))
                    through_prior = self.prior_gradient(points, block.mu, block.S, by_prior)
                    by_alpha += through_prior[0]
                    by_mu[block.where] += through_prior[1]
                    by_S[block.where] += through_prior[2]
                if block.trace_weights is not None:
                    tilted += np.tensordot(block.trace_weights, self._psi(points, block)[1], 1)
            others = [] if rows.trace_weights is None else [tilted[lower]]
            overflows += _add(self.gradient_summation, part, by_Z, by_alpha, *others)
        return overflows

    def gplvm_bounds(self, points: Points, rows: Rows, span: Span, matrix: Floats, psi1Y: Floats,
                     out: RowBounds) -> None:  # fmt: skip
        weights = _pair_weights(matrix, len(points.Z))
        for block in _blocks(rows, span, _block_rows(len(points.Z)) if self.rows_apart else 1):
            one_by_one = list(_cut(rows, block.where.start, block.where.stop, 1))  # for products of one shape
            by_psi1 = np.concatenate([row.Y @ psi1Y.T for row in one_by_one])
            by_psi2 = _row_weights(weights, block)
            if len(weights) > 1:
                by_psi2 = np.concatenate([_row_weights(weights, row) for row in one_by_one])
            psi1, psi2 = self._psi(points, block)
            with np.errstate(all="ignore"):
                values = (by_psi1 * psi1).sum(axis=1) + (by_psi2 * psi2).reshape(len(psi1), -1).sum(axis=1)
                out.values[block.where] = values - _divergence(block.mu, rows.S[block.where])
            out.by_mu[block.where], out.by_S[block.where] = self._psi_gradient(points, block, by_psi1, by_psi2)[2:]

    def gplvm_moments(self, points: Points, rows: Rows, span: Span, weights: Floats, quadratics: Floats, mean: Floats,
                      second: Floats) -> None:  # fmt: skip
        row, column = np.tril_indices(len(points.Z))
        for block in _blocks(rows, span, _block_rows(len(points.Z))):
            psi1, psi2 = self._psi(points, block)
            mean[block.where] = psi1 @ weights
            second[block.where] = psi2[:, row, column] @ quadratics.T
