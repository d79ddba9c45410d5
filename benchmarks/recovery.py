"""Measure what it costs to be ready for the death of a rank, and how long recovery takes when one dies.

    python -m benchmarks.recovery [--rows N] [--iterations K] [--rounds R] [--modes MODE ...] [-o FILE.json]

Fits of oil flow (GPLVM, m = 50, q = 10, d = 12) on two ranks, in turn:

`recover`   under an MPI that survives, with copies in memory
`abort`     under the same MPI, without copies
`plain`     under an MPI that does not survive

All three make the same iterations, bit for bit. With `--rounds 0` a rank is killed instead, and the seconds that its
recovery takes are set beside those of reading its rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import h5py

from benchmarks.support import machine
from benchmarks.support.launch import ROOT, THREADS, figures, mpigp
from mpigp.chunks import share
from mpigp.data.hdf5 import read_rows
from mpigp.launch.mpiexec import find_mpiexec, flags

COST, RECOVERY = 0.03, 2.0  # asked: of an iteration; seconds beside reading
FIRST = 3  # iterations that are not counted: caches are cold
TIMEOUT = 600.0
RANKS = 2


def command(mode: str, words: list[str]) -> list[str]:
    """Return the command line of a fit in one of the modes."""
    if mode != "abort":
        policy = "recover" if mode == "recover" else "abort"
        return [sys.executable, "run.py", "--ranks", str(RANKS), *words, "--on-failure", policy, "--json"]
    version = subprocess.run([find_mpiexec(), "--version"], capture_output=True, text=True, timeout=60).stdout
    needed = flags(version, RANKS, 1, len(os.sched_getaffinity(0)), os.geteuid() == 0, survive=True)
    return [find_mpiexec(), *needed, "-n", str(RANKS), sys.executable, "run.py", *words, "--on-failure", mode, "--json"]


def timed(mode: str, words: list[str], metrics: Path) -> dict[str, Any]:
    """Run a fit; return the seconds of each iteration, and what its copies took."""
    found = figures(command(mode, [*words, "--metrics", str(metrics)]), TIMEOUT)
    ends = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()]
    each = [end - start for start, end in pairwise(ends)][FIRST:]
    return {
        "bound": found["bound"],
        "each": each,
        "copies": found.get("copies", 0),
        "copy_seconds": found.get("copy_seconds", 0.0),
        "seconds": found["seconds"],
    }


def cost(words: list[str], folder: Path, rounds: int, modes: list[str]) -> dict[str, Any]:
    """Run the modes in turn; return, for each, the median over the rounds of its seconds per iteration."""
    runs: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    for _ in range(rounds):
        for mode, found in runs.items():
            found.append(timed(mode, words, folder / "metrics.jsonl"))
    assert len({run["bound"] for found in runs.values() for run in found}) == 1, "other bits"
    means = {mode: [sum(run["each"]) / len(run["each"]) for run in found] for mode, found in runs.items()}
    medians = {mode: median(values) for mode, values in means.items()}
    recover = runs["recover"]
    spent, copies = (sum(run[name] for run in recover) for name in ("copy_seconds", "copies"))
    share_of_copies = spent / sum(run["seconds"] for run in recover)
    over = {mode: medians["recover"] / medians[mode] - 1 for mode in modes if mode != "recover"}
    for mode, values in means.items():
        print(f"{mode:8} {medians[mode]:.4f} s per iteration (of rounds: {' '.join(f'{v:.4f}' for v in values)})")
    print(
        f"{copies} copies, {spent / max(copies, 1):.3f} s each, {share_of_copies:.2%} of the time (asked: {COST:.0%})"
    )
    for mode, value in over.items():
        print(f"recover takes {value:+.1%} over {mode}")
    return {"seconds_per_iteration": means, "over": over, "copies": copies, "share_of_copies": share_of_copies}


def recovery(words: list[str], folder: Path, data: Path, iteration: int) -> dict[str, Any]:
    """Kill the second rank of a fit at an iteration; return what its recovery took."""
    metrics = folder / "killed.jsonl"
    metrics.write_text("")
    process = subprocess.Popen(
        command("recover", [*words, "--metrics", str(metrics)]), cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        env={**os.environ, **dict.fromkeys(THREADS, "1"), "MPIGP_BENCHMARK": str(folder)},
    )  # fmt: skip
    try:
        end = time.monotonic() + TIMEOUT
        while metrics.read_text().count("\n") < iteration:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the fit did not get to iteration {iteration}")
            time.sleep(0.05)
        os.kill(second_rank(str(folder)), signal.SIGKILL)
        _, said = process.communicate(timeout=TIMEOUT)
    finally:
        process.terminate()
        process.wait(60)
    found = re.search(r"recovered in ([0-9.]+) s: going on from (.*), at iteration (\d+)", said)
    if found is None:
        raise RuntimeError(f"it did not recover: {said[-500:]}")
    began = time.perf_counter()
    with h5py.File(data, "r") as file:
        read_rows(file["Y"], *share(len(file["Y"]), 1, RANKS))
    reading = time.perf_counter() - began
    result = {"seconds": float(found[1]), "source": found[2], "iteration": int(found[3]), "reading": reading}
    print(
        f"recovery from {result['source']}: {result['seconds']:.2f} s, of which reading the lost rows takes "
        f"{reading:.2f} s (asked {RECOVERY:g} s and that)"
    )
    return result


def second_rank(mark: str) -> int:
    """Return the process of rank 1 of the fit that has this in its environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            items = path.read_text().split("\0")
        except OSError:
            continue
        if f"MPIGP_BENCHMARK={mark}" in items and "OMPI_COMM_WORLD_RANK=1" in items:
            return int(path.parent.name)
    raise RuntimeError("rank 1 was not found")


def main() -> None:
    """Measure both, print, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--iterations", type=int, default=300, help="enough for copies to be taken")
    parser.add_argument("--rounds", type=int, default=3, help="of the cost; 0 for the recovery")
    parser.add_argument(
        "--modes", nargs="+", choices=["recover", "abort", "plain"], default=["recover", "abort", "plain"]
    )
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data.h5"
        mpigp("synth", "oilflow", "--rows", arguments.rows, "-o", data, timeout=TIMEOUT)
        words = ["fit", str(data), "-o", str(folder / "model.h5"), "--overwrite", "--model", "gplvm",
                 "--inducing", "50", "--latent", "10", "--jitter", "1e-4", "--tolerance", "0",
                 "--max-iter", str(arguments.iterations)]  # fmt: skip
        record: dict[str, Any] = {"machine": machine.describe(), "rows": arguments.rows}
        if arguments.rounds:
            record["cost"] = cost(words, folder, arguments.rounds, arguments.modes)
        else:
            record["recovery"] = recovery(words, folder, data, arguments.iterations - 5)
    if arguments.output:
        arguments.output.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
