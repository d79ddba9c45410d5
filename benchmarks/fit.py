"""Learn a GPLVM of labelled data on one core: time to a target bound, convergence, classes; and against a peer.

    python -m benchmarks.fit DATA [--seeds K] [--peer gpy --python PATH] [-o fit.json]

Seconds are those of the iterations, without the start of the program and reading, ours and the peer's alike. The peer
runs on the same core in the same run, between ours of the first seed and the others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.spatial import cKDTree

from benchmarks import machine
from benchmarks.launch import ROOT, RunFailed, figures

MARKS = (200, 500, 1000)
SMALL = 0.01  # of the largest alpha: dimensions below it count as switched off
Record = dict[str, Any]


def main() -> None:
    """Measure, print the table, write the file; exit code 1 if a run failed."""
    arguments = _arguments()
    os.sched_setaffinity(0, {arguments.core})
    runs: list[Record] = []
    peer: Record | None = None
    failed = False
    try:
        for seed in range(arguments.seeds):
            runs.append(ours(arguments, seed))
            print("\n".join(lines(runs[-1], arguments.target)), flush=True)
            if seed == 0 and arguments.peer:
                peer = theirs(arguments)
                print("\n".join(peer_lines(peer, runs[0], arguments)), flush=True)
    except RunFailed as failure:
        failed = True
        print(f"failed: {failure}", flush=True)
    if len(runs) > 1:
        print("\n".join(spread(runs)))
    if arguments.output:
        report = {"machine": machine.describe(), "core": arguments.core, "target": arguments.target}
        arguments.output.write_text(json.dumps({**report, "runs": runs, "peer": peer}, indent=1) + "\n")
    sys.exit(failed)


def ours(arguments: argparse.Namespace, seed: int) -> Record:
    """Run `fit` with its defaults and return what it reached, when, and how the classes separate."""
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as name:
        model, metrics = Path(name, "model.h5"), Path(name, "metrics.jsonl")
        options = {
            "--model": "gplvm",
            "--latent": arguments.latent,
            "--inducing": arguments.inducing,
            "--standardize": "center",
            "--max-iter": arguments.max_iter,
            "--seed": seed,
            "--metrics": metrics,
            "-o": model,
        }
        words = [str(word) for option in options.items() for word in option]
        end = figures([sys.executable, "run.py", "fit", str(arguments.data), *words, "--json"], arguments.timeout)
        trace = [json.loads(line) for line in metrics.read_text().splitlines()]
        with h5py.File(model) as file, h5py.File(arguments.data) as data:
            mu, alpha = file["latent/mu"][()], file["kernel/alpha"][()]
            labels = data["labels"][()] if "labels" in data else None
    first = next((record for record in trace if record["bound"] >= arguments.target), None)
    keys = ("iteration", "evaluations", "seconds", "bound")
    return {
        "seed": seed,
        "end": {key: end[key] for key in ("bound", "iterations", "evaluations", "seconds", "stopped")},
        "target": None if first is None else {key: first[key] for key in keys},
        "marks": {mark: trace[mark - 1]["bound"] for mark in MARKS if len(trace) >= mark},
        "alpha": alpha.tolist(),
        "used": int((alpha > SMALL * alpha.max()).sum()),
        "errors": None if labels is None else errors(mu, alpha, labels),
    }


def errors(mu: np.ndarray, alpha: np.ndarray, labels: np.ndarray) -> dict[str, int]:
    """Return the rows whose nearest neighbour has another label, in the two dimensions with the largest alpha."""
    two = np.argsort(alpha)[-2:]
    return {
        "raw": neighbour_errors(mu[:, two], labels),
        "scaled": neighbour_errors(mu[:, two] * np.sqrt(alpha[two]), labels),
    }


def neighbour_errors(points: np.ndarray, labels: np.ndarray) -> int:
    """Return how many rows have another label than the nearest of the other rows."""
    places = cKDTree(points).query(points, k=2)[1]
    rows = np.arange(len(points))
    nearest = np.where(places[:, 0] == rows, places[:, 1], places[:, 0])  # of equal points, itself may come second
    return int((labels[nearest] != labels).sum())


def theirs(arguments: argparse.Namespace) -> Record:
    """Run the peer's own fit and return what it reached, and when."""
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as name, h5py.File(arguments.data) as data:
        Y, file = data["Y"][()].astype(float), Path(name, "data.npz")
        np.savez(file, Y=Y - Y.mean(axis=0))
        options = {
            "--latent": arguments.latent,
            "--inducing": arguments.inducing,
            "--max-iter": arguments.peer_iterations,
        }
        words = [str(word) for option in options.items() for word in option]
        command = [arguments.python, str(ROOT / "benchmarks" / "peer_fit.py"), str(file), *words]
        found = figures(command, arguments.timeout)
    bounds, seconds = found["bound"], found["seconds"]
    reached = next((k for k, bound in enumerate(bounds) if bound >= arguments.target), None)
    return {
        "peer": arguments.peer,
        "version": found["version"],
        "end": {"bound": bounds[-1], "evaluations": len(bounds), "seconds": found["total_seconds"]},
        "target": None if reached is None else {"evaluations": reached + 1, "seconds": seconds[reached]},
        "marks": {mark: bounds[mark - 1] for mark in MARKS if len(bounds) >= mark},
    }


