"""Starts that are tried: a fit begins on few rows, from several starts, and the best goes on with more rows.

Which rows these are depends on the number of rows, of inducing points and the seed alone, so that a fit begins at the
same point on any number of ranks.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mpigp.chunks import share
from mpigp.fit.loop import Fit
from mpigp.fit.objective import Objective
from mpigp.fit.optimizers.lbfgs import Learned
from mpigp.fit.options import Options
from mpigp.fit.start.inducing import draw, greedy, kmeans
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import model_of
from mpigp.kernels.registry import backend_of
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from mpigp.types import Integers

SMALLEST = 1000  # rows, of which starts are worth trying
FIRST, GROWTH, LARGEST = 2**13, 4, 2**15
"""Rows of the first subset, how many times more the next has, and the most. Fewer put inputs to zero that all rows have
a use for, and a weight near zero hardly moves again."""

NUMBERS = 2**21  # of a subset, at most: every rank holds them
ITERATIONS, LATER = 20, 10  # on the first subset, and on each larger one
MARGIN = 0.01  # nats per row that another start must be better by: the first iterations do not tell all
MOST_COMPARED = 200
"""Inducing points up to which starts are compared. With more, a comparison costs as much as the first third of a fit's
way to a good model, and where so many points lie matters less."""

ROWS_STREAM = 3  # keeps these random numbers apart from others of the same seed


class Start(NamedTuple):
    """Where a fit begins.

    parameters : the globals, on every rank
    learned : what a search knows from its way there, or None
    tried : the bounds that were compared, by the name of the start; empty where there was one
    best : which of them it is.   rows : on how many rows they were compared
    """

    parameters: Globals
    learned: Learned | None = None
    tried: dict[str, float] = {}  # noqa: RUF012 - never changed
    best: str = ""
    rows: int = 0


def subset_sizes(n: int, m: int, columns: int) -> list[int]:
    """Return the numbers of rows of the subsets that a fit of n rows begins on."""
    size = FIRST
    while size < GROWTH * m:
        size *= 2
    sizes = []
    while 2 * size <= n and size <= LARGEST and size * columns <= NUMBERS:
        sizes.append(size)
        size *= GROWTH
    return sizes


def subset(rows: DistributedRows, numbers: Integers) -> DistributedRows:
    """Return the rows of these numbers, spread over the ranks. Collective."""
    taken = rows.take(numbers)
    start, stop = share(len(taken), rows.comm.rank, rows.comm.size)
    return DistributedRows(rows.comm, len(taken), np.ascontiguousarray(taken[start:stop]))


class Problem(NamedTuple):
    """Regression on some rows."""

    X: DistributedRows
    objective: Objective


def problem(X: DistributedRows, Y: DistributedRows, options: Options) -> Problem:
    """Return the regression of these rows. Collective."""
    rows = Rows(X.comm, X.n, X.local, None, Y.local)
    model = model_of(options.model, options.kernel, options.bound)
    evaluator = Evaluator(X.comm, model, rows, options.inducing, X.columns, options.threads)
    return Problem(X, Objective(evaluator, options.jitter))


def began(problem: Problem, options: Options, start: Start, iterations: int) -> Fit:
    """Return a fit after so many iterations from a start, which do not depend on the iterations that the fit may make:
    it may be resumed to make more."""
    few = replace(options, max_iter=iterations)
    fit = Fit(problem.objective, few, start.parameters, learned=start.learned)
    fit.run()
    return fit


def learned_parameters(fit: Fit) -> Globals:
    """Return the globals at a fit's point, on every rank. Collective."""
    objective = fit.objective
    packed = objective.parameters(fit.optimizer.point).pack()
    objective.evaluator.comm.Bcast(packed)  # rank 0's count
    return Globals.unpack(packed, objective.m, objective.q)


def reached(fit: Fit, n: int) -> Start:
    """Return the point of a fit as a start for n rows, whose bound has as many times more curvature. Collective."""
    learned = fit.learned
    if learned is not None:
        learned = learned._replace(step=learned.step * fit.objective.evaluator.rows.n / n)
    return Start(learned_parameters(fit), learned)


def regression_start(X: DistributedRows, Y: DistributedRows, options: Options, first: Globals) -> Start:
    """Return the start of a regression of these rows, of which `first` is the plain one. Collective.

    On the first subset, or on all rows where they are few, these are compared after some iterations: `first`, the same
    with cluster centers for inducing points, and the better of them with inducing points that are chosen greedily under
    the kernel that it has learned by then (Burt et al. 2020). The best goes on to larger subsets.
    """
    m = options.inducing
    sizes = subset_sizes(X.n, m, X.columns + Y.columns)
    problems = [problem(X, Y, options)] if not sizes else []
    if sizes:
        most = draw(X.n, sizes[-1], options.seed, ROWS_STREAM)
        all_X, all_Y = (subset(each, most) for each in (X, Y))
        for size in sizes:
            some = draw(len(most), size, options.seed, ROWS_STREAM)
            problems.append(problem(subset(all_X, some), subset(all_Y, some), options))
    arena = problems[0]
    fits = {"random": began(arena, options, Start(first), ITERATIONS)}
    best = "random"
    for name in others(options):
        learned = learned_parameters(fits[best])
        if name == "kmeans":
            start = first._replace(Z=kmeans(arena.X, m, options.seed))
        else:
            start = learned._replace(Z=greedy(arena.X, m, backend_of(options.kernel), learned.alpha, options.seed))
        fits[name] = began(arena, options, Start(start), ITERATIONS)
        if fits[name].bound > fits[best].bound + MARGIN * arena.X.n:
            best = name
    fit = fits[best]
    for larger in problems[1:]:
        fit = began(larger, options, reached(fit, larger.X.n), LATER)
    compared = {name: fit.bound for name, fit in fits.items()} if len(fits) > 1 else {}
    return reached(fit, X.n)._replace(tried=compared, best=best, rows=arena.X.n)


def others(options: Options) -> list[str]:
    """Return the names of the starts that are compared with the plain one."""
    if options.placement != "auto" or options.inducing > MOST_COMPARED:
        return []
    return ["kmeans", "greedy"]
