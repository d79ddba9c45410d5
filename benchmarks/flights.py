"""Learn sparse GP regression of flight delays, and predict the rows left out.

    python -m benchmarks.flights DATA [--ranks R] [--inducing M] [--max-iter N] [--rows N] [-o flights.json]

The rows are shuffled; a tenth is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from benchmarks import machine
from benchmarks.launch import ROOT, RunFailed, mpigp

TRAINING = 0.9
Record = dict[str, Any]


class Split(NamedTuple):
    """X (n, q) and Y (n,) of the training rows, and of those left out."""

    X: np.ndarray
    Y: np.ndarray
    X_new: np.ndarray
    Y_new: np.ndarray


def scores(Y: np.ndarray, means: np.ndarray, variances: np.ndarray) -> Record:
    """Return the root mean square error, and the mean negative log density (in nats) of Gaussian predictions."""
    squares = (Y - means) ** 2
    nlpd = 0.5 * np.log(2 * np.pi * variances) + 0.5 * squares / variances
    return {"rmse": float(np.sqrt(squares.mean())), "nlpd": float(nlpd.mean())}


def baselines(split: Split) -> dict[str, Record]:
    """Return the scores of the mean and of linear regression, each with the variance of its training residuals."""
    design, new = (np.column_stack([X, np.ones(len(X))]) for X in (split.X, split.X_new))
    coefficients = np.linalg.lstsq(design, split.Y, rcond=None)[0]
    rest = split.Y - design @ coefficients
    mean, all_new = split.Y.mean(), np.ones(len(split.Y_new))
    return {
        "mean": scores(split.Y_new, mean * all_new, split.Y.var() * all_new),
        "linear regression": scores(split.Y_new, new @ coefficients, rest.var() * all_new),
    }


def read_split(data: Path, rows: int | None, seed: int) -> Split:
    """Return the rows, shuffled, the first `rows` of them where given, as training rows and those left out."""
    with h5py.File(data) as file:
        X, Y = file["X"][()].astype(float), file["Y"][:, 0].astype(float)
    order = np.random.default_rng(seed).permutation(len(X))[:rows]
    X, Y = X[order], Y[order]
    count = int(TRAINING * len(X))
    return Split(X[:count], Y[:count], X[count:], Y[count:])


def learn(split: Split, arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, Record]:
    """Run `fit` on the training rows and `predict` on the others.

    Returns
    -------
    means, variances : of the outputs of the rows left out, (n,) each
    run : the figures of `fit`
    """
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as name:
        training, model, new, output = (
            Path(name, file) for file in ("training.h5", "model.h5", "new.h5", "predictions.h5")
        )
        with h5py.File(training, "w") as file, h5py.File(new, "w") as rows:
            file["X"], file["Y"], rows["X"] = split.X, split.Y[:, None], split.X_new
        words = ["--model", "regression", "--inducing", arguments.inducing, "--max-iter", arguments.max_iter]
        words += ["--seed", arguments.seed, *(word for option in arguments.option for word in option.split())]
        run = mpigp("fit", training, "-o", model, *words, timeout=arguments.timeout, ranks=arguments.ranks)
        mpigp("predict", model, new, "-o", output, timeout=arguments.timeout, ranks=arguments.ranks)
        with h5py.File(output) as file:
            return file["mean"][:, 0], file["y_variance"][()].ravel(), run


def main() -> None:
    """Learn, predict, print the table, write the file; exit code 1 if the run failed."""
    arguments = _arguments()
    split = read_split(arguments.data, arguments.rows, arguments.seed)
    results = baselines(split)
    try:
        means, variances, run = learn(split, arguments)
    except RunFailed as failure:
        sys.exit(f"failed: {failure}")
    results[f"sparse GP, m = {arguments.inducing}"] = scores(split.Y_new, means, variances)
    print(f"{len(split.X)} rows to learn from, {len(split.X_new)} to predict")
    print(f"{'':24}{'RMSE':>10}{'NLPD':>10}")
    for name, score in results.items():
        print(f"{name:24}{score['rmse']:10.3f}{score['nlpd']:10.4f}")
    print(
        f"{run['seconds']:.1f} s on {run['ranks']} ranks, {run['iterations']} iterations, {run['evaluations']}"
        f" evaluations, bound {run['bound']:.2f}: {run['stopped']}\n"
        f"peak memory of a rank: {run['peak_memory'] / 1e6:.0f} MB"
    )
    if arguments.output:
        sizes = {"training": len(split.X), "test": len(split.X_new), "inducing": arguments.inducing}
        report = {"machine": machine.describe(), **sizes, "run": run, "scores": results}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flights", description=__doc__.splitlines()[0])
    add = parser.add_argument
    data = ROOT / "../shared/data/flights_nyc.h5"
    add("data", type=Path, nargs="?", default=data, help="HDF5 file with /X and /Y (default: flights of New York)")
    add("--ranks", type=int, default=2, help="MPI ranks (default 2)")
    add("--inducing", type=int, default=100, help="inducing points (default 100)")
    add("--max-iter", type=int, default=100, help="iterations at most (default 100)")
    add("--rows", type=int, help="rows to take, of the shuffled ones (default: all)")
    add("--seed", type=int, default=0, help="of the shuffle and of the fit (default 0)")
    add("--option", action="append", default=[], help="a further option of fit, as '--hold 10'")
    add("--timeout", type=float, default=3600.0, help="seconds that the fit may take (default 3600)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
