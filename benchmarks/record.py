"""Record what GPy and GPflow predict from given parameters, for tests that have neither.

    python -m benchmarks.record --python-gpy PATH --python-gpflow PATH [-o tests/recorded/predictions.json]

A small regression and a small GPLVM, 20 new points each; GPy predicts also at uncertain points. The file holds the data
and the parameters too. They have few decimals, so that it is short and reads back as the same numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import problems
from benchmarks.support.launch import ROOT, RunFailed, figures
from benchmarks.support.problems import JITTER, Arrays, Problem

PROBLEMS = (Problem("regression", 200, 15, 2, 2), Problem("gplvm", 60, 10, 3, 5))
NEW = 20
DECIMALS = 4
VARIANCE = 1.7  # not 1, so that it is seen where a program puts it, or forgets it
Record = dict[str, Any]


def main() -> None:
    """Run the peers and write the file."""
    arguments = _arguments()
    pythons = {"gpy": arguments.python_gpy, "gpflow": arguments.python_gpflow}
    try:
        cases = [record(problem, pythons, arguments.timeout) for problem in PROBLEMS]
    except RunFailed as failure:
        sys.exit(f"failed: {failure}")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    for case in cases:
        for name, peers in case["predictions"].items():
            print(f"{case['model']:12}{name:12}" + ", ".join(f"{peer} {case['versions'][peer]}" for peer in peers))


def record(problem: Problem, pythons: dict[str, str], timeout: float) -> Record:
    """Return the arrays of a problem, and each peer's predictions: at certain points, and by GPy at uncertain ones."""
    arrays = {name: np.round(values, DECIMALS) for name, values in _arrays(problem).items()}
    certain = {name: values for name, values in arrays.items() if name != "X_new_variance"}
    versions: dict[str, str] = {}
    runs = [("certain", "gpy", certain), ("certain", "gpflow", certain), ("uncertain", "gpy", arrays)]
    predictions: dict[str, Record] = {name: {} for name, *_ in runs}
    for name, peer, given in runs:
        found = predict(peer, pythons[peer], problem.model, given, JITTER, timeout)
        versions[peer] = found["version"]
        predictions[name][peer] = {key: found[key].tolist() for key in ("mean", "variance")}
    return {
        "model": problem.model,
        "jitter": JITTER,
        "versions": versions,
        "arrays": {name: values.tolist() for name, values in arrays.items()},
        "predictions": predictions,
    }


def predict(peer: str, python: str, model: str, arrays: Arrays, jitter: float, timeout: float) -> Record:
    """Return the mean and the variance that a peer predicts, its seconds and its version."""
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as name:
        file, output = problems.write_npz(model, arrays, Path(name)), Path(name, "predictions.npz")
        words = [str(file), "--peer", peer, "--jitter", str(jitter), "-o", str(output)]
        found = figures([python, str(ROOT / "benchmarks" / "peers" / "peer_predict.py"), *words], timeout)
        with np.load(output) as predictions:
            return {**found, **predictions}


def _arrays(problem: Problem) -> Arrays:
    rng = np.random.default_rng(1)  # apart from that of the data
    return {
        **problems.make(problem, seed=0),
        "variance": np.array(VARIANCE),
        "X_new": 1.5 * rng.standard_normal((NEW, problem.q)),  # some beyond the data
        "X_new_variance": rng.uniform(0.01, 0.5, (NEW, problem.q)),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--python-gpy", required=True, help="the Python that has GPy")
    add("--python-gpflow", required=True, help="the Python that has GPflow")
    add("--timeout", type=float, default=300.0, help="seconds that one run may take (default 300)")
    add("-o", "--output", type=Path, default=ROOT / "tests/recorded/predictions.json", help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
