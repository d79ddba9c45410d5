"""Latency and bandwidth between ranks: those of known networks, or as a probe measures them by ping-pong."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from mpigp.errors import InputError
from mpigp.types import Comm

SIZES = (8, 1024, 64 * 1024, 1024 * 1024, 4 * 1024 * 1024)  # bytes
SECONDS = 0.05  # for each size, about
MOST, FEWEST = 1000, 5  # messages of a size


class Interconnect(NamedTuple):
    """latency : seconds of a short message one way;   bandwidth : bytes in a second;   source : of the two numbers."""

    name: str
    latency: float
    bandwidth: float
    source: str


NETWORKS = {  # by name, from the latency, the Gb/s of the standard, and where the latency is from
    name: Interconnect(name, latency, rate * 1e9 / 8, f"bandwidth: the line rate, {rate} Gb/s; latency: {source}")
    for name, latency, rate, source in (
        ("ethernet-10g", 25e-6, 10, "typical of MPI over TCP"),
        ("ethernet-100g", 15e-6, 100, "typical of MPI over TCP"),
        ("infiniband-hdr", 1.2e-6, 200, "typical of MPI across a switch"),
        ("slingshot", 2e-6, 200, "typical of MPI on Slingshot 11"),
    )
}


def find_interconnect(name: str) -> Interconnect:
    """Return the network of this name, or what a probe wrote to a file of this name."""
    if name in NETWORKS:
        return NETWORKS[name]
    path = Path(name)
    if not path.exists():
        known = ", ".join(NETWORKS)
        raise InputError(f"`interconnect`: {name} is neither a file of `mpigp scaling probe` nor one of {known}")
    try:
        probe = json.loads(path.read_text("utf-8"))
        measured = Interconnect(path.name, float(probe["latency"]), float(probe["bandwidth"]), "measured by a probe")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{name}: is no file of `mpigp scaling probe`: give one, or a network's name") from error
    return checked(measured)


def checked(interconnect: Interconnect) -> Interconnect:
    """Refuse numbers that no network has."""
    name, latency, bandwidth, _ = interconnect
    if not (0 <= latency < float("inf") and bandwidth > 0):
        remedy = "give a latency ≥ 0 in seconds and a bandwidth > 0 in bytes per second"
        raise InputError(f"{name}: has a latency of {latency:g} s and {bandwidth:g} bytes/s: {remedy}")
    return interconnect


def probe(comm: Comm) -> dict[str, Any]:
    """Time messages from the first rank to the last and back, and reductions; return the figures on every rank.

    The last rank is on the farthest node where launchers fill nodes one after another. `latency`, in seconds, is half
    of the shortest ping-pong; `bandwidth`, in bytes per second, is that of the longest with the latency taken off.
    """
    from mpi4py import MPI

    one_way, reductions = [], []
    for size in SIZES:
        buffer = np.zeros(size // 8, np.int64)
        one_way.append(0.5 * timed(comm, partial(ping_pong, comm, buffer)))
        reductions.append(timed(comm, partial(comm.Allreduce, MPI.IN_PLACE, buffer)))
    return {
        "ranks": comm.size, "nodes": comm.allgather(MPI.Get_processor_name()),
        "latency": one_way[0], "bandwidth": SIZES[-1] / max(one_way[-1] - one_way[0], 1e-12),
        "sizes": list(SIZES), "one_way": one_way, "allreduce": reductions,
    }  # fmt: skip


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

    def seconds() -> float:
        comm.Barrier()
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    work()
    count = min(MOST, max(FEWEST, int(SECONDS / max(comm.bcast(seconds()), 1e-9))))
    return comm.bcast(median(seconds() for _ in range(count)))
