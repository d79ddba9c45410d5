"""Time evaluations over rows, and weigh the memory of a rank; over ranks, `mpigp scaling strong` does.

    python -m benchmarks.scaling [--studies rows memory] [--rounds R] [-o scaling.json]

`rows`     the seconds per row at n = 10_000, 100_000 and 1_000_000, on one rank
`memory`   the peak resident memory of a rank with 1_000_000 rows: at most 1.3 times their bytes + 250 MB
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.support import machine, problems
from benchmarks.support.launch import RunFailed, evaluate
from benchmarks.support.problems import Problem

Record = dict[str, Any]

ROWS = (Problem("regression", 10_000, 100, 8, 1), Problem("gplvm", 10_000, 30, 10, 12))
MEMORY = Problem("gplvm", 1_000_000, 100, 10, 12)


class Options(NamedTuple):
    """`rounds` of runs, in each `repeat` evaluations or more, each run ended after `timeout` seconds."""

    rounds: int
    repeat: int
    timeout: float


def main() -> None:
    """Run the studies asked for, print their lines, write the file; exit code 1 if a run failed."""
    arguments = _arguments()
    options = Options(arguments.rounds, arguments.repeat, arguments.timeout)
    results: dict[str, list[Record]] = {}
    failed = False
    for name in arguments.studies:
        results[name] = []
        try:
            for record in STUDIES[name](options):
                print(f"{name:8}{record.pop('text')}", flush=True)
                results[name].append(record)
        except RunFailed as failure:
            failed = True
            results[name].append({"error": str(failure)})
            print(f"{name:8}failed: {failure}", flush=True)
    if arguments.output:
        report = {"machine": machine.describe(), **results}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(failed)


def rows(options: Options) -> Iterator[Record]:
    """Yield the seconds per row at three sizes, which alternate; a round makes a ratio to its first."""
    for first in ROWS:
        sizes = [replace(first, n=first.n * factor) for factor in (1, 10, 100)]
        with files(sizes[0]) as small, files(sizes[1]) as middle, files(sizes[2]) as large:
            table = [
                [
                    evaluate(*paths, _repeats(problem, options), options.timeout, 1)["seconds"] / problem.n
                    for problem, paths in zip(sizes, (small, middle, large), strict=True)
                ]
                for _ in range(options.rounds)
            ]
        for k, problem in enumerate(sizes):
            seconds = [line[k] for line in table]
            relative = [line[k] / line[0] for line in table]
            yield {
                **problems.describe(problem),
                "seconds_per_row": seconds,
                "relative": median(relative),
                "text": f"{problem!s:34} {1e9 * median(seconds):.5g} ns per row:"
                f" {median(relative):.3f} of the first ({min(relative):.3f} to {max(relative):.3f};"
                " asked 0.9 to 1.1)",
            }


def memory(options: Options) -> Iterator[Record]:
    """Yield the peak memory of one rank that holds all rows."""
    with files(MEMORY) as (data, params):
        peak = evaluate(data, params, 1, options.timeout, 1)["peak_memory"]
    allowed = 1.3 * MEMORY.row_bytes + 250e6
    yield {
        **problems.describe(MEMORY),
        "peak_memory": peak,
        "allowed": allowed,
        "text": f"{MEMORY!s:34} {peak / 1e6:.0f} MB (rows {MEMORY.row_bytes / 1e6:.0f} MB;"
        f" asked at most {allowed / 1e6:.0f} MB)",
    }


STUDIES: dict[str, Callable[[Options], Iterator[Record]]] = {"rows": rows, "memory": memory}


@contextmanager
def files(problem: Problem) -> Iterator[tuple[Path, Path]]:
    """Hold the data file and the parameter file of a problem."""
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as folder:
        yield problems.write(problem, problems.make(problem), Path(folder))


def _repeats(problem: Problem, options: Options) -> int:
    """Return more repeats for fewer rows: short times are noisy."""
    return max(1, math.ceil(options.repeat * 100_000 / problem.n))


def _arguments() -> argparse.Namespace:
    first = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=first)
    add = parser.add_argument
    add("--studies", nargs="+", choices=list(STUDIES), default=list(STUDIES), help="default: all")
    add("--rounds", type=int, default=5, help="times that every run is done (default 5)")
    add("--repeat", type=int, default=3, help="evaluations in a run of 100_000 rows (default 3)")
    add("--timeout", type=float, default=900.0, help="seconds that one run may take (default 900)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
