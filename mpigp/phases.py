"""Where the seconds and the bytes of an evaluation go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

PHASES = ("broadcast", "statistics", "reduce", "bound", "gradients", "wait")


class Phases:
    """Seconds per phase, and the messages and bytes of this rank's collective calls, since the last `clear`.

    `broadcast` and `reduce` are transfer alone: the time until all ranks have arrived is `wait`.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start counting anew."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.messages = 0
        self.bytes = 0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count the block's seconds under `phase`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - start

    def sent(self, nbytes: int) -> None:
        """Count one collective message."""
        self.messages += 1
        self.bytes += nbytes
