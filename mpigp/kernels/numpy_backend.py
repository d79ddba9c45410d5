"""The loops of a kernel that states its formulas in NumPy: chunk by chunk, in shapes that the number of ranks does not
change.

Sums of the second round, of which no limit is known, are exact: digits (mpigp.numerics.reproducible_sum).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mpigp import native
from mpigp.chunks import SMALLEST
from mpigp.kernels.backend import KernelBackend
from mpigp.kernels.base import Kernel, LatentKernel
from mpigp.numerics.reproducible_sum import DIGITS, from_digits, to_digits
from mpigp.numerics.threads import Part
from mpigp.types import Floats, Words

MOST = 2.0**62  # of a sum in one word
BLOCK = 2**16  # numbers of ψ2 that are made at a time


class _Block(NamedTuple):
    """Some rows of a chunk: where they are, mu (k, q), S (k, q) or None, Y (k, d), observed (k, groups) or None."""

    where: slice
    mu: Floats
    S: Floats | None
    Y: Floats
    observed: Floats | None


def _chunks(rows: native.Rows, first: int, last: int) -> Iterator[slice]:
    """Yield the rows of each of the chunks [first, last)."""
    for number in range(first, last):
        yield slice(number * rows.chunk, min(len(rows.Y), (number + 1) * rows.chunk))


def _blocks(rows: native.Rows, chunk: slice, size: int) -> Iterator[_Block]:
    """Yield the rows of a chunk in blocks of at most `size`."""
    for start in range(chunk.start, chunk.stop, size):
        where = slice(start, min(chunk.stop, start + size))
        S, observed = (None if each is None else each[where] for each in (rows.S, rows.observed))
        yield _Block(where, rows.mu[where], S, rows.Y[where], observed)


def _block_rows(m: int) -> int:
    """Return the rows of a block of ψ2: a power of two, so that blocks end where chunks do, however these are cut."""
    rows = SMALLEST
    while rows > 1 and rows * m * m > BLOCK:
        rows //= 2
    return rows


def _add_words(part: Part, values: Floats) -> int:
    """Add values to sums of one word; return how many do not fit."""
    x = values * part.scale
    fits = np.abs(x) < MOST
    part.words[...] += np.rint(np.where(fits, x, 0.0)).astype(np.int64)
    return int(np.count_nonzero(~fits))


def _add_digits(part: Part, *values: Floats) -> int:
    """Add values to exact sums, one after the other; return how many are no numbers."""
    together = np.concatenate([each.ravel() for each in values])
    part.words[...] += to_digits(together[None]).ravel()
    return int(np.count_nonzero(~np.isfinite(together)))


def _divergence(mu: Floats, S: Floats) -> Floats:
    """Return KL(N(mu_i, S_i) ‖ N(0, I)) of each row (k,)."""
    return 0.5 * (S + mu * mu - np.log(S) - 1).sum(axis=1)


def _pair_weights(matrix: Floats, m: int) -> Floats:
    """Return symmetric weights (groups, m, m) from those of pairs (pairs, groups), each of which counts twice."""
    weights = np.stack([native.symmetric(np.ascontiguousarray(column), m) for column in matrix.T])
    weights[:, range(m), range(m)] *= 2
    return weights


class NumpyBackend(KernelBackend):
    """Loops that call a kernel's formulas."""

    factored = False
    gradient_words = DIGITS

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name, self.latent = kernel, name, isinstance(kernel, LatentKernel)

    def centre(self, Z: Floats) -> Floats:
        return np.zeros(Z.shape[1])  # a kernel need not be stationary

    def covariance(self, Z: Floats, X: Floats, alpha: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(self.kernel.covariance(Z, X, alpha))

    def gram_gradient(self, weights: Floats, Z: Floats, alpha: Floats) -> tuple[Floats, Floats]:
        # K_mm is symmetric: what row m gives Z_m, column m gives it again.
        by_Z, by_alpha = self.kernel.covariance_gradient(Z, Z, alpha, weights)
        return 2 * by_Z, by_alpha

    def gradient_limits(self, points: native.Kernel, lowest: Floats, highest: Floats, weight: float) -> Floats:
        return np.ones(2 * len(points.alpha))  # digits need none

    def gradient_sums(self, words: Words, scale: Floats) -> Floats:
        return from_digits(words.reshape(-1, DIGITS))

    def regression_statistics(
        self, points: native.Kernel, rows: native.Rows, inverse: Floats | None, part: Part
    ) -> int:
        overflows = 0
        for chunk in _chunks(rows, part.first, part.last):
            K = self.covariance(points.Z, rows.mu[chunk], points.alpha)
            A = K if inverse is None else inverse @ K
            overflows += _add_words(part, np.concatenate([native.packed(A @ A.T), (A @ rows.Y[chunk]).ravel()]))
        return overflows

    def regression_gradient(
        self,
        points: native.Kernel,
        rows: native.Rows,
        inverse: Floats | None,
        matrix: Floats,
        psi1Y: Floats,
        fit: Floats,
        part: Part,
    ) -> int:
        overflows = 0
        for chunk in _chunks(rows, part.first, part.last):
            X, Y = rows.mu[chunk], rows.Y[chunk]
            K, rest = self.covariance(points.Z, X, points.alpha), []
            if inverse is None:
                by_K = matrix @ K + psi1Y @ Y.T
            else:
                A = inverse @ K
                E = Y - A.T @ fit
                by_K, rest = matrix @ A + psi1Y @ E.T, [A @ E]
            with np.errstate(all="ignore"):
                by_Z, by_alpha = self.kernel.covariance_gradient(points.Z, X, points.alpha, by_K)
            overflows += _add_digits(part, by_Z, by_alpha, *rest)
        return overflows

    def regression_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        factor: Floats,
        weights: Floats,
        mean: Floats,
        explained: Floats,
    ) -> None:
        for chunk in _chunks(rows, first, last):
            for block in _blocks(rows, chunk, SMALLEST):
                K = self.covariance(points.Z, block.mu, points.alpha)
                mean[block.where] = K.T @ weights
                explained[block.where] = np.square(factor @ K).sum(axis=0)

    def _psi(self, points: native.Kernel, block: _Block) -> tuple[Floats, Floats]:
        """Return ψ1 (k, m) and ψ2 (k, m, m) of a block."""
        assert isinstance(self.kernel, LatentKernel)
        assert block.S is not None
        known = points.Z, block.mu, block.S, points.alpha
        with np.errstate(all="ignore"):
            return self.kernel.psi1(*known), self.kernel.psi2(*known)

    def _psi_gradient(self, points: native.Kernel, block: _Block, by_psi1: Floats, by_psi2: Floats) -> list[Floats]:
        """Return the gradients by Z, alpha, mu and S through the ψ of a block, and the divergence of its rows.

        by_psi1, by_psi2 : (k, m) and (k, m, m), ∂F/∂ψ
        """
        assert isinstance(self.kernel, LatentKernel)
        assert block.S is not None
        known = points.Z, block.mu, block.S, points.alpha
        with np.errstate(all="ignore"):
            first = self.kernel.psi1_gradient(*known, by_psi1)
            second = self.kernel.psi2_gradient(*known, by_psi2)
            by_Z, by_alpha, by_mu, by_S = (one + other for one, other in zip(first, second, strict=True))
            return [by_Z, by_alpha, by_mu - block.mu, by_S - 0.5 * (1 - 1 / block.S)]

    def gplvm_statistics(self, points: native.Kernel, rows: native.Rows, part: Part) -> int:
        m, d, overflows = len(points.Z), rows.Y.shape[1], 0
        for chunk in _chunks(rows, part.first, part.last):
            psi2 = np.zeros((1 if rows.observed is None else rows.observed.shape[1], m, m))
            psi1Y = np.zeros((m, d))
            for block in _blocks(rows, chunk, _block_rows(m)):
                of_rows, pairs = self._psi(points, block)
                counts = np.ones((len(pairs), 1)) if block.observed is None else block.observed
                psi2 += np.tensordot(counts, pairs, (0, 0))
                psi1Y += of_rows.T @ block.Y
            with np.errstate(all="ignore"):
                nats = _divergence(rows.mu[chunk], rows.S[chunk]).sum()
            packed = np.stack([native.packed(each) for each in psi2], axis=1)
            divergence = [np.rint(nats), nats - np.rint(nats)]
            overflows += _add_words(part, np.concatenate([packed.ravel(), psi1Y.ravel(), divergence]))
            fits = nats < MOST / rows.all_chunks  # nothing bounds the total
            overflows += not fits
        return overflows

    def gplvm_gradient(
        self,
        points: native.Kernel,
        rows: native.Rows,
        matrix: Floats,
        psi1Y: Floats,
        by_mu: Floats,
        by_S: Floats,
        part: Part,
    ) -> int:
        m, overflows = len(points.Z), 0
        weights = _pair_weights(matrix, m)
        for chunk in _chunks(rows, part.first, part.last):
            by_Z, by_alpha = np.zeros_like(points.Z), np.zeros_like(points.alpha)
            for block in _blocks(rows, chunk, _block_rows(m)):
                through = self._psi_gradient(points, block, block.Y @ psi1Y.T, _of_rows(weights, block))
                by_Z += through[0]
                by_alpha += through[1]
                by_mu[block.where], by_S[block.where] = through[2:]
            overflows += _add_digits(part, by_Z, by_alpha)
        return overflows

    def gplvm_bounds(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        matrix: Floats,
        psi1Y: Floats,
        by_mu: Floats,
        by_S: Floats,
        values: Floats,
    ) -> None:
        weights = _pair_weights(matrix, len(points.Z))
        for chunk in _chunks(rows, first, last):
            for block in _blocks(rows, chunk, 1):
                by_psi1, by_psi2 = block.Y @ psi1Y.T, _of_rows(weights, block)
                psi1, psi2 = self._psi(points, block)
                with np.errstate(all="ignore"):
                    value = (by_psi1 * psi1).sum() + (by_psi2 * psi2).sum()
                    values[block.where] = value - _divergence(block.mu, rows.S[block.where])
                by_mu[block.where], by_S[block.where] = self._psi_gradient(points, block, by_psi1, by_psi2)[2:]

    def gplvm_moments(
        self,
        points: native.Kernel,
        rows: native.Rows,
        first: int,
        last: int,
        space: Floats,
        weights: Floats,
        quadratics: Floats,
        mean: Floats,
        second: Floats,
    ) -> None:
        row, column = np.tril_indices(len(points.Z))
        for chunk in _chunks(rows, first, last):
            for block in _blocks(rows, chunk, _block_rows(len(points.Z))):
                psi1, psi2 = self._psi(points, block)
                mean[block.where] = psi1 @ weights
                second[block.where] = psi2[:, row, column] @ quadratics.T


def _of_rows(weights: Floats, block: _Block) -> Floats:
    """Return the weights (k, m, m) of each row's ψ2, from those of the groups (groups, m, m) that it has."""
    if block.observed is None:
        return np.broadcast_to(weights[0], (len(block.mu), *weights[0].shape))
    return np.tensordot(block.observed, weights, 1)
