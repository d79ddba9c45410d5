"""Learn from rows that are streamed from their file, against rows in memory: bits, seconds per row, and memory.

    python -m benchmarks.stream FOLDER [--rows N] [--few N] [--ranks R] [--limit BYTES] [-o stream.json]

Few rows are fitted in memory and streamed: the models must have the same bits. Many are fitted, as `auto` chooses, with
a limit of the address space of each rank (ulimit -v). What counts is the seconds of an evaluation per row:
streamed, they may be 1.3 times those in memory.

The data, `synth regression` of 8 inputs and 1 output, are made in FOLDER where they are not there yet.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.support import machine
from benchmarks.support.launch import RunFailed, figures, mpigp

INDUCING = 100
ASKED = 1.3
PARAMETERS = ("Z", "beta", "kernel/variance", "kernel/alpha", "posterior/g", "trace/bound")

Record = dict[str, Any]


def data(folder: Path, rows: int, timeout: float) -> Path:
    """Return the file of so many rows."""
    path = folder / f"regression-{rows}.h5"
    if not path.exists():
        mpigp("synth", "regression", "--rows", rows, "-o", path, timeout=timeout)
    return path


def fit(rows: Path, model: Path, mode: str, arguments: argparse.Namespace, limit: int | None = None) -> Record:
    """Fit a few iterations; return the figures, and the seconds of an evaluation per row and rank."""
    words = ["--ranks", arguments.ranks, "fit", rows, "-o", model, "--overwrite", "--model", "regression"]
    words += ["--inducing", INDUCING, "--max-iter", arguments.max_iter, "--hold", 0, "--rows-in-memory", mode, "--json"]
    limited = [] if limit is None else ["sh", "-c", f'ulimit -v {limit // 1024} && exec "$@"', "sh"]
    found = figures([*limited, sys.executable, "run.py", *map(str, words)], arguments.timeout)
    with h5py.File(model) as file:
        found["n"] = int(file.attrs["n"])
    timed = found["evaluations"] - 1  # the first is made before the iterations, and their clock
    found["per_row"] = found["seconds"] / timed / found["n"] * found["ranks"]
    return found


def same(one: Path, other: Path) -> bool:
    """Return whether two models agree, bit for bit."""
    with h5py.File(one) as first, h5py.File(other) as second:
        return all(np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes() for name in PARAMETERS)


def few(arguments: argparse.Namespace) -> tuple[Record, Record]:
    """Return the fits of few rows in memory and streamed, each the fastest of the rounds, which alternate."""
    rows = data(arguments.folder, arguments.few, arguments.timeout)
    models = {mode: arguments.folder / f"{mode}.h5" for mode in ("all", "stream")}
    runs: dict[str, list[Record]] = {mode: [] for mode in models}
    for _ in range(arguments.rounds):
        for mode, model in models.items():
            runs[mode].append(fit(rows, model, mode, arguments))
    if not same(*models.values()):
        raise RunFailed("the models in memory and streamed differ")
    held, streamed = (min(found, key=lambda each: float(each["per_row"])) for found in runs.values())
    return held, streamed


def main() -> None:
    """Run all fits, print their lines, write the file; exit code 1 if a run failed or a figure is missed."""
    arguments = _arguments()
    results: dict[str, Record] = {}
    try:
        held, streamed = few(arguments)
        results = {"in memory": held, "streamed": streamed}
        if arguments.rows:
            rows = data(arguments.folder, arguments.rows, arguments.timeout)
            model = arguments.folder / "large.h5"
            results["large, limited"] = fit(rows, model, "auto", arguments, arguments.limit)
            if results["large, limited"]["rows_in_memory"]:
                raise RunFailed(f"the rows fit {arguments.limit / 1e6:.0f} MB")
    except RunFailed as failure:
        sys.exit(f"failed: {failure}")
    print(f"{arguments.ranks} ranks; models of {held['n']} rows in memory and streamed have the same bits")
    for name, run in results.items():
        run["ratio"] = run["per_row"] / held["per_row"]
        print(
            f"{name:16}{run['n']:10d} rows{1e9 * run['per_row']:8.0f} ns of a rank per row and evaluation"
            f"{run['ratio']:8.3f} of that in memory{run['peak_memory'] / 1e6:8.0f} MB at most"
        )
    if arguments.output:
        arguments.output.write_text(json.dumps({"machine": machine.describe(), **results}, indent=1) + "\n")
    sys.exit(any(run["ratio"] > ASKED for run in results.values()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("folder", type=lambda text: Path(text).resolve(), help="where the data and the models go")
    add("--rows", type=int, default=20_000_000, help="rows of the large fit, 0 for none (default 20,000,000)")
    add("--few", type=int, default=2_000_000, help="rows that are held in memory too (default 2,000,000)")
    add("--ranks", type=int, default=2, help="MPI ranks (default 2)")
    add("--max-iter", type=int, default=2, help="iterations of a fit (default 2)")
    add("--rounds", type=int, default=1, help="fits of each kind of the few rows (default 1)")
    add("--limit", type=int, default=10**9, help="bytes of address space of a rank of the large fit (default 1e9)")
    add("--timeout", type=float, default=3600.0, help="seconds that a run may take (default 3600)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
