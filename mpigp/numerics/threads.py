"""The threads of a rank: each takes whole chunks, and integers add up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from mpigp.types import Floats, Words


class Part(NamedTuple):
    """The work of one thread: chunks [first, last), whose sums go to `words` by their `scale`; and its workspace."""

    first: int
    last: int
    words: Words
    scale: Floats
    space: Floats


class Workers:
    """`count` threads with a workspace of `space` doubles each; BLAS keeps to one thread per thread of ours."""

    def __init__(self, count: int, space: int) -> None:
        threadpool_limits(1)
        self.count = count
        self._spaces = [np.empty(space) for _ in range(count)]
        self._pool = None
        if count > 1:
            from concurrent.futures import ThreadPoolExecutor  # here, because a rank of one thread does not need it

            self._pool = ThreadPoolExecutor(count)

    def sum(self, work: Callable[[Part], int], chunks: int, scale: Floats, words_each: int) -> Words:
        """Return the words of the sums over all chunks, and last the number of chunk sums that did not fit theirs."""

        def run(index: int) -> Words:
            words = np.zeros(words_each * len(scale) + 1, np.int64)
            first, last = index * chunks // self.count, (index + 1) * chunks // self.count
            if first < last:
                words[-1] = work(Part(first, last, words[:-1], scale, self._spaces[index]))
            return words

        if self._pool is None:
            return run(0)
        return np.sum(list(self._pool.map(run, range(self.count))), axis=0)

    def share(self, work: Callable[[int, int, Floats], None], chunks: int) -> None:
        """Call work(first, last, space) for the chunks [first, last) of each thread."""

        def run(index: int) -> None:
            first, last = index * chunks // self.count, (index + 1) * chunks // self.count
            if first < last:
                work(first, last, self._spaces[index])

        if self._pool is None:
            run(0)
        else:
            list(self._pool.map(run, range(self.count)))
