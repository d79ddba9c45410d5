"""The tutorial's failure experiment (§5.2): how learning suffers when nodes fail, by what is done about it.

Every iteration each node fails with the same probability, for as long as the iteration takes. The optimiser is scaled
conjugate gradients, as in the tutorial, and knows nothing of the failures: it compares bounds, and takes differences of
gradients, that different nodes contributed to. An iteration is one try of a step, whether it is taken or not.

Two bounds are recorded. `seen` is what the optimiser believes: the value that the failing cluster gave for the point
when it was taken. `true` is the complete bound at that point, evaluated apart and without failures.

There are four ways to treat a node that failed (cluster.py):

drop      its terms are left out of the sums of both rounds: F is that of the rows which answered (tutorial §5.2)
rescale   so they are, and the sums of the others are scaled by n / n_alive
stale     its last terms are used again
recover   the others compute its chunks: nothing is lost (what `mpigp fit` does)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.cluster import WAYS, Cluster
from experiments.command import main, option
from experiments.source import Source
from mpigp.chunks import chunk_count
from mpigp.errors import InputError
from mpigp.fit.objective import Objective
from mpigp.fit.optimizers.gd import GradientDescent
from mpigp.fit.optimizers.scg import SCG
from mpigp.fit.options import Options
from mpigp.fit.setup import standardize
from mpigp.fit.start.initialize import initialize
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import EvaluationFailed, Evaluator
from mpigp.mpi.rows import Rows
from mpigp.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm


SUMMARY = "what failing nodes do to learning (tutorial §5.2)"
NEEDS = {"matplotlib": "report"}
PARALLEL = True

FAILURE_STREAM = 2  # keeps these random numbers apart from others of the same seed
OPTIMIZERS: dict[str, Any] = {"scg": SCG, "gd": GradientDescent}


@dataclass(frozen=True)
class Study:
    """The options."""

    nodes: int = option(10, "N", "nodes of the simulated cluster")
    iterations: int = option(500, "N", "iterations of each run")
    repeats: int = option(10, "N", "runs of each rate and way, each from inducing points of its own")
    rates: tuple[float, ...] = option((0.0, 0.01, 0.02), "P,...", "probabilities that a node fails in an iteration")
    inducing: int = option(30, "M", "inducing points")
    latent: int = option(10, "Q", "latent dimensions")
    optimizer: str = option("scg", None, "scg is the tutorial's", choices=tuple(OPTIMIZERS))
    every: int = option(10, "K", "iterations between two evaluations of the true bound")
    seed: int = option(0, "S", "seed of everything random")
    jitter: float = option(1e-6, "J", "jitter on the diagonal of K_mm")

    def check(self, n: int, d: int) -> None:
        """Refuse values that have no meaning for n rows of d outputs; the error begins with the option's name."""
        for name in ("nodes", "iterations", "repeats", "inducing", "latent", "every"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name}: is {getattr(self, name)}: give a number ≥ 1")
        if self.nodes > chunk_count(n):
            raise InputError(
                f"--nodes: is {self.nodes}, but {n} rows are {chunk_count(n)} chunks, and a node has at least one: "
                f"give at most {chunk_count(n)}, or more rows"
            )
        if not self.rates or not all(0 <= rate < 1 for rate in self.rates):
            raise InputError(
                f"--rates: is {','.join(f'{rate:g}' for rate in self.rates)}: give probabilities in [0, 1), like 0.01"
            )
        if len(set(self.rates)) < len(self.rates):
            raise InputError("--rates: holds a rate twice: give each once")
        if self.inducing > n:
            raise InputError(f"--inducing: is {self.inducing}, but there are {n} rows: give at most as many")
        if self.latent > d:
            raise InputError(f"--latent: is {self.latent}, but the data have {d} columns: give at most as many")
        if not self.jitter >= 0:
            raise InputError(f"--jitter: is {self.jitter:g}: give a number ≥ 0")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed: is {self.seed}: give a number between 0 and 2**63 - 1")


class Job(NamedTuple):
    """One run: its repeat, its rate, and what is done about failures; no `way` at rate 0, where all are the same."""

    repeat: int
    rate: float
    way: str | None


