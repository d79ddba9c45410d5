"""Reconstruct all outputs of rows with missing (NaN) entries, by a GPLVM."""

from __future__ import annotations

import argparse
import time
from typing import Any

from mpigp.commands import embed
from mpigp.files import results
from mpigp.gp.embedding import reconstruct
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
    results.write(arguments.output, comm, n, found._asdict())
    return embed.say(arguments, comm, n, seconds, "reconstructed")
