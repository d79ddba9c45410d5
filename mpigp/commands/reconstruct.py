"""Reconstruct all outputs of rows with missing (NaN) entries, by a GPLVM."""

from __future__ import annotations

import argparse
import time
from typing import Any

from mpigp.commands import embed
from mpigp.files.gather import write
from mpigp.gp.embedding import reconstruct
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Comm

PARALLEL = True

add_arguments = embed.add_arguments


def run(arguments: argparse.Namespace, comm: Comm) -> dict[str, Any]:
    """Read, reconstruct, write."""
    n, posterior, candidates, Y = embed.read(arguments, comm)
    comm.Barrier()
    start = time.perf_counter()
    found = reconstruct(posterior, candidates, Y, arguments.threads)
    comm.Barrier()
    seconds = time.perf_counter() - start
    write(arguments.output, comm, {name: DistributedRows(comm, n, values) for name, values in found._asdict().items()})
    return embed.say(arguments, comm, n, seconds, "reconstructed")