@dataclass(frozen=True)
class Run:
    """What one run gave.

    true : at the iterations of `checked`.   seen : at iterations 0, 1, ...; both in nats, None where there is no bound
    alpha : the ARD weights at the end, largest first
    failures : of nodes, in all iterations.   steps : that were taken
    """

    repeat: int
    rate: float
    way: str | None
    true: list[float | None]
    seen: list[float | None]
    alpha: list[float]
    failures: int
    steps: int
    seconds: float


def jobs(study: Study, repeats: Sequence[int]) -> list[Job]:
    """Return the runs of these repeats."""
    return [Job(repeat, rate, way) for repeat in repeats for rate in study.rates for way in (WAYS if rate else (None,))]


def failed(study: Study, repeat: int, iteration: int, rate: float) -> frozenset[int]:
    """Return the nodes that fail in an iteration: a matter of (seed, repeat, iteration, node) and the rate alone.

    A node that fails at one rate does so at every higher one. If all would fail, one does not.
    """
    numbers = np.random.default_rng([study.seed, FAILURE_STREAM, repeat, iteration]).random(study.nodes)
    return frozenset(np.flatnonzero((numbers < rate) & (numbers < numbers.max())).tolist())


def checked(study: Study) -> list[int]:
    """Return the iterations after which the true bound is evaluated: the start, every so many, and the last."""
    return sorted({*range(0, study.iterations + 1, study.every), study.iterations})


def run(comm: Comm, Y: Floats, study: Study, job: Job) -> Run:
    """Learn a GPLVM of Y (n, d), standardised, on a cluster that fails. `comm` is of this process alone."""
    began = time.perf_counter()
    n = len(Y)
    options = Options(model="gplvm", inducing=study.inducing, latent=study.latent)
    start, mu, S = initialize(None, DistributedRows(comm, n, Y), options, study.seed + job.repeat)
    rows = Rows(comm, n, mu, S, Y)
    cluster = Cluster(comm, rows, study.inducing, study.nodes, job.way or "recover")
    complete = Evaluator(comm, cluster.model, rows, study.inducing, study.latent)
    objective = Objective(cluster, study.jitter)
    optimizer = OPTIMIZERS[study.optimizer](objective, objective.space, objective.point(start), patience=1)

    def truth() -> float | None:
        objective.place(optimizer.point)
        try:
            return complete(objective.parameters(optimizer.point), study.jitter).bound
        except EvaluationFailed:
            return None

    wanted = set(checked(study))
    true, seen, failures, steps = [truth()], [finite(-optimizer.value)], 0, 0
    for iteration in range(1, study.iterations + 1):
        cluster.dead = failed(study, job.repeat, iteration, job.rate)
        failures += len(cluster.dead)
        with np.errstate(over="ignore"):  # a step that is too long has no bound, and is not taken
            steps += optimizer.step()
        seen.append(finite(-optimizer.value))
        if iteration in wanted:
            true.append(truth())
    alpha = np.sort(objective.parameters(optimizer.point).alpha)[::-1]
    return Run(*job, true, seen, alpha.tolist(), failures, steps, time.perf_counter() - began)


def finite(value: float) -> float | None:
    """Return a number that JSON knows; None where it is none."""
    return value if math.isfinite(value) else None


def run_all(comm: Comm, alone: Comm, Y: Floats, study: Study, threads: int, told: Callable[[], object]) -> list[Run]:
    """Return all runs, on rank 0: rank r takes the repeats r, r + size, ..., and its threads the runs of them.

    Y : (n, d), all rows, on every rank.   alone : the communicator of each rank by itself
    told : called after each run
    """
    Y = Y.copy()
    standardize("scale", None, DistributedRows(alone, len(Y), Y))
    mine = jobs(study, range(comm.rank, study.repeats, comm.size))
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(run, alone, Y, study, job) for job in mine]
        for future in as_completed(futures):
            future.result()
            told()
    found = comm.gather([future.result() for future in futures])
    return sorted((each for part in found or [] for each in part), key=lambda each: each.repeat)


def select(runs: Sequence[Run], rate: float, way: str) -> list[Run]:
    """Return the runs of a rate and a way, by repeat."""
    return [each for each in runs if each.rate == rate and each.way in (way, None)]


