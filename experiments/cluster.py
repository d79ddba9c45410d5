"""A simulated cluster: one process evaluates the bound as N nodes would, of which some fail.

A node is a group of whole chunks of rows. Sums over chunks are integers, so to lose a node is to leave out its chunks.
failures.py lists the four ways to treat a node that failed. Its mu and S have a gradient of zero, unless its chunks are
recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from mpigp import native
from mpigp.gp.bound import Group
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import GPLVM, Adjoints, Inducing, Statistics
from mpigp.mpi.evaluator import Evaluator, Master
from mpigp.mpi.rows import Rows
from mpigp.numerics.reproducible_sum import Summation
from mpigp.numerics.threads import Part
from mpigp.types import Comm, Floats, Integers

WAYS = ("drop", "rescale", "stale", "recover")


class Terms(NamedTuple):
    """What a node sent, its inducing points in their own order: Ψ2 (m, m), Σψ1Y (m, d), KL; its gradients by Z, alpha.

    Those gradients are through Ψ2 and Σψ1Y alone.
    """

    psi2: Floats
    psi1Y: Floats
    KL: float
    by_Z: Floats
    by_alpha: Floats


class Message(NamedTuple):
    """What a node sent in an evaluation, as it was sent: its words of both rounds, and what they are read with."""

    inducing: Inducing
    weights: Adjoints
    scale: Floats
    first: Integers
    second: Integers


class Cluster(Evaluator):
    """Evaluates a GPLVM's bound and gradient as the nodes of a cluster see them, while those in `dead` fail.

    Parameters
    ----------
    comm : of this process alone
    rows : all rows, without missing entries.   nodes : at most as many as chunks
    way : one of WAYS
    """

    def __init__(self, comm: Comm, rows: Rows, m: int, nodes: int, way: str) -> None:
        super().__init__(comm, GPLVM(), rows, m, rows.mu.shape[1])
        self.way = way
        self.whole = next(rows.blocks())
        chunks = -(-len(rows.Y) // rows.chunk)
        self.borders = [node * chunks // nodes for node in range(nodes + 1)]  # of the nodes' chunks
        self.dead: frozenset[int] = frozenset()
        self._sent: dict[int, Message] = {}  # the last of each node; kept where it may be used again
        self._terms: dict[int, Terms] = {}  # the same, read when it is
        self._words: list[dict[int, Integers]] = [{}, {}]  # of the last evaluation, by round and by node
        self._scale = np.empty(0)  # of the words of its second round

    @property
    def lost(self) -> frozenset[int]:
        """The nodes whose terms are missing."""
        return frozenset() if self.way == "recover" else self.dead

    @property
    def answering(self) -> list[int]:
        """The nodes whose terms are there."""
        return [node for node in range(len(self.borders) - 1) if node not in self.lost]

    def node_rows(self, node: int) -> slice:
        """Return the rows of a node."""
        return slice(self.borders[node] * self.rows.chunk, self.borders[node + 1] * self.rows.chunk)

    @property
    def n_alive(self) -> int:
        """The number of rows whose node answered."""
        return len(self.rows.Y) - sum(len(self.rows.Y[self.node_rows(node)]) for node in self.lost)

    def _pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yield (node, first, last): the chunks that are computed, those of recovered nodes last and one by one.

        Neighbours whose words nobody asks for apart are computed together, under the first's name.
        """
        recovered = self.dead - self.lost
        first: int | None = None
        for node in range(len(self.borders) - 1):
            if node in self.lost or node in recovered:
                continue
            first = node if first is None else first
            after = node + 1
            if self.way == "stale" or after == len(self.borders) - 1 or after in self.dead:
                yield first, self.borders[first], self.borders[after]
                first = None
        for node in recovered:
            for chunk in range(self.borders[node], self.borders[node + 1]):
                yield node, chunk, chunk + 1

    def _sum_nodes(self, round_: int, work: Callable[[Part], int], summation: Summation, scale: Floats) -> Integers:
        """Return the words of a round, summed over the nodes that are not lost; keep each piece's own."""
        total = summation.zeros(len(scale))
        kept: dict[int, Integers] = {}
        for node, start, stop in self._pieces():

            def piece(part: Part, start: int = start) -> int:
                return work(part._replace(first=part.first + start, last=part.last + start))

            kept[node] = self.workers.sum(piece, stop - start, summation, scale)
            summation.merge(total, kept[node])
        self._words[round_] = kept
        return total

    def _sum_statistics(self, inducing: Inducing) -> Integers:
        work = partial(self.model.add_statistics, inducing, self.whole)
        return self._sum_nodes(0, work, self.statistics_summation, self.statistics_scale)

    def _sum_gradient(self, inducing: Inducing, weights: Adjoints, scale: Floats) -> Integers:
        self._scale = scale
        work = partial(self.model.add_gradient, inducing, weights, self.whole)
        words = self._sum_nodes(1, work, self.gradient_summation, scale)
        for gradient in self.rows.gradients.values():
            if self.lost and self.way == "rescale":
                gradient *= self.rows.n / self.n_alive
            for node in self.lost:
                gradient[self.node_rows(node)] = 0.0
        return words

    def _summary(self, inducing: Inducing, words: Integers) -> tuple[Statistics, Sequence[Group]]:
        summary, groups = super()._summary(inducing, words)
        if not self.lost:
            return summary, groups
        if self.way == "stale":
            return self._with_stale(inducing, summary), groups
        YY = sum(float(np.vdot(Y, Y)) for Y in (self.rows.Y[self.node_rows(node)] for node in self.answering))
        if self.way == "drop":
            return summary, [Group(groups[0].outputs, self.n_alive, YY)]
        C, b, KL, pairs = summary[:4]
        factor = self.rows.n / self.n_alive
        return Statistics(factor * C, factor * b, factor * KL, factor * pairs), [groups[0]._replace(YY=factor * YY)]

    def _with_stale(self, inducing: Inducing, summary: Statistics) -> Statistics:
        """Return the statistics with the last terms of the nodes that are lost; `pairs` stay those that are new."""
        L, order = inducing.whitening.L, inducing.whitening.order
        C, b, KL = summary[:3]
        for node in sorted(self.lost):
            psi2, psi1Y, divergence, _, _ = self._last_terms(node)
            half = native.solve(L, native.solve(L, psi2[order][:, order]).T)
            C = C + 0.5 * (half + half.T)
            b = b + native.solve(L, psi1Y[order])
            KL += divergence
        return summary._replace(C=C, b=b, KL=KL)

    def _gradient(self, inducing: Inducing, master: Master, sums: Floats, parameters: Globals) -> Globals:
        if self.lost and self.way == "rescale":
            sums = sums * (self.rows.n / self.n_alive)
        gradient = super()._gradient(inducing, master, sums, parameters)
        if self.way == "stale":
            for node in sorted(self.lost):
                last = self._last_terms(node)
                gradient = gradient._replace(Z=gradient.Z + last.by_Z, alpha=gradient.alpha + last.by_alpha)
            for node in self.answering:
                first, second = (words[node] for words in self._words)
                self._sent[node] = Message(inducing, master.weights, self._scale, first, second)
                self._terms.pop(node, None)
        return gradient

    def _last_terms(self, node: int) -> Terms:
        """Return the last terms that a node sent."""
        if node not in self._terms:
            self._terms[node] = self._read(self._sent[node])
        return self._terms[node]

    def _read(self, message: Message) -> Terms:
        """Return what a node sent as numbers."""
        inducing, weights = message.inducing, message.weights
        m, q = inducing.Z.shape
        order = inducing.whitening.order
        first = self.statistics_summation.floats(message.first[:-1], self.statistics_scale)
        second = self.gradient_summation.floats(message.second[:-1], message.scale)
        pairs = m * (m + 1) // 2
        scaled = _symmetric(first[:pairs], m)  # Ψ2 / K^½
        by_pairs = _symmetric(weights.matrix[:, 0], m)  # as in GPLVM.gram_weights: ∂F/∂Ψ2 ∘ K^½, its diagonal halved
        by_pairs.ravel()[:: m + 1] *= 2
        through_K, by_alpha = native.gram_gradient(0.5 * by_pairs * scaled, inducing.Z, inducing.alpha)
        psi2, psi1Y, by_Z = np.empty((m, m)), np.empty((m, self.d)), np.empty((m, q))
        psi2[np.ix_(order, order)] = scaled * inducing.root_factor
        psi1Y[order] = first[pairs:-2].reshape(m, self.d)
        by_Z[order] = through_K + second[: m * q].reshape(m, q)
        return Terms(psi2, psi1Y, float(first[-2] + first[-1]), by_Z, by_alpha + second[m * q :])


def _symmetric(triangle: Floats, m: int) -> Floats:
    """Return the symmetric matrix (m, m) of a lower triangle (m(m+1)/2,), packed by rows."""
    matrix = np.zeros((m, m))
    matrix[np.tril_indices(m)] = triangle
    return matrix + np.tril(matrix, -1).T
