"""Signals that stop a fit: the first saves and stops, and the second Ctrl-C or SIGTERM ends it at once.

A thread hears them, also while the main thread is in a call of C, such as MPI's or HDF5's. Until there is something to
save, the first one ends the job too.
"""

import os
import signal
import threading
import time
from collections.abc import Callable

from mpigp.errors import STOPPED
from mpigp.mpi.marks import BY_SIGNAL, DONE, mark, marked
from mpigp.mpi.processes import abort, launched_rank, say

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
IMPATIENT = (signal.SIGINT, signal.SIGTERM)
SAME = 0.3  # seconds within which a repeated signal is the first one: `timeout`, and some schedulers, send it twice
NOTICE = 5.0  # seconds for rank 0, which as a rule has the signal too, to speak and end the job
SPOKEN = 0.3  # seconds for a launcher to pass a line on, which it may lose when it ends the job
AT_ONCE = 1.2  # the same for the second signal, and for this process to end that does not get to it


class StopSignals:
    """The stop signals of this process, from now on.

    received : the number of the first; 0 before
    savable : whether the fit will note the first by itself, and save
    clean_up : called before this process is ended
    early, again : lines for a signal before there is anything to save, and for the second one, behind its name
    """

    def __init__(self, early: str, again: str) -> None:
        self.early, self.again = early, again
        self.received, self.savable, self._first = 0, False, 0.0
        self.clean_up: Callable[[], None] = lambda: None
        self._inlet, outlet = os.pipe()
        os.set_blocking(outlet, False)
        signal.set_wakeup_fd(outlet, warn_on_full_buffer=False)
        for each in SIGNALS:
            signal.signal(each, lambda number, frame: None)  # C's handler writes the number to the pipe
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            for number in os.read(self._inlet, 64):
                self._note(number)

    def _note(self, number: int) -> None:
        name = signal.Signals(number).name
        if not self.received:
            self.received, self._first = number, time.monotonic()
            if not self.savable:
                self._end(f"{name} {self.early}", STOPPED, f"{STOPPED} {BY_SIGNAL}", NOTICE)
        elif number in IMPATIENT and time.monotonic() > self._first + SAME:
            self._end(f"{name} {self.again}", 1, "1", AT_ONCE)

    def _end(self, line: str, code: int, word: str, seconds: float) -> None:
        """End the job; rank 0 says why, or after some seconds another rank, if it alone has the signal."""
        if launched_rank(os.environ):
            time.sleep(seconds)
            if code == STOPPED and self.savable:  # meanwhile: the fit has noted the signal, and saves
                return
        timer = threading.Timer(AT_ONCE / 2 + SPOKEN, os._exit, [code])  # should any of this not return
        timer.daemon = True
        timer.start()
        if not marked(DONE):
            say(line)
        mark(DONE, word)
        self.clean_up()
        time.sleep(SPOKEN)
        abort(code)
        os._exit(code)


_heard: list[StopSignals] = []
early_signals: list[int] = []
"""Stop signals that came before a launcher could forward them."""


def listen(early: str, again: str) -> None:
    """Hear the stop signals of this process from now on; called by its main thread."""
    _heard.append(StopSignals(early, again))


def stop_signals() -> StopSignals | None:
    """Return the stop signals of this process, if they are heard."""
    return _heard[0] if _heard else None
