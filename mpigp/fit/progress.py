"""The progress of a fit, as rank 0 shows it: a line on a terminal or in a log, and a file of metrics."""

import json
import os
import time
from contextlib import suppress
from typing import IO

from mpigp.fit.loop import Fit

EVERY_SECONDS = 5.0  # between the lines of a log


def shares(fit: Fit) -> dict[str, float]:
    """Return the shares of the time that went into computing, waiting, and messages."""
    seconds = fit.objective.evaluator.phases.seconds
    total = sum(seconds.values()) or 1.0
    return {"compute": (seconds["statistics"] + seconds["gradients"] + seconds["bound"]) / total,
            "wait": seconds["wait"] / total,
            "messages": (seconds["broadcast"] + seconds["reduce"]) / total}  # fmt: skip


class Progress:
    """A handler that shows the iterations: a live line on a terminal, a plain line now and then elsewhere."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream, self.live = stream, stream.isatty()
        self._last = -EVERY_SECONDS

    def __call__(self, fit: Fit) -> None:
        now = time.monotonic()
        if not self.live and not fit.stopped and now - self._last < EVERY_SECONDS:
            return
        self._last = now
        trace, share = fit.trace, shares(fit)
        each = trace.seconds[-1] / fit.iteration
        left = (fit.settings.max_iter - fit.iteration) * each
        text = (
            f"iteration {fit.iteration}  bound {trace.bound[-1]:.4f}  gradient {trace.gradient_norm[-1]:.3g}  "
            f"{each:.3g} s/iteration  compute {share['compute']:.0%} wait {share['wait']:.0%} "
            f"messages {share['messages']:.0%}  at most {left:.0f} s left"
        )
        self.stream.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
        self.stream.flush()

    def close(self) -> None:
        if self.live:
            self.stream.write("\n")


class Metrics:
    """A handler that writes one JSON object per iteration to a file.

    kept : iterations that a resumed fit begins with: their records stay, those that a killed run wrote later go
    """

    def __init__(self, path: str, kept: int) -> None:
        if kept and os.path.isfile(path):
            with open(path, "r+b") as file:
                length = 0
                with suppress(ValueError):  # a line that was cut off
                    for line in file:
                        if json.loads(line)["iteration"] > kept or not line.endswith(b"\n"):
                            break
                        length += len(line)
                file.truncate(length)
        self.file = open(path, "a" if kept else "w")  # noqa: SIM115 - closed by `close`

    def __call__(self, fit: Fit) -> None:
        last = {name: series[-1] for name, series in vars(fit.trace).items()}
        self.file.write(json.dumps({"iteration": fit.iteration, **last, **shares(fit)}) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()
