"""Time the prediction of many rows on one core against the limit of that core, and against the peers.

    python -m benchmarks.predict [--rows N] [--rounds R] [--peer gpflow --python PATH] [-o predict.json]

A regression with m = 100 inducing points, 8 inputs and one output, learnt for a few iterations. The limit is n m² flops
at the rate of dgemm, measured right before and right after each run of ours (the higher counts): a variance is a
quadratic form of the m kernel values, m² flops by a triangular factor. A second figure adds the n m exponentials.
Seconds are those of computing, without reading and writing, ours and the peers' alike; peers predict blocks of rows,
from what they keep of the training rows.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from benchmarks import record
from benchmarks.support import problems, rates, study
from benchmarks.support.launch import mpigp
from benchmarks.support.problems import Arrays, Problem
from benchmarks.support.study import Record, figure, parse_with_peers, spread

TRAINING = Problem("regression", 10_000, 100, 8, 1)
ITERATIONS = 20  # enough that no parameter is where it began
ASKED = 0.5


def main() -> None:
    """Learn, measure, print the table, write the file; exit code 1 if a run failed."""
    arguments = _arguments()
    os.sched_setaffinity(0, {arguments.core})
    study.run(measure, table, arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the seconds, the limits and the fractions of the rounds, and the peers' seconds."""
    data, model, new, output = (folder / name for name in ("data.h5", "model.h5", "new.h5", "predictions.h5"))
    arrays = problems.make(TRAINING)
    n, m, q = arguments.rows, TRAINING.m, TRAINING.q
    X_new = np.random.default_rng(1).standard_normal((n, q))
    with h5py.File(data, "w") as training, h5py.File(new, "w") as rows:
        training["X"], training["Y"], rows["X"] = arrays["X"], arrays["Y"], X_new
    words = ("--model", "regression", "--inducing", m, "--max-iter", ITERATIONS, "--standardize", "none")
    mpigp("fit", data, "-o", model, "--overwrite", *words, timeout=arguments.timeout)

    rounds: list[Record] = []
    for _ in range(arguments.rounds):
        before = rates.measure()
        ours = mpigp("predict", model, new, "-o", output, timeout=arguments.timeout)
        best = rates.best(before, rates.measure())
        flops = n * m * m / best.flops
        limits = {"limit": flops, "limit_with_exponentials": flops + n * m / best.exponentials}
        rounds.append({"seconds": ours["seconds"], **limits, "rates": best._asdict()})
    results: Record = {
        "rows": n,
        "m": m,
        "q": q,
        "d": TRAINING.d,
        "core": arguments.core,
        "rounds": rounds,
        "peers": {},
    }
    for name in ("seconds", "limit", "limit_with_exponentials"):
        results[name] = spread(each[name] for each in rounds)
    for name in ("limit", "limit_with_exponentials"):
        results[name.replace("limit", "fraction")] = spread(each[name] / each["seconds"] for each in rounds)

    results["peers"] = {}
    given = {**arrays, **problems.read_parameters(model), "X_new": X_new}
    with h5py.File(output) as file:
        predictions = {name: file[name][()].reshape(n, -1) for name in ("mean", "variance")}
    for peer, python in zip(arguments.peer, arguments.python, strict=True):
        theirs = record.predict(peer, python, "regression", given, float(given["jitter"]), arguments.timeout)
        results["peers"][peer] = compared(predictions, theirs, results["seconds"]["median"])
    return results


def compared(ours: Arrays, theirs: Record, seconds: float) -> Record:
    """Return a peer's version and seconds, these over ours, and the greatest differences of the predictions."""
    return {
        "version": theirs["version"],
        "seconds": theirs["seconds"],
        "speedup": theirs["seconds"] / seconds,
        "differences": {name: float(np.abs(ours[name] - theirs[name]).max()) for name in ours},
    }


def table(results: Record) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{results['rows']} rows, m = {results['m']}, q = {results['q']}, d = {results['d']}, on one core"
    yield f"    seconds                     {results['seconds']['median']:8.4g}"
    yield f"    limit, n m² flops           {results['limit']['median']:8.4g}"
    yield f"    fraction of it              {figure(results['fraction'], ASKED)}"
    both = results["fraction_with_exponentials"]
    yield f"    with n m exponentials too   {both['median']:6.2f}  ({both['least']:.2f} to {both['greatest']:.2f})"
    for peer, theirs in results["peers"].items():
        differ = ", ".join(f"{name} {value:.0e}" for name, value in theirs["differences"].items())
        yield (
            f"    {peer + ' ' + theirs['version']:28}{theirs['seconds']:8.4g}: {theirs['speedup']:.1f} times ours;"
            f" differs by {differ}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rows", type=int, default=1_000_000, help="rows to predict (default 1000000)")
    add("--rounds", type=int, default=3, help="times that they are predicted (default 3)")
    add("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    add("--timeout", type=float, default=600.0, help="seconds that one run may take (default 600)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parse_with_peers(parser)


if __name__ == "__main__":
    main()
