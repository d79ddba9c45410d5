"""Timers of the phases of an evaluation, and counters of its messages and bytes."""

import time
from typing import Any

PHASES = ("broadcast", "statistics", "reduce", "bound", "gradients", "wait")
GROUPS = {  # of phases: work on rows, waiting for other ranks, messages, and work on rank 0 alone
    "compute": ("statistics", "gradients"), "wait": ("wait",),
    "messages": ("broadcast", "reduce"), "master": ("bound",),
}  # fmt: skip


class Phase:
    """Context manager that times one phase; a generator would slow small evaluations."""

    __slots__ = ("name", "seconds", "start")

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *exception: Any) -> None:
        self.seconds[self.name] += time.perf_counter() - self.start


class Timers:
    """Seconds per phase, and the messages and bytes of this rank's collective calls, since the last `clear`.

    `broadcast` and `reduce` are transfer alone: the time until all ranks have arrived is `wait`.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Set all timers and counters to zero."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._blocks = {name: Phase(self.seconds, name) for name in PHASES}
        self.messages = self.bytes = 0

    def __call__(self, phase: str) -> Phase:
        """Return a context manager that adds the seconds of its block to `phase`."""
        return self._blocks[phase]

    def sent(self, nbytes: int) -> None:
        """Count one collective message."""
        self.messages += 1
        self.bytes += nbytes
