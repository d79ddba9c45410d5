"""Scaling studies that were never run: files of seconds that follow known costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mpigp.chunks import share
from mpigp.mpi.timers import PHASES
from mpigp.scaling.costs import Costs, Layout

COSTS = Costs(per_row=1e-6, algebra=2e-4, master=8e-4, latency=2e-6, per_byte=1e-9)
BYTES = 8 * (811 + 5151 + 10_202 + 1617)  # of the four messages of a regression with m = 100, q = 8, d = 1


def figures(layout: Layout, costs: Costs = COSTS) -> dict[str, Any]:
    """What `mpigp evaluate --json` would say."""
    n, ranks, threads, cores, nbytes = layout
    seconds = costs.seconds(layout)
    each = dict.fromkeys(PHASES, 0.0) | {"statistics": 0.3 * seconds, "gradients": 0.5 * seconds, "wait": 0.1 * seconds}
    by_rank = {name: [value] * ranks for name, value in each.items()}
    by_rank["bound"] = [costs.master, *[0.0] * (ranks - 1)]
    return {
        "seconds": seconds, "all_seconds": [0.9 * seconds, seconds, 1.2 * seconds], "ranks": ranks, "threads": threads,
        "model": "regression", "n": n, "m": 100, "q": 8, "d": 1, "messages": 4, "bytes": nbytes,
        "algebra": costs.algebra, "cpu": "A CPU <of> the 1980s", "instruction_set": "avx2",
        "versions": {"mpigp": "0.1.0", "MPI": "Open MPI v5.0.11"},
        "by_rank": {
            "seconds": by_rank, "rows": [share(n, rank, ranks).rows for rank in range(ranks)],
            "memory": [10**8 + 10**6 * rank for rank in range(ranks)],
            "nodes": [f"n{rank % 2}" for rank in range(ranks)], "cores": cores,
        },
    }  # fmt: skip


def write_study(folder: Path, ranks: list[int], kind: str = "strong", rows: int = 100_000, cores: int = 4) -> Path:
    """Write a study on a machine of so many cores, one run on each number of ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    for count in ranks:
        n = rows if kind == "strong" else rows * count
        write_point(folder, kind, figures(Layout(n, count, 1, min(count, cores), BYTES)))
    return folder


def write_point(folder: Path, kind: str, run: dict[str, Any]) -> Path:
    """Write the file of one number of ranks."""
    path = folder / f"{kind}-{run['ranks']:05d}.json"
    record = {"format": "mpigp-scaling", "version": 1, "kind": kind, "command": f"mpigp scaling {kind}", "runs": [run]}
    path.write_text(json.dumps(record))
    return path
