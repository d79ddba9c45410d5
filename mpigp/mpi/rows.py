"""The rows that one rank has, and the few numbers about all rows that every rank knows.

Missing entries of Y: the outputs are grouped by which rows have them. Given q(X), the bound of the GPLVM is a sum over
outputs, and an entry that is missing takes no part in it: output j needs Ψ2 over the rows that have it alone. Outputs
that the same rows have share one Ψ2, so what counts is the number of groups: each costs two multiplications more for
every exponential of a pair, m(m+1)/2 numbers more in each round's message, and the factorizations of m × m matrices
once more on the master.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp import native
from mpigp.chunks import chunk_count, chunk_rows
from mpigp.data.datasets import Columns, Stream, blocks
from mpigp.errors import InputError
from mpigp.gp.bound import Group
from mpigp.gp.statistics import Block
from mpigp.mpi.communicator import sum_over_ranks
from mpigp.mpi.distributed_rows import DistributedRows, check_unchanged, fingerprint
from mpigp.types import Comm, Floats


class EmptyColumn(InputError):
    """An output that no row has, by its number and name."""

    def __init__(self, column: int, name: str = "") -> None:
        named = f", {name}," if name else ""
        super().__init__(f"column {column} (counted from 0){named} has no entry at all: leave it out")
        self.column = column


class Patterns(NamedTuple):
    """Which entries of Y are there."""

    observed: Floats  # (rows, groups), 1 where a row of this rank has the outputs of a group, and 0 where it has not
    group: NDArray[np.intp]  # (d,), the group of each output

    def groups(self, Y: DistributedRows) -> list[Group]:
        """Return the groups over the rows of all ranks; missing entries of Y (n, d) are zero. Collective."""
        low, high = Y.extremes()
        limit = Y.n * np.maximum(np.maximum(-low, high) ** 2, 1e-300)
        squares = Y.sum(lambda y: (y * y).sum(axis=0), limit)
        observed, most = Y.with_local(self.observed), np.full(self.observed.shape[1], float(Y.n))
        counts = observed.sum(lambda o: o.sum(axis=0), most)
        members = [np.flatnonzero(self.group == k) for k in range(self.observed.shape[1])]
        pairs = zip(members, counts, strict=True)
        return [Group(outputs, int(count), float(squares[outputs].sum())) for outputs, count in pairs]


def find_patterns(comm: Comm, Y: Floats) -> Patterns | None:
    """Return the patterns of the NaN in Y (rows, d); None where no rank has any."""
    there = np.isfinite(Y)
    if not comm.allreduce(np.count_nonzero(~there)):
        return None
    counts = there.astype(np.float64)
    both = (counts.T @ counts).astype(np.int64)  # rows that have both outputs
    sum_over_ranks(comm, both)
    alone = both.diagonal()
    if not alone.all():
        raise EmptyColumn(int(alone.argmin()))
    same = (both == alone) & (both == alone[:, None])
    first, group = np.unique(same.argmax(axis=1), return_inverse=True)
    return Patterns(np.ascontiguousarray(counts[:, first]), group)


class Rows:
    """A rank's rows, in chunks; with S the inputs are uncertain (GPLVM) and their gradients live here too.

    n : rows of all ranks together
    mu : (rows, q), latent means, or the inputs X in regression.   S : (rows, q) or None.   Y : (rows, d)
        float64, row-major. The optimizer changes mu and S in place. Y may stay in its file, and X with it.
    patterns : which entries of Y are missing (they are zero), where some are; Y is in memory then

    gradients : by name ("mu", "S"), (rows, q); none in regression
    lowest, highest : (q,), the ends of mu over all ranks, as it was given
    groups : the outputs, in groups that the same rows have: one, unless entries are missing
    absolute_Y : (d,), Σ|Y_i| over all ranks, which bounds Σψ1Y
    trace_weights : (rows,), of the trace terms that rows have in the bound `rows`; None in others
    """

    def __init__(
        self, comm: Comm, n: int, mu: Columns, S: Floats | None, Y: Columns, patterns: Patterns | None = None
    ) -> None:
        self.n, self.S = n, S
        self.mu: Any = mu  # an array wherever it is changed, and Y where it is sliced
        self.Y: Any = Y
        self.chunk, self.all_chunks = chunk_rows(n), chunk_count(n)
        self._observed = None if patterns is None else patterns.observed
        self.trace_weights: Floats | None = None
        self.gradients = {} if S is None else {"mu": np.zeros_like(S), "S": np.zeros_like(S)}
        self._whole = None if isinstance(Y, Stream) else next(self._blocks())
        outputs = DistributedRows(comm, n, Y)
        self.lowest, self.highest = outputs.with_local(mu).extremes()
        low, high = outputs.extremes()
        largest = np.maximum(-low, high)
        limits = n * np.append(largest, float(np.vdot(largest, largest)))
        *absolute, YY = outputs.sum(lambda y: np.append(np.abs(y).sum(axis=0), (y * y).sum(axis=0).sum()), limits)
        self.absolute_Y = np.array(absolute)
        self.groups = [Group(np.arange(Y.shape[1]), n, float(YY))] if patterns is None else patterns.groups(outputs)

    @property
    def variance(self) -> float:
        """The mean square of the entries of Y that are there: their variance, where they were standardized."""
        return sum(group.YY for group in self.groups) / sum(group.n * len(group.outputs) for group in self.groups)

    def blocks(self) -> Iterator[Block]:
        """Return the rows in blocks: one, unless they are streamed."""
        return self._blocks() if self._whole is None else iter([self._whole])

    def have_trace_terms(self, wanted: bool) -> None:
        """Let each row have a trace term, as the bound `rows` needs it, or none."""
        self.trace_weights = np.zeros(len(self.Y)) if wanted else None
        if wanted:
            sizes = np.array([len(group.outputs) for group in self.groups], np.float64)
            self._outputs = np.full(len(self.Y), sizes.sum()) if self._observed is None else self._observed @ sizes
        if self._whole is not None:
            self._whole = next(self._blocks())

    def check_unchanged(self, comm: Comm) -> None:
        """Refuse streamed rows whose file has changed. Collective; costs nothing where rows are in memory."""
        if self._whole is None:
            check_unchanged(comm, self.mu, self.Y)

    def check_fingerprint(self, comm: Comm, expected: Mapping[str, Any]) -> None:
        """Refuse streamed rows that, read once more, have another fingerprint than `expected["data"]`. Collective."""
        if self._whole is None:
            X = None if self.S is not None else DistributedRows(comm, self.n, self.mu.raw())
            if fingerprint(X, DistributedRows(comm, self.n, self.Y.raw())) != expected["data"]:
                raise InputError(self.Y.file.changed)

    def _blocks(self) -> Iterator[Block]:
        for first, (mu, Y) in blocks(self.mu, self.Y):
            here = slice(first, first + len(Y))
            S = None if self.S is None else self.S[here]
            terms = () if self.trace_weights is None else (self._outputs[here], self.trace_weights[here])
            rows = native.Rows(mu, S, Y, self.chunk, self.all_chunks, self._observed, *terms)
            gradients = {name: values[here] for name, values in self.gradients.items()}
            yield Block(rows, -(-len(Y) // self.chunk), gradients)
