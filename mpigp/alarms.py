"""Reasons to stop a run before its end: signals and the time limit, agreed on by all ranks."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


class Alarms:
    """Notes the signals of this rank, and watches rank 0's clock; `agreed()` makes any rank's reason everybody's.

    limit : seconds from now that the run may take; inf for no limit
    """

    def __init__(self, comm: Comm, limit: float) -> None:
        self.comm, self.end = comm, time.monotonic() + limit
        self._signal = 0
        for each in SIGNALS:
            signal.signal(each, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def agreed(self) -> str:
        """Return why the run is to stop, or nothing; the same on every rank. Called by all ranks."""
        from mpi4py import MPI

        late = self.comm.rank == 0 and time.monotonic() > self.end
        code = self.comm.allreduce(self._signal or (1000 if late else 0), op=MPI.MAX)
        if code == 0:
            return ""
        return "the time limit was reached" if code == 1000 else f"{signal.Signals(code).name} was received"
