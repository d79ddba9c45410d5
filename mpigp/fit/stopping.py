"""Reasons to stop a run before its end: signals and the time limit, agreed on by all ranks."""

from __future__ import annotations

import math
import signal
import time
from types import FrameType

import numpy as np

from mpigp.types import Comm

MARGIN = 1.5  # of the longest iteration so far must be left before the limit
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


class StopRequests:
    """Notes the signals of this rank, and watches rank 0's clock; `agreed()` makes any rank's reason everybody's.

    limit : seconds from now that the run may take, another iteration included; inf for no limit
    period : seconds between the times when `due()` is true; inf for never
    """

    def __init__(self, comm: Comm, limit: float, period: float = math.inf) -> None:
        self.comm, self.end, self.period = comm, time.monotonic() + limit, period
        self._next = time.monotonic() + period
        self._last, self._longest = time.monotonic(), 0.0
        self._signal = 0
        for each in SIGNALS:
            signal.signal(each, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def begin(self) -> None:
        """Start to count iterations: what came before was none."""
        self._last = time.monotonic()

    def due(self) -> bool:
        """Return whether a period has passed by rank 0's clock. Called by all ranks."""
        if self.period == math.inf:
            return False
        now = time.monotonic()
        passed = bool(self.comm.bcast(now > self._next))
        if passed:
            self._next = now + self.period
        return passed

    def agreed(self) -> str:
        """Return why the run is to stop, or nothing; the same on every rank. Called by all ranks."""
        from mpi4py import MPI

        now = time.monotonic()
        self._longest, self._last = max(self._longest, now - self._last), now
        late = self.comm.rank == 0 and now + MARGIN * self._longest > self.end
        codes = np.array([self._signal or (1000 if late else 0)])
        self.comm.Allreduce(MPI.IN_PLACE, codes, op=MPI.MAX)
        code = int(codes[0])
        if code == 0:
            return ""
        return "the time limit was reached" if code == 1000 else f"{signal.Signals(code).name} was received"
