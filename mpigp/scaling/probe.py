"""The latency and the bandwidth between ranks: ping-pong, and reductions of all ranks for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from mpigp.types import Comm

SIZES = (8, 1024, 64 * 1024, 1024 * 1024, 4 * 1024 * 1024)  # bytes
SECONDS = 0.05  # for each size, about
MOST, FEWEST = 1000, 5  # messages of a size


def probe(comm: Comm) -> dict[str, Any]:
    """Time messages from the first rank to the last and back, and reductions; return the figures on every rank.

    The last rank is on the farthest node where launchers fill nodes one after another. `latency` is half of the
    ping-pong of the shortest message, in seconds; `bandwidth`, in bytes per second, is that of the longest message with
    the latency taken off.
    """
    from mpi4py import MPI

    one_way, reductions = [], []
    for size in SIZES:
        buffer = np.zeros(size // 8, np.int64)
        one_way.append(0.5 * timed(comm, lambda buffer=buffer: ping_pong(comm, buffer)))  # type: ignore[misc]
        reductions.append(timed(comm, lambda buffer=buffer: comm.Allreduce(MPI.IN_PLACE, buffer)))  # type: ignore[misc]
    return {
        "ranks": comm.size,
        "nodes": comm.allgather(MPI.Get_processor_name()),
        "latency": one_way[0],
        "bandwidth": SIZES[-1] / max(one_way[-1] - one_way[0], 1e-12),
        "sizes": list(SIZES),
        "one_way": one_way,
        "allreduce": reductions,
    }


def ping_pong(comm: Comm, buffer: np.ndarray) -> None:
    """Send a message from the first rank to the last and back; the others do nothing."""
    last = comm.size - 1
    if comm.rank == 0:
        comm.Send(buffer, dest=last)
        comm.Recv(buffer, source=last)
    elif comm.rank == last:
        comm.Recv(buffer, source=0)
        comm.Send(buffer, dest=0)


def timed(comm: Comm, work: Callable[[], object]) -> float:
    """Return the median seconds of some work on rank 0, on all ranks; repeated as often as a fixed time allows."""
    work()
    comm.Barrier()
    start = time.perf_counter()
    work()
    once = comm.bcast(time.perf_counter() - start)
    seconds = []
    for _ in range(min(MOST, max(FEWEST, int(SECONDS / max(once, 1e-9))))):
        comm.Barrier()
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return comm.bcast(median(seconds))