def lines(run: Record, target: float) -> Iterator[str]:
    """Yield the table of one run of ours."""
    end, reached, errors = run["end"], run["target"], run["errors"]
    yield f"ours, seed {run['seed']}"
    if reached is None:
        yield f"    {target:g} nats           not reached"
    else:
        yield (
            f"    {target:g} nats           {reached['seconds']:8.2f} s, {reached['iteration']} iterations,"
            f" {reached['evaluations']} evaluations"
        )
    yield _marks(run, "iterations")
    yield (
        f"    the end             {end['seconds']:8.2f} s, {end['iterations']} iterations, {end['evaluations']}"
        f" evaluations, bound {end['bound']:.2f}: {end['stopped']}"
    )
    if errors is not None:
        yield f"    neighbour errors    {errors['raw']} in mu, {errors['scaled']} in mu √alpha (asked at most 20)"
    yield f"    alphas in use       {run['used']} of {len(run['alpha'])}: " + " ".join(
        f"{value:.2g}" for value in sorted(run["alpha"], reverse=True)
    )


def peer_lines(peer: Record, run: Record, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the table of the peer's run, and its time over ours; where it misses the target, all its time counts."""
    end, reached = peer["end"], peer["target"]
    yield f"{peer['peer']} {peer['version']}"
    yield f"    {arguments.target:g} nats           " + (
        "not reached" if reached is None else f"{reached['seconds']:8.2f} s"
    )
    yield _marks(peer, "evaluations")
    yield f"    the end             {end['seconds']:8.2f} s, {end['evaluations']} evaluations, bound {end['bound']:.2f}"
    if run["target"] is not None:
        seconds = (reached or end)["seconds"]
        peer["ratio"] = seconds / run["target"]["seconds"]
        sign = "" if reached else "more than "
        yield f"    its time to {arguments.target:g}    {sign}{peer['ratio']:.1f} times ours (asked 10)"


def spread(runs: Sequence[Record]) -> Iterator[str]:
    """Yield the ranges over the seeds."""
    reached = [run["target"] for run in runs if run["target"] is not None]
    yield f"{len(runs)} seeds: median (least to greatest)"
    yield f"    reached the target  {len(reached)}"
    if reached:
        yield f"    seconds to it       {_range([record['seconds'] for record in reached], '.2f')}"
        yield f"    evaluations to it   {_range([record['evaluations'] for record in reached], '.0f')}"
    yield f"    bound at the end    {_range([run['end']['bound'] for run in runs], '.1f')}"
    yield f"    seconds to the end  {_range([run['end']['seconds'] for run in runs], '.1f')}"
    if runs[0]["errors"] is not None:
        for kind in ("raw", "scaled"):
            yield f"    errors, {kind:12}{_range([run['errors'][kind] for run in runs], '.0f')}"


def _range(values: list[float], form: str) -> str:
    return f"{np.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def _marks(record: Record, unit: str) -> str:
    return "    bound after         " + ", ".join(
        f"{bound:.1f} ({mark} {unit})" for mark, bound in record["marks"].items()
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__.splitlines()[0])
    add = parser.add_argument
    data = ROOT / "../shared/data/oilflow.h5"
    add("data", type=Path, nargs="?", default=data, help="HDF5 file with /Y, and /labels (default: oil flow)")
    add("--latent", type=int, default=10, help="latent dimensions (default 10)")
    add("--inducing", type=int, default=30, help="inducing points (default 30)")
    add("--target", type=float, default=6950.0, help="the bound to reach, in nats (default 6950)")
    add("--max-iter", type=int, default=3000, help="iterations of ours at most (default 3000)")
    add("--seeds", type=int, default=1, help="runs of ours, with seeds 0, 1, … (default 1)")
    add("--peer", choices=("gpy",), help="a program to fit too")
    add("--python", help="the Python that has it")
    add("--peer-iterations", type=int, default=1000, help="iterations of the peer (default 1000)")
    add("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    add("--timeout", type=float, default=1800.0, help="seconds that one run may take (default 1800)")
    add("-o", "--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if (arguments.peer is None) != (arguments.python is None):
        parser.error("give --python PATH with --peer")
    arguments.data = arguments.data.resolve()  # ours runs in the repository's folder
    return arguments


if __name__ == "__main__":
    main()
