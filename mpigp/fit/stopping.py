"""Schedules, and requests to stop a fit before its end: both agreed on by all ranks."""

import math
import signal
import time

import numpy as np

from mpigp.fit.loop import Fit
from mpigp.fit.options import Interval
from mpigp.mpi.signals import stop_signals
from mpigp.types import Comm

MARGIN = 1.5  # of the longest iteration so far must be left before the limit
REASONS = {1000: "the time limit was reached", 1001: "the callback asked for it"}
TIME_LIMIT, CALLBACK = REASONS


class Schedule:
    """Says when something is due: every so many iterations, or seconds by rank 0's clock."""

    def __init__(self, every: Interval) -> None:
        self.iterations, self.seconds = every
        self._next = time.monotonic() + self.seconds

    def due(self, comm: Comm, iteration: int) -> bool:
        """Return whether it is due after this iteration; the same on all ranks. Collective."""
        if self.iterations and iteration % self.iterations == 0:
            return True
        if self.seconds == math.inf:
            return False
        now = time.monotonic()
        passed = bool(comm.bcast(now > self._next))
        if passed:
            self._next = now + self.seconds
        return passed


class StopRequests:
    """A handler that stops the fit when a signal reached any rank, the time limit is near, or a callback asks for it.

    limit : seconds from now that the run may take, another iteration included; inf for no limit
    signals : whether signals count, of a process that hears them
    """

    def __init__(self, comm: Comm, limit: float = math.inf, signals: bool = False) -> None:
        self.comm, self.end = comm, time.monotonic() + limit
        self.signals = stop_signals() if signals else None
        self.requested = 0  # a key of REASONS
        self.stopped = False  # whether this is why the fit stopped
        self._last, self._longest = time.monotonic(), 0.0

    def request(self, answer: object) -> None:
        """Stop after this iteration if a callback answered True."""
        self.requested = CALLBACK if answer is True else self.requested

    def begin(self) -> None:
        """Start to count iterations: what came before was none. From now on the fit can save."""
        self._last = time.monotonic()
        if self.signals is not None:
            self.signals.savable = True

    def __call__(self, fit: Fit) -> None:
        """Stop the fit, where a rank asks for it and it has not ended anyway; the same on every rank. Collective."""
        if fit.stopped:
            return
        now = time.monotonic()
        self._longest, self._last = max(self._longest, now - self._last), now
        late = self.comm.rank == 0 and now + MARGIN * self._longest > self.end
        code = self._largest(self._signal or self.requested or (TIME_LIMIT if late else 0))
        self.stopped = code != 0
        if self.stopped:
            fit.stopped = REASONS.get(code) or f"{signal.Signals(code).name} was received"

    def finish(self) -> None:
        """Count a signal that came while the model was written, which is whole now. Collective."""
        if self.signals is not None and self._largest(self._signal):
            self.stopped = True

    @property
    def _signal(self) -> int:
        return 0 if self.signals is None else self.signals.received

    def _largest(self, code: int) -> int:
        from mpi4py import MPI

        codes = np.array([code])
        self.comm.Allreduce(MPI.IN_PLACE, codes, op=MPI.MAX)
        return int(codes[0])
