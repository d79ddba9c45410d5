"""How many inducing points a regression gets where that is left to the program: as many as the certificate asks for.

m doubles until no more inducing points can gain much, at the kernel and noise that some iterations on a subset of the
rows have learned by then. The certificate is that of all rows.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mpigp.fit.options import Options
from mpigp.fit.start.inducing import draw, greedy
from mpigp.fit.start.initialize import first_globals
from mpigp.fit.start.trials import FIRST, GROWTH, ITERATIONS, ROWS_STREAM, Start, began, problem, reached, subset
from mpigp.gp.parameters import Globals
from mpigp.kernels.registry import backend_of
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Floats

FEWEST = 32  # inducing points to begin with
NATS = 0.01  # per row and output, that more inducing points may gain at most
EXPLAINED = 0.02
"""Of the variance of Y: a fit that explains less explains next to nothing. Its certificate says little: where a kernel
has no use for any points, more of them gain nothing."""


class Grown(NamedTuple):
    """The start with as many inducing points as were found to be enough, and the gap of each number that was tried."""

    start: Start
    gaps: dict[int, float]


def grow(X: DistributedRows, Y: DistributedRows, options: Options, x_scale: Floats | None = None) -> Grown:
    """Return the start of a regression with at most `options.inducing` points, of which no more can gain `options.grow`
    nats per row and output, or as many as there may be. Collective."""
    assert options.grow is not None
    most = min(options.inducing, X.n)
    m, gaps = min(FEWEST, most), {}
    size = max(FIRST, GROWTH * most)
    numbers = draw(X.n, size, options.seed, ROWS_STREAM) if size < X.n else None
    some_X, some_Y = (each if numbers is None else subset(each, numbers) for each in (X, Y))
    start = Start(first_globals(X, Y, replace(options, inducing=m, placement="random"), options.seed, x_scale))
    while True:
        now = replace(options, inducing=m, hold=0)
        start = reached(began(problem(some_X, some_Y, now), now, start, ITERATIONS), X.n)
        gaps[m], explained = certified(X, Y, now, start.parameters)
        if (gaps[m] <= options.grow and explained >= EXPLAINED) or m == most:
            return Grown(start, gaps)
        m = min(2 * m, most)
        learned = start.parameters
        Z = greedy(some_X, m, backend_of(options.kernel), learned.alpha, options.seed, learned.Z)
        start = Start(learned._replace(Z=np.ascontiguousarray(Z)))


def certified(X: DistributedRows, Y: DistributedRows, options: Options, parameters: Globals) -> tuple[float, float]:
    """Return the certificate's gap for all rows at these parameters, inf where there is none, and the share of the
    variance of Y that is explained; on every rank. Collective."""
    evaluator = problem(X, Y, options).objective.evaluator
    evaluator(parameters, options.jitter)
    certificate = evaluator.certificate(parameters)
    gap = X.comm.bcast(math.inf if certificate is None else certificate.gap)
    return gap, 1 - 1 / (parameters.beta * evaluator.rows.variance)
