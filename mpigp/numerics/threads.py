"""The threads of a rank: each works on whole chunks of rows, and their sums add as integers."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from mpigp.numerics.reproducible_sum import Summation
from mpigp.types import Floats, Integers

Result = TypeVar("Result")


class Span(NamedTuple):
    """The work of one thread: the chunks [first, last), with its workspace."""

    first: int
    last: int
    space: Floats


class Part(NamedTuple):
    """The work of one thread: the chunks [first, last), whose sums go to `accumulators` by `scale`; a workspace."""

    first: int
    last: int
    accumulators: Integers
    scale: Floats
    space: Floats


class Workers:
    """`count` threads with a workspace of `space` doubles each; BLAS keeps to one thread in each of them."""

    def __init__(self, count: int, space: int) -> None:
        threadpool_limits(1)
        self.count = count
        self._spaces = [np.empty(space) for _ in range(count)]
        self._pool = None
        if count > 1:
            from concurrent.futures import ThreadPoolExecutor  # here, because a rank of one thread does not need it

            self._pool = ThreadPoolExecutor(count)

    def sum(self, work: Callable[[Part], int], chunks: int, summation: Summation, scale: Floats) -> Integers:
        """Return the words of the sums over all chunks, which end with the number of overflows.

        work : adds to a part's accumulators, and returns how many chunk sums overflowed them
        """

        def run(span: Span) -> Integers:
            words = summation.zeros(len(scale))
            if span.first < span.last:
                words[-1] = work(Part(span.first, span.last, words[:-1], scale, span.space))
            return words

        total, *others = self._map(run, chunks)
        for words in others:
            summation.merge(total, words)
        return total

    def share(self, work: Callable[[Span], None], chunks: int) -> None:
        """Call `work` with the chunks of each thread that has any."""
        self._map(lambda span: work(span) if span.first < span.last else None, chunks)

    def _map(self, work: Callable[[Span], Result], chunks: int) -> list[Result]:
        """Return the results of `work` for each thread's share of the chunks."""
        if self._pool is None:
            return [work(Span(0, chunks, self._spaces[0]))]
        ends = [index * chunks // self.count for index in range(self.count + 1)]
        spans = [Span(*each) for each in zip(ends, ends[1:], self._spaces, strict=False)]
        return list(self._pool.map(work, spans))
