"""Seeded problems, and one evaluation of them by the engine."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import reference
from mpi4py import MPI

from mpigp.models import GPLVM, Model, Regression
from mpigp.parameters import Globals
from mpigp.rounds import Evaluator
from mpigp.rows import Rows

REGRESSION, LATENT = Regression(), GPLVM()
GLOBALS = ("Z", "variance", "alpha", "beta")


class Problem(NamedTuple):
    """Rows and parameters: mu (n, q), the inputs X in regression; S (n, q), which regression leaves out; Y (n, d)."""

    mu: np.ndarray
    S: np.ndarray
    Y: np.ndarray
    parameters: Globals


class Result(NamedTuple):
    """What one evaluation gives; by_mu and by_S are None in regression."""

    bound: float
    gradient: Globals
    by_mu: np.ndarray | None
    by_S: np.ndarray | None
    jitter: float

    def gradients(self) -> dict[str, np.ndarray]:
        """Return all gradients by the name of their parameter."""
        named = {name: np.asarray(getattr(self.gradient, name)) for name in GLOBALS}
        return named if self.by_mu is None else {**named, "mu": self.by_mu, "S": self.by_S}


def make(n: int, m: int, q: int, d: int, seed: int = 0) -> Problem:
    """Return rows near the origin, outputs that follow them, and parameters in the range that fits meet."""
    rng = np.random.default_rng([seed, n, m, q, d])
    mu = rng.normal(size=(n, q))
    Y = np.sin(mu @ rng.normal(size=(q, d))) + 0.1 * rng.normal(size=(n, d))
    parameters = Globals(rng.normal(size=(m, q)), 1.3, rng.uniform(0.3, 1.5, size=q), 4.0)
    return Problem(mu, rng.uniform(0.05, 1.0, size=(n, q)), Y, parameters)


def evaluate(
    model: Model,
    mu: np.ndarray,
    S: np.ndarray | None,
    Y: np.ndarray,
    parameters: Globals,
    jitter: float,
    threads: int = 1,
) -> Result:
    """Evaluate the bound and all gradients on one rank; S is left out in regression."""
    S = None if model is REGRESSION else np.array(S, order="C")
    rows = Rows(MPI.COMM_SELF, len(Y), np.array(mu, order="C"), S, np.array(Y, order="C"))
    m, q = parameters.Z.shape
    evaluation = Evaluator(MPI.COMM_SELF, model, rows, m, q, threads)(parameters, jitter)
    return Result(evaluation.bound, evaluation.gradient, rows.gradient_mu, rows.gradient_S, evaluation.jitter)


def reference_of(model: Model, problem: Problem, jitter: float) -> tuple[Callable[..., complex], dict]:
    """Return the slow bound of `model`, and the arguments that put it at `problem`."""
    values = {"Y": problem.Y, **problem.parameters._asdict(), "jitter": jitter}
    if model is REGRESSION:
        return reference.regression_bound, {"X": problem.mu, **values}
    return reference.gplvm_bound, {"mu": problem.mu, "S": problem.S, **values}


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in code that would run on: a loop without end fails its test instead of stopping all tests."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
