"""Fault injection: watch a fit by its file of metrics, show its progress, and kill one of its ranks."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpigp.mpi.processes import environments, launched_rank

TAG = "MPIGP_FAULT_INJECTION"  # the variable that marks the ranks of the watched fit
EVERY_SECONDS = 1.0  # between lines of progress
PAUSE = 0.005  # seconds between looks: less than an iteration of anything worth watching


class FaultInjector:
    """Watches the fit that is started within the `with` block, and that writes these metrics; kills the rank `victim`,
    where it is not None, once `moment` iterations were made."""

    def __init__(self, metrics: str, victim: int | None, moment: int) -> None:
        self.metrics, self.victim, self.moment = Path(metrics), victim, moment
        self.killed_at: int | None = None  # the last iteration that was seen before the rank was killed
        self._tag, self._done = uuid.uuid4().hex, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> FaultInjector:
        self.metrics.unlink(missing_ok=True)  # that of an earlier fit
        os.environ[TAG] = self._tag
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._done.set()
        self._thread.join()
        del os.environ[TAG]

    def _watch(self) -> None:
        shown = time.monotonic()
        while not self._done.wait(PAUSE):
            record = self._last()
            if record is None:
                continue
            iteration = record["iteration"]
            if self.victim is not None and self.killed_at is None and iteration >= self.moment:
                self._kill(iteration)
            if time.monotonic() - shown >= EVERY_SECONDS:
                shown = time.monotonic()
                print(f"iteration {iteration}  bound {record['bound']:.1f} nats", file=sys.stderr, flush=True)

    def _last(self) -> dict | None:
        """Return the newest whole record; None where there is none yet."""
        with suppress(OSError, ValueError):  # not there, or cut off by a fit that goes back to a copy
            lines = self.metrics.read_text().splitlines()
            return json.loads(lines[-1]) if lines else None
        return None

    def _kill(self, iteration: int) -> None:
        """Kill the first process of the victim's rank that has this fit's tag, if there is one."""
        for process, environment in environments():
            if environment.get(TAG) == self._tag and launched_rank(environment) == self.victim:
                with suppress(ProcessLookupError):  # it ended a moment ago
                    os.kill(process, signal.SIGKILL)
                    self.killed_at = iteration
                return
