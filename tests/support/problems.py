"""Seeded problems, and one evaluation of them by the engine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import GPLVM, Inducing, Model, Regression, Statistics
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from tests.support import reference

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


def change(problem: Problem, **parameters: object) -> Problem:
    """Return the problem with other parameters."""
    return problem._replace(parameters=problem.parameters._replace(**parameters))


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
    S = None if model.name == REGRESSION.name else np.array(S, order="C")
    rows = Rows(MPI.COMM_SELF, len(Y), np.array(mu, order="C"), S, np.array(Y, order="C"))
    m, q = parameters.Z.shape
    evaluation = Evaluator(MPI.COMM_SELF, model, rows, m, q, threads)(parameters, jitter)
    return Result(
        evaluation.bound, evaluation.gradient, rows.gradients.get("mu"), rows.gradients.get("S"), evaluation.jitter
    )


class Team:
    """Threads that stand for the ranks of a communicator; `sums` keeps the result of each reduction."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.buffers: list = [None] * size
        self.sums: list[np.ndarray] = []

    def run(self, work: Callable[[Member], object]) -> list:
        """Return what `work` returns on each rank; an exception of one rank ends all."""

        def run(rank: int) -> object:
            try:
                return work(Member(self, rank))
            except BaseException:
                self.barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(run, range(self.size)))


class Member:
    """What the engine uses of a communicator, for one rank of a team."""

    def __init__(self, team: Team, rank: int) -> None:
        self.team, self.rank, self.size = team, rank, team.size

    def Barrier(self) -> None:
        self.team.barrier.wait(60)

    def Bcast(self, buffer: np.ndarray, root: int = 0) -> None:
        self.team.buffers[self.rank] = buffer
        self.Barrier()
        if self.rank != root:
            buffer[...] = self.team.buffers[root]
        self.Barrier()

    def allgather(self, item: object) -> list:
        self.team.buffers[self.rank] = item
        self.Barrier()
        items = list(self.team.buffers)
        self.Barrier()
        return items

    def Allreduce(self, _: object, buffer: np.ndarray, op: MPI.Op) -> None:
        self.team.buffers[self.rank] = buffer
        self.Barrier()
        total = (np.max if op == MPI.MAX else np.sum)(self.team.buffers, axis=0)
        self.Barrier()
        buffer[...] = total
        if self.rank == 0:
            self.team.sums.append(total)


def evaluate_on_ranks(
    model: Model, problem: Problem, jitter: float, borders: Sequence[int], threads: int = 1
) -> tuple[Result, list[np.ndarray]]:
    """Evaluate with the rows between neighbouring `borders` on one rank each; return also what each reduction gave."""
    mu, S, Y, parameters = problem
    m, q = parameters.Z.shape
    team = Team(len(borders) - 1)

    def work(comm: Member) -> Result:
        mine = slice(borders[comm.rank], borders[comm.rank + 1])
        rows = Rows(
            comm, len(Y), mu[mine].copy(), None if model.name == REGRESSION.name else S[mine].copy(), Y[mine].copy()
        )
        evaluation = Evaluator(comm, model, rows, m, q, threads)(parameters if comm.rank == 0 else None, jitter)
        return Result(
            evaluation.bound, evaluation.gradient, rows.gradients.get("mu"), rows.gradients.get("S"), evaluation.jitter
        )

    results = team.run(work)
    assert len({result.bound for result in results}) == 1
    if model.name == REGRESSION.name:
        return results[0], team.sums
    by_mu, by_S = (np.concatenate([getattr(r, name) for r in results]) for name in ("by_mu", "by_S"))
    return results[0]._replace(by_mu=by_mu, by_S=by_S), team.sums


def summary_of(model: Model, problem: Problem, jitter: float) -> tuple[Statistics, Inducing]:
    """Return the statistics of all rows as the bound takes them, and the inducing points they belong to."""
    seen: list[tuple[Statistics, Inducing]] = []

    class Watched(type(model)):
        def summary(self, inducing: Inducing, *arguments: object) -> Statistics:
            seen.append((super().summary(inducing, *arguments), inducing))
            return seen[-1][0]

    evaluate(Watched(), *problem, jitter)
    return seen[-1]


def reference_of(model: Model, problem: Problem, jitter: float) -> tuple[Callable[..., complex], dict]:
    """Return the slow bound of `model`, and the arguments that put it at `problem`."""
    values = {"Y": problem.Y, **problem.parameters._asdict(), "jitter": jitter}
    if model.name == REGRESSION.name:
        return partial(reference.regression_bound, bound=model.bound), {"X": problem.mu, **values}
    return partial(reference.gplvm_bound, bound=model.bound), {"mu": problem.mu, "S": problem.S, **values}


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
