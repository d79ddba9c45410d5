"""Time one evaluation on one core against the limit of that core, and against the peers.

    python -m benchmarks.evaluate [--sizes 1 5] [--rounds R] [--peer gpy --python PATH] [-o results.json]

The limit is the least work of a problem (`benchmarks.support.problems.Problem`) at the rates of dgemm and of the
SIMD exponential, measured right before and right after each run of ours (the higher counts), because the
speed of a shared machine drifts. Every round times every size once; a figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.support import machine, problems, rates
from benchmarks.support.launch import ROOT, RunFailed, evaluate, figures
from benchmarks.support.problems import JITTER, SIZES, Arrays, Goal, Problem
from benchmarks.support.study import figure, parse_with_peers, spread

SECONDS = 0.3  # repeat a short evaluation until the repeats take about this long
Record = dict[str, Any]


def main() -> None:
    """Measure, print the table, write the file; exit code 1 if a run of ours failed."""
    arguments = _arguments()
    os.sched_setaffinity(0, {arguments.core})
    chosen = [list(SIZES)[number - 1] for number in arguments.sizes]
    rounds: dict[Problem, list[Record]] = {problem: [] for problem in chosen}
    for number in range(arguments.rounds):
        for problem in chosen:
            print(f"round {number + 1}: {problem}", file=sys.stderr, flush=True)
            rounds[problem].append(measure(problem, arguments))
    results = [summary(problem, SIZES[problem], rounds[problem]) for problem in chosen]
    print("\n".join(table(results)))
    if arguments.output:
        report = {"machine": machine.describe(), "core": arguments.core, "jitter": JITTER, "results": results}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(any("error" in result for result in results))


def measure(problem: Problem, arguments: argparse.Namespace) -> Record:
    """Time a problem once: the rates, ours, the rates again, then each peer."""
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as name:
        folder = Path(name)
        arrays = problems.make(problem, arguments.seed)
        data, params = problems.write(problem, arrays, folder)
        before = rates.measure()
        repeat = max(arguments.repeat, math.ceil(SECONDS / before.limit(problem)))
        record: Record = {}
        try:
            ours = evaluate(data, params, repeat, arguments.timeout)
            record |= {"seconds": ours["seconds"], "bound": ours["bound"]}
        except RunFailed as failure:
            record["error"] = str(failure)
        best = rates.best(before, rates.measure())
        record |= {"limit": best.limit(problem), "rates": best._asdict()}
        record["peers"] = {
            peer: time_peer(peer, python, problem, arrays, folder, arguments)
            for peer, python in zip(arguments.peer, arguments.python, strict=True)
        }
        return record


def time_peer(
    peer: str, python: str, problem: Problem, arrays: Arrays, folder: Path, arguments: argparse.Namespace
) -> Record:
    """Return the median seconds, the bound and the version of a peer, or the error it ended with."""
    file = problems.write_npz(problem.model, arrays, folder)
    options = {
        "--peer": peer,
        "--repeat": arguments.peer_repeat,
        "--jitter": JITTER,
        "--memory": arguments.memory or int(0.8 * machine.available_memory()),
    }
    words = [str(word) for option in options.items() for word in option]
    try:
        timed = figures([python, str(ROOT / "benchmarks" / "peers" / "peer.py"), str(file), *words], arguments.timeout)
    except RunFailed as failure:
        return {"error": str(failure)}
    return {**timed, "seconds": median(timed["seconds"])}


def summary(problem: Problem, goal: Goal, rounds: list[Record]) -> Record:
    """Reduce the rounds of a problem to medians and ranges.

    Returns
    -------
    result : `seconds`, `limit`, their `fraction`, and for each peer `seconds` and `speedup` (theirs over
        ours), each the median with the least and the greatest, and the greatest relative
        `bound_difference`; or `error`
    """
    result: Record = {**problems.describe(problem), "goal": goal._asdict(), "rounds": rounds, "peers": {}}
    failed = [record["error"] for record in rounds if "error" in record]
    if failed:
        return {**result, "error": failed[0]}
    result["seconds"] = spread(record["seconds"] for record in rounds)
    result["limit"] = spread(record["limit"] for record in rounds)
    result["fraction"] = spread(record["limit"] / record["seconds"] for record in rounds)
    for peer in rounds[0]["peers"]:
        theirs = [(record, record["peers"][peer]) for record in rounds]
        failed = [their["error"] for _, their in theirs if "error" in their]
        if failed:
            result["peers"][peer] = {"error": failed[0]}
            continue
        result["peers"][peer] = {
            "version": theirs[0][1]["version"],
            "seconds": spread(their["seconds"] for _, their in theirs),
            "speedup": spread(their["seconds"] / our["seconds"] for our, their in theirs),
            "bound_difference": max(abs(their["bound"] / our["bound"] - 1.0) for our, their in theirs),
        }
    return result


def table(results: list[Record]) -> Iterator[str]:
    """Yield the lines of the table: a median stands with its range in brackets, a goal missed with a !."""
    yield f"{'model (n, m, q, d)':34}{'seconds':>10}{'limit':>10}   fraction of the limit"
    for result in results:
        goal, name = result["goal"], str(Problem(*(result[key] for key in ("model", "n", "m", "q", "d"))))
        if "error" in result:
            yield f"{name:34} failed: {result['error']}"
            continue
        seconds, limit = result["seconds"]["median"], result["limit"]["median"]
        yield f"{name:34}{seconds:10.4g}{limit:10.4g}   {figure(result['fraction'], goal['fraction'])}"
        for peer, theirs in result["peers"].items():
            if "error" in theirs:
                yield f"    {peer:30} failed: {theirs['error']}"
                continue
            speedup = figure(theirs["speedup"], goal["speedup"])
            differ = f"bounds differ by {theirs['bound_difference']:.0e}"
            yield f"    {peer:30}{theirs['seconds']['median']:10.4g}{'':10}   {speedup} times ours; {differ}"


def _arguments() -> argparse.Namespace:
    listed = ", ".join(f"{number}: {problem}" for number, problem in enumerate(SIZES, 1))
    numbers = range(1, len(SIZES) + 1)
    first = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluate", description=first)
    add = parser.add_argument
    add("--sizes", type=int, nargs="+", choices=numbers, default=list(numbers), help=listed)
    add("--rounds", type=int, default=3, help="times that every size is measured (default 3)")
    add("--repeat", type=int, default=5, help="evaluations in a run of ours, at least (default 5)")
    add("--peer-repeat", type=int, default=3, help="evaluations in a run of a peer (default 3)")
    add("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    add("--timeout", type=float, default=600.0, help="seconds that one run may take (default 600)")
    add("--memory", type=int, help="bytes that a peer may take (default: 80 %% of what is free)")
    add("--seed", type=int, default=0, help="of the data and the parameters (default 0)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parse_with_peers(parser)


if __name__ == "__main__":
    main()
