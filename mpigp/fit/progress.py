"""The progress of a fit, as rank 0 shows it: a line on a terminal or in a log, and a file of metrics."""

import errno
import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from mpigp.fit.loop import Fit, Trace
from mpigp.mpi.processes import say

EVERY_SECONDS = 5.0  # between the lines of a log


def shares(fit: Fit) -> dict[str, float]:
    """Return the shares of the time that went into computing, waiting, and messages."""
    seconds = fit.objective.evaluator.phases.seconds
    total = sum(seconds.values()) or 1.0
    return {"compute": (seconds["statistics"] + seconds["gradients"] + seconds["bound"]) / total,
            "wait": seconds["wait"] / total,
            "messages": (seconds["broadcast"] + seconds["reduce"]) / total}  # fmt: skip


def validation(trace: Trace) -> str:
    """Return the last scores of the rows that the fit does not learn from; nothing where there are none yet."""
    scores = zip(reversed(trace.validation_rmse), reversed(trace.validation_nlpd), strict=True)
    last = next((each for each in scores if not math.isnan(each[1])), None)
    return "" if last is None else f"validation RMSE {last[0]:.4g} NLPD {last[1]:.4g}  "


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
        each = (trace.seconds[-1] - fit.began) / fit.iteration
        left = (fit.settings.max_iter - fit.iteration) * each
        text = (
            f"iteration {fit.iteration}  bound {trace.bound[-1]:.4f}  gradient {trace.gradient_norm[-1]:.3g}  "
            f"{validation(trace)}{each:.3g} s/iteration  compute {share['compute']:.0%} wait {share['wait']:.0%} "
            f"messages {share['messages']:.0%}  at most {left:.0f} s left"
        )
        with suppress(OSError):  # a log on a full disk does not end the fit
            self.stream.write(f"\r\x1b[K{text}" if self.live else f"{text}\n")
            self.stream.flush()

    def close(self) -> None:
        if self.live:
            self.stream.write("\n")


class Metrics:
    """A handler that writes one JSON object per iteration to a file; where that fails, it says so and writes no more.

    kept : iterations that a resumed fit begins with: their records stay, those that a killed run wrote later go
    """

    def __init__(self, path: str, kept: int) -> None:
        self.path = path
        self.file: IO[bytes] | None = None
        with self._warning():
            length = _length(path, kept)
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
            os.set_blocking(handle, True)  # but not for a pipe that nobody reads
            self.file = open(handle, "ab", buffering=0)  # noqa: SIM115 - closed by `close`
            if os.path.isfile(path):
                self.file.truncate(length)

    def __call__(self, fit: Fit) -> None:
        last = {name: None if math.isnan(series[-1]) else series[-1] for name, series in fit.trace.series().items()}
        line = (json.dumps({"iteration": fit.iteration, **last, **shares(fit)}) + "\n").encode()
        with self._warning():
            if self.file is not None and self.file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def _warning(self) -> Iterator[None]:
        """Turn an error of the file into a line, and close the file."""
        try:
            yield
        except OSError as error:
            say(f"{self.path}: {error.strerror}: the fit goes on without further metrics")
            self.close()

    def close(self) -> None:
        if self.file is not None:
            with suppress(OSError):
                self.file.close()
        self.file = None


def _length(path: str, kept: int) -> int:
    """Return the bytes of the records of the first `kept` iterations in a file of metrics."""
    length = 0
    if kept and os.path.isfile(path):
        with (
            open(path, "rb") as file,
            suppress(ValueError, TypeError, KeyError),
        ):  # a line that was cut off, or no record
            for line in file:
                if json.loads(line)["iteration"] > kept or not line.endswith(b"\n"):
                    break
                length += len(line)
    return length
