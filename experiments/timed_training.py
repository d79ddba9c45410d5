"""Training against the clock of the CPU, by programs that start from the same point: scores at marks of the time used.

Needs NumPy alone, so that the programs of peers have it too, each in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Callable[[], dict[str, float]]

BATCH = 1024  # rows of a minibatch
RATE = 0.01  # of Adam
BLOCK = 4096  # rows that are predicted together


class Problem(NamedTuple):
    """A regression whose columns are standardized, and the parameters that all programs start from.

    X : (n, q), Y : (n, 1), to learn from.   X_new : (n*, q), Y_new : (n*, 1), to predict
    Z : (m, q), inducing inputs.   alpha : (q,), ARD weights.   variance : the kernel's.   beta : precision of the noise
    """

    X: Floats
    Y: Floats
    X_new: Floats
    Y_new: Floats
    Z: Floats
    alpha: Floats
    variance: float
    beta: float


class Task(NamedTuple):
    """kernel : its name.   marks : CPU seconds, in order.   iterations : of L-BFGS at most.   seed : of minibatches."""

    kernel: str
    marks: Sequence[float]
    iterations: int
    seed: int


Method: TypeAlias = Callable[["Problem", "Task", "Recorder"], None]


class Recorder:
    """Scores a model at marks of the time that its training has used; the time of the scoring is not counted.

    records : of each mark `seconds`, `iterations` and the scores; iterations longer than the time between marks give
        one record for several
    """

    def __init__(self, marks: Sequence[float], clock: Callable[[], float] = time.process_time) -> None:
        self.records: list[dict[str, float]] = []
        self._marks, self._clock = list(marks), clock
        self.begin()

    def begin(self) -> None:
        """Set the clock to zero."""
        self._began = self._clock()

    def __call__(self, iteration: int, score: Score) -> bool:
        """Take a record where a mark has passed by the end of an iteration; return whether it was the last mark."""
        seconds = self._clock() - self._began
        if self._marks and seconds >= self._marks[0]:
            self._record(iteration, seconds, score)
            self._marks = [mark for mark in self._marks if mark > seconds]
        return not self._marks

    def finish(self, iteration: int, score: Score) -> None:
        """Take a record of the last iteration, where there is none."""
        if not self.records or self.records[-1]["iterations"] < iteration:
            self._record(iteration, self._clock() - self._began, score)

    def ending(self, iterations: int) -> str:
        """Return why a training of so many iterations at most has ended."""
        if not self._marks:
            return "out of time"
        return "out of iterations" if self.records[-1]["iterations"] >= iterations else "converged"

    def _record(self, iteration: int, seconds: float, score: Score) -> None:
        scores = score()
        if not np.isfinite(list(scores.values())).all():
            raise FloatingPointError(f"the scores after {iteration} iterations are not finite")
        self.records.append({"seconds": seconds, "iterations": iteration, **scores})
        self._began = self._clock() - seconds


def scored(Y: Floats, mean: Floats, variance: Floats | float) -> dict[str, float]:
    """Return the root mean square error, and the mean negative log density of an output in nats, of predictions."""
    square = (Y - mean) ** 2
    nlpd = 0.5 * np.mean(np.log(2 * np.pi * variance) + square / variance)
    return {"rmse": float(np.sqrt(square.mean())), "nlpd": float(nlpd)}


def minibatches(n: int, seed: int) -> Iterator[NDArray[np.intp]]:
    """Yield minibatches without end, by the numbers of their rows: all but a rest in each epoch, in a new order."""
    rng, size = np.random.default_rng(seed), min(n, BATCH)
    while True:
        order = rng.permutation(n)
        yield from (order[first : first + size] for first in range(0, n - size + 1, size))


def blocks(n: int) -> list[slice]:
    """Return slices that cover n rows."""
    return [slice(first, min(n, first + BLOCK)) for first in range(0, n, BLOCK)]


def main(methods: dict[str, Method], version: str) -> None:
    """Run a method of a peer as its command line says, and print what it found as one JSON object.

    version : of the peer; beside it are `records`, and `status`, the reason of the end: an error that training met with
        does not take away the records before it
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("method", choices=methods)
    parser.add_argument("data", help="NPZ file of a Problem")
    parser.add_argument("task", help="JSON of a Task")
    arguments = parser.parse_args()
    task = Task(**json.loads(arguments.task))
    with np.load(arguments.data) as file:
        problem = Problem(**{name: file[name] for name in file})
    recorder = Recorder(task.marks)
    try:
        methods[arguments.method](problem, task, recorder)
        status = recorder.ending(task.iterations)
    except Exception as error:  # a peer may raise anything
        status = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    found: dict[str, Any] = {"version": version, "records": recorder.records, "status": status}
    print(json.dumps(found))