def table(runs: Sequence[Run], study: Study) -> list[dict[str, Any]]:
    """Return, for each rate and way, what the repeats came to in the end.

    bound : mean of the true bounds at the last iteration; `median`, and `spread`, their standard deviation
    seen : mean of the bounds as the cluster saw them
    largest, second, others : ARD weights: the largest, the next, and the mean of all but the largest; means of repeats
    failures, steps : means of the repeats
    """
    lines = []
    for rate in study.rates:
        for way in WAYS if rate else ("all",):
            chosen = select(runs, rate, way)
            bounds = np.array([each.true[-1] for each in chosen], float)  # None becomes NaN
            alpha = np.array([each.alpha for each in chosen])
            mean = {
                "bound": bounds.mean(),
                "median": np.median(bounds),
                "spread": bounds.std(ddof=1) if len(bounds) > 1 else 0.0,
                "seen": np.mean([math.nan if each.seen[-1] is None else each.seen[-1] for each in chosen]),
                "largest": alpha[:, 0].mean(),
                "second": alpha[:, 1].mean() if alpha.shape[1] > 1 else math.nan,
                "others": alpha[:, 1:].mean() if alpha.shape[1] > 1 else math.nan,
                "failures": np.mean([each.failures for each in chosen]),
                "steps": np.mean([each.steps for each in chosen]),
            }
            lines.append({"rate": rate, "way": way, **{name: finite(float(value)) for name, value in mean.items()}})
    return lines


def coincide(runs: Sequence[Run], study: Study) -> bool | None:
    """Return whether every run that recovered has the numbers of its repeat at rate 0; None where there are none."""
    if 0.0 not in study.rates or len(study.rates) < 2:
        return None
    without = {each.repeat: each for each in runs if each.rate == 0.0}
    return all(
        (each.true, each.seen, each.alpha, each.steps) == (other.true, other.seen, other.alpha, other.steps)
        for each in runs
        if each.way == "recover"
        for other in [without[each.repeat]]
    )


def record(runs: Sequence[Run], study: Study) -> dict[str, Any]:
    """Return all numbers, as JSON holds them."""
    return {
        "study": asdict(study),
        "iterations": checked(study),
        "table": table(runs, study),
        "recover_coincides": coincide(runs, study),
        "runs": [asdict(each) for each in runs],
    }


def conduct(comm: Comm, study: Study, source: Source, threads: int) -> dict[str, Any] | None:
    """Run all."""
    from mpi4py import MPI

    with raise_on_all_ranks(comm):
        Y, _ = source.oilflow(labelled=False)
        study.check(*Y.shape)
    mine = len(jobs(study, range(comm.rank, study.repeats, comm.size)))
    with tqdm(total=mine, unit="run", disable=None if comm.rank == 0 else True) as progress:
        runs = run_all(comm, MPI.COMM_SELF, Y, study, threads, progress.update)
    return {"shape": list(Y.shape), **record(runs, study)} if comm.rank == 0 else None


COLUMNS = {  # of the table: heading, name, format
    "true bound": ("bound", "11.1f"), "± sd": ("spread", "10.1f"), "median": ("median", "10.1f"),
    "seen bound": ("seen", "11.1f"), "largest α": ("largest", "9.3f"), "second": ("second", "7.3f"),
    "others": ("others", "7.3f"), "failures": ("failures", "8.1f"), "steps": ("steps", "7.1f"),
}  # fmt: skip


def shown(found: dict[str, Any]) -> list[str]:
    """Return the table as lines: true final bounds, and ARD weights as the tutorial quotes them."""
    rows = [["  rate", "way    ", *(f"{heading:>{kind.split('.')[0]}}" for heading, (_, kind) in COLUMNS.items())]]
    for line in found["table"]:
        cells = [
            f"{'none':>{kind.split('.')[0]}}" if line[name] is None else format(line[name], kind)
            for name, kind in COLUMNS.values()
        ]
        rows.append([f"{line['rate']:6.3g}", f"{line['way']:7}", *cells])
    lines = [" ".join(row) for row in rows]
    if found["recover_coincides"] is not None:
        lines.append("recover: bit for bit the same as without failures" if found["recover_coincides"] else
                     "recover: DIFFERS from the runs without failures: please report this")  # fmt: skip
    return lines


def picture(found: dict[str, Any]) -> Figure:
    """Return the bounds against the iteration."""
    from experiments import figure

    return figure.picture([Run(**each) for each in found["runs"]], Study(**found["study"]))


if __name__ == "__main__":
    main("failures")
