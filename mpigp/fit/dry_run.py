"""Memory, messages and seconds of a fit, estimated without running it."""

import time
from typing import Any

import numpy as np

from mpigp.chunks import chunk_rows, share
from mpigp.data.datasets import BLOCK_BYTES
from mpigp.fit.options import Options
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import model_of
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from mpigp.numerics.reproducible_sum import DIGITS
from mpigp.types import Comm

PROCESS = 100e6  # bytes of Python and its libraries
VECTORS = {"lbfgs": 28, "scg": 6, "gd": 4}  # as long as mu and S together, that an optimizer holds
BLOCKS = 5  # of a stream that are in memory at a time, in one form or another
KEPT = {"lbfgs": 24, "scg": 3, "gd": 2}  # of them, that a partner copy holds
COPIES = 4  # the last two, each of the rank's own rows and its neighbor's
SAMPLE = 4  # chunks that are timed


def row_numbers(options: Options, q: int, d: int, copies: bool) -> int:
    """Return how many numbers a fit holds for each row in memory; `copies` where ranks keep partner copies."""
    latent = options.model == "gplvm"
    vectors = VECTORS[options.optimizer] + KEPT[options.optimizer] * COPIES * copies
    return d + q * (1 + 3 * latent) + 2 * q * latent * vectors + 2 * (options.bound == "rows")


def dry_run(options: Options, comm: Comm, sizes: tuple[int, ...], stream: bool, copies: bool) -> dict[str, Any]:
    """Print and return memory per rank, bytes per iteration, and seconds per iteration, estimated from a few chunks.

    sizes : n, q and d, and the number of rows to validate by
    stream : rows stay in their file.   copies : ranks keep partner copies
    """
    n, q, d, held = sizes
    largest = max(share(n, rank, comm.size).rows for rank in range(comm.size))
    numbers = row_numbers(options, q, d, copies) - (d if options.model == "gplvm" else q + d) * stream
    validation = 0 if stream else max(share(held, rank, comm.size).rows for rank in range(comm.size)) * (q + d)
    memory = PROCESS + 8 * (largest * numbers + validation) + (BLOCKS * BLOCK_BYTES if stream else 0)
    seconds_per_row, message_bytes = sample(options, q, d)
    vectors = DIGITS * 8 * (2 * 21 + 2 + 11 * 11 / 4 if options.optimizer == "lbfgs" else 3)
    sent, seconds = message_bytes + vectors, seconds_per_row * largest / options.threads
    if comm.rank == 0:
        print(f"{largest} rows per rank, about {memory / 1e6:.0f} MB of memory each")
        print(f"{sent / 1e3:.0f} kB of messages per rank and iteration")
        print(f"about {seconds:.2g} s per iteration, at most {seconds * options.max_iter:.3g} s in all")
    return {"memory_per_rank": memory, "bytes_per_iteration": sent, "seconds_per_iteration": seconds,
            "rows_per_rank": largest, "seconds": seconds * options.max_iter}  # fmt: skip


def sample(options: Options, q: int, d: int) -> tuple[float, float]:
    """Time an evaluation of a few chunks of random rows on this rank; return seconds per row and bytes of messages."""
    from mpi4py import MPI

    rng = np.random.default_rng(0)
    n, m = SAMPLE * chunk_rows(10**9), options.inducing
    mu, Y = rng.standard_normal((n, q)), rng.standard_normal((n, d))
    S = np.full((n, q), 0.1) if options.model == "gplvm" else None
    rows = Rows(MPI.COMM_SELF, n, mu, S, Y)
    evaluator = Evaluator(MPI.COMM_SELF, model_of(options.model, options.kernel, options.bound), rows, m, q)
    parameters = Globals(rng.standard_normal((m, q)), 1.0, np.full(evaluator.p, 1 / q), 100.0)
    evaluator(parameters, options.jitter)
    evaluator.phases.clear()
    start = time.perf_counter()
    evaluator(parameters, options.jitter)
    return (time.perf_counter() - start) / n, float(evaluator.phases.bytes)
