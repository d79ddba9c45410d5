"""The problems that are timed: their sizes, their least work, and their arrays and files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

BETA = 100.0
JITTER = 1e-6  # the same for all programs, else their bounds differ

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Problem:
    """One evaluation of a `model` with n rows, m inducing points, q inputs and d outputs.

    The least work of an evaluation with its gradient is counted in flops that could run at the rate of
    dgemm, and in exponentials:

        regression   4 n m² + 2 n m (3q + 3d) flops,   2 n m exponentials
        gplvm        8 q P + 6 n m d flops,            2 P exponentials,     P = n m (m + 1) / 2
    """

    model: str
    n: int
    m: int
    q: int
    d: int

    def __str__(self) -> str:
        return f"{self.model} ({self.n}, {self.m}, {self.q}, {self.d})"

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        n, m, q, d = self.n, self.m, self.q, self.d
        if self.model == "regression":
            return 4.0 * n * m * m + 2.0 * n * m * (3 * q + 3 * d)
        return 8.0 * q * self._pairs + 6.0 * n * m * d

    @property
    def exponentials(self) -> float:
        """Calls of the exponential."""
        return 2.0 * self.n * self.m if self.model == "regression" else 2.0 * self._pairs

    @property
    def row_bytes(self) -> int:
        """Bytes of all rows in double precision: the data; for the GPLVM also mu, S and their gradients."""
        numbers = self.q + self.d if self.model == "regression" else 4 * self.q + self.d
        return 8 * self.n * numbers

    @property
    def _pairs(self) -> float:
        return self.n * self.m * (self.m + 1) / 2


class Goal(NamedTuple):
    """What is asked of a problem.

    fraction : at least this fraction of the limit
    speedup : at least this many times faster than the fastest peer
    """

    fraction: float
    speedup: float


SIZES: dict[Problem, Goal] = {
    Problem("regression", 10_000, 100, 8, 1): Goal(0.5, 4.0),
    Problem("regression", 100_000, 100, 8, 1): Goal(0.5, 4.0),
    Problem("regression", 100_000, 500, 8, 1): Goal(0.65, 2.5),
    Problem("regression", 10_000, 100, 2, 10): Goal(0.5, 4.0),
    Problem("gplvm", 1000, 30, 10, 12): Goal(0.5, 8.0),
    Problem("gplvm", 1000, 50, 10, 12): Goal(0.5, 8.0),
    Problem("gplvm", 10_000, 50, 5, 12): Goal(0.5, 10.0),
    Problem("gplvm", 10_000, 100, 10, 64): Goal(0.65, 10.0),
}


def make(problem: Problem, seed: int = 0) -> Arrays:
    """Draw the data and the parameters of a problem.

    The weights `alpha` are of order 1/q, so that the kernel between two points is of order 1; Y is a
    smooth function of the inputs, or of the latent means, with noise of variance 1/beta.

    Returns
    -------
    arrays : Y (n, d), Z (m, q), alpha (q,), variance (), beta (); X (n, q) for regression, mu and
        S (n, q) for the GPLVM
    """
    n, m, q, d = problem.n, problem.m, problem.q, problem.d
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, q))
    phase = inputs @ (rng.standard_normal((q, d)) / np.sqrt(q))
    arrays = {
        "Y": np.sin(2.0 * phase) + phase + rng.standard_normal((n, d)) / np.sqrt(BETA),
        "Z": inputs[np.sort(rng.choice(n, m, replace=False))],
        "alpha": np.linspace(0.5, 1.5, q) / q,
        "variance": np.array(1.0),
        "beta": np.array(BETA),
    }
    if problem.model == "regression":
        return {"X": inputs, **arrays}
    return {"mu": inputs, "S": rng.uniform(0.1, 0.5, (n, q)), **arrays}


def write(problem: Problem, arrays: Arrays, folder: Path) -> tuple[Path, Path]:
    """Write the data file and the parameter file of a problem, with the jitter as one of its attributes.

    Returns
    -------
    data, params : the paths of the two files
    """
    data, params = folder / "data.h5", folder / "params.h5"
    with h5py.File(data, "w") as file:
        for name in ("X", "Y"):
            if name in arrays:
                file[name] = arrays[name]
    with h5py.File(params, "w") as file:
        file.attrs["model"] = problem.model
        file.attrs["jitter"] = JITTER
        for name in ("Z", "beta"):
            file[name] = arrays[name]
        for name in ("variance", "alpha"):
            file[f"kernel/{name}"] = arrays[name]
        for name in ("mu", "S"):
            if name in arrays:
                file[f"latent/{name}"] = arrays[name]
    return data, params


def read_parameters(model: Path) -> Arrays:
    """Return the parameters in a model file: Z, alpha, variance, beta, jitter; mu and S of a GPLVM."""
    names = {"Z": "Z", "beta": "beta", "variance": "kernel/variance", "alpha": "kernel/alpha"}
    names |= {"mu": "latent/mu", "S": "latent/S"}
    with h5py.File(model) as file:
        found = {name: np.asarray(file[place][()]) for name, place in names.items() if place in file}
        return {**found, "jitter": np.array(file.attrs["jitter"])}


def write_npz(model: str, arrays: Arrays, folder: Path) -> Path:
    """Write the same arrays as one NPZ file, for an environment with NumPy alone; returns its path."""
    path = folder / "problem.npz"
    np.savez(path, allow_pickle=False, **{"model": np.array(model), **arrays})
    return path


def describe(problem: Problem) -> dict[str, str | int]:
    """Return the model and the sizes, for a JSON file."""
    return asdict(problem)
