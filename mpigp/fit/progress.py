"""What a person sees of a fit: a live line on a terminal, a plain line now and then in a log, and a file of metrics."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import IO

from mpigp.fit.loop import Fit

EVERY_SECONDS = 5.0  # between the lines of a log


class Progress:
    """Shows a fit's iterations on `stream`, and writes each to the `metrics` file (JSON lines) where there is one."""

    def __init__(self, stream: IO[str] | None, metrics: IO[str] | None) -> None:
        self.stream, self.metrics = stream, metrics
        self.live = stream is not None and stream.isatty()
        self._last = -EVERY_SECONDS

    def __call__(self, fit: Fit) -> None:
        """Show the iteration that has just ended."""
        seconds = fit.objective.evaluator.phases.seconds
        total = sum(seconds.values()) or 1.0
        share = {
            "compute": (seconds["statistics"] + seconds["gradients"] + seconds["bound"]) / total,
            "wait": seconds["wait"] / total,
            "messages": (seconds["broadcast"] + seconds["reduce"]) / total,
        }
        trace = fit.trace
        if self.metrics is not None:
            record = {"iteration": fit.iteration, **{name: series[-1] for name, series in vars(trace).items()}, **share}
            self.metrics.write(json.dumps(record) + "\n")
            self.metrics.flush()
        if self.stream is None:
            return
        now = time.monotonic()
        if not self.live and not fit.stopped and now - self._last < EVERY_SECONDS:
            return
        self._last = now
        each = trace.seconds[-1] / fit.iteration
        left = (fit.settings.max_iter - fit.iteration) * each
        text = (
            f"iteration {fit.iteration}  bound {trace.bound[-1]:.4f}  gradient {trace.gradient_norm[-1]:.3g}  "
            f"{each:.3g} s/iteration  compute {share['compute']:.0%} wait {share['wait']:.0%} "
            f"messages {share['messages']:.0%}  at most {left:.0f} s left"
        )
        self.stream.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
        self.stream.flush()

    def end(self) -> None:
        """Leave the live line."""
        if self.live and self.stream is not None:
            self.stream.write("\n")


def keep_records(path: str, iterations: int) -> None:
    """Take from a file of metrics what a run that was killed wrote behind its last checkpoint."""
    if not os.path.isfile(path):
        return
    with open(path, "r+b") as file:
        length = 0
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:  # cut off
                break
            if not line.endswith(b"\n") or record["iteration"] > iterations:
                break
            length += len(line)
        file.truncate(length)


def output() -> IO[str]:
    """Return the stream that progress goes to."""
    return sys.stderr
