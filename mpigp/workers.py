"""The threads of a rank: each takes whole chunks, and integers add up."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Floats = NDArray[np.float64]
Words = NDArray[np.int64]


class Workers:
    """`count` threads with a workspace of `space` doubles each; BLAS keeps to one thread of its own per thread of ours."""

    def __init__(self, count: int, space: int) -> None:
        threadpool_limits(1)
        self.count = count
        self._spaces = [np.empty(space) for _ in range(count)]
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def sum(self, work: Callable[[int, int, Words, Floats], int], chunks: int, length: int) -> Words:
        """Return the sum over chunks of what `work(first, last, words, space)` adds to `words`, and last its misfits."""

        def part(index: int) -> Words:
            words = np.zeros(length + 1, np.int64)
            first, last = index * chunks // self.count, (index + 1) * chunks // self.count
            if first < last:
                words[-1] = work(first, last, words[:-1], self._spaces[index])
            return words

        if self._pool is None:
            return part(0)
        return np.sum(list(self._pool.map(part, range(self.count))), axis=0)
