"""Learn sparse GP regression of flight delays, and predict the rows left out.

    python -m benchmarks.flights DATA [--ranks R] [--inducing M] [--max-iter N] [--rows N] [-o flights.json]

The rows are shuffled; a tenth is left out. Predictions are made here, from the parameters in the model file by the
textbook formula: with K the kernel, L Lᵀ = K_mm, A = L⁻¹ K_mn and B = I + β A Aᵀ = L_B L_Bᵀ,

    mean  β (L_B⁻¹ L⁻¹ k)ᵀ L_B⁻¹ A Y          variance  σ_f² − ‖L⁻¹ k‖² + ‖L_B⁻¹ L⁻¹ k‖² + 1/β
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist

from benchmarks import machine
from benchmarks.launch import ROOT, RunFailed, figures

TRAINING = 0.9
BLOCK = 16384
Record = dict[str, Any]


class Split(NamedTuple):
    """X (n, q) and Y (n,) of the training rows, and of those left out."""

    X: np.ndarray
    Y: np.ndarray
    X_new: np.ndarray
    Y_new: np.ndarray


class Model(NamedTuple):
    """The parameters, and what takes inputs and outputs to those it was learnt on."""

    Z: np.ndarray
    variance: float
    alpha: np.ndarray
    beta: float
    jitter: float
    x: tuple[np.ndarray, np.ndarray]
    y: tuple[float, float]

    def gram(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """Return K between the rows of X and Z."""
        root = np.sqrt(self.alpha)
        return self.variance * np.exp(-0.5 * cdist(X * root, Z * root, "sqeuclidean"))

    def whitened(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield blocks of rows and their A (m, rows)."""
        diagonal = self.variance * self.jitter * np.eye(len(self.Z))
        L = cholesky(self.gram(self.Z, self.Z) + diagonal, lower=True)
        for start in range(0, len(X), BLOCK):
            place = slice(start, start + BLOCK)
            yield place, solve_triangular(L, self.gram(self.Z, (X[place] - self.x[0]) / self.x[1]), lower=True)


def read_model(path: Path) -> Model:
    """Return the model of a file of `fit`."""
    with h5py.File(path) as file:
        mean_x, scale_x, mean_y, scale_y = (
            file[f"standardize/{name}"][()] for name in ("x_mean", "x_scale", "y_mean", "y_scale")
        )
        return Model(
            file["Z"][()],
            float(file["kernel/variance"][()]),
            file["kernel/alpha"][()],
            float(file["beta"][()]),
            float(file.attrs["jitter"]),
            (mean_x, scale_x),
            (float(mean_y[0]), float(scale_y[0])),
        )


def predict(model: Model, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and the variances of the outputs of the rows left out, in the data's units."""
    m = len(model.Z)
    mean, scale = model.y
    AA, AY = np.zeros((m, m)), np.zeros(m)
    for place, A in model.whitened(split.X):
        AA += A @ A.T
        AY += A @ ((split.Y[place] - mean) / scale)
    L_B = cholesky(np.eye(m) + model.beta * AA, lower=True)
    weights = model.beta * solve_triangular(L_B, AY, lower=True)
    means, variances = np.empty(len(split.X_new)), np.empty(len(split.X_new))
    for place, A in model.whitened(split.X_new):
        C = solve_triangular(L_B, A, lower=True)
        means[place] = mean + scale * (weights @ C)
        known = model.variance - (A * A).sum(axis=0) + (C * C).sum(axis=0)
        variances[place] = scale**2 * (np.maximum(known, 0.0) + 1 / model.beta)
    return means, variances


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


def learn(split: Split, arguments: argparse.Namespace) -> tuple[Model, Record]:
    """Run `fit` on the training rows; return the model and the figures of the run."""
    with tempfile.TemporaryDirectory(prefix="mpigp-benchmark-") as name:
        training, model = Path(name, "training.h5"), Path(name, "model.h5")
        with h5py.File(training, "w") as file:
            file["X"], file["Y"] = split.X, split.Y[:, None]
        options = {
            "--model": "regression",
            "--inducing": arguments.inducing,
            "--max-iter": arguments.max_iter,
            "--seed": arguments.seed,
            "-o": model,
        }
        words = [str(word) for option in options.items() for word in option]
        words += [word for option in arguments.option for word in option.split()]
        command = [sys.executable, "run.py", "--ranks", str(arguments.ranks), "fit", str(training), *words, "--json"]
        found = figures(command, arguments.timeout)
        return read_model(model), found


def main() -> None:
    """Learn, predict, print the table, write the file; exit code 1 if the run failed."""
    arguments = _arguments()
    split = read_split(arguments.data, arguments.rows, arguments.seed)
    results = baselines(split)
    try:
        model, run = learn(split, arguments)
    except RunFailed as failure:
        sys.exit(f"failed: {failure}")
    results[f"sparse GP, m = {arguments.inducing}"] = scores(split.Y_new, *predict(model, split))
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
