"""Learn a Bayesian GPLVM with GPy, on one thread, and report the bound as it rises and the latent space.

Run by the Python of GPy's own environment; needs NumPy and GPy, nothing of this project:

    PYTHON experiments/gpy_fit.py data.npz --latent Q --inducing M [--max-iter N] [--seed S]

It starts from PCA: means of unit variance, S = 0.1, Z a random subset of the means, noise 1 % of the variance. The last
line on standard output is a JSON object with `seconds` and `bound` (one per evaluation: those since the start, and the
best so far), `total_seconds`, `status` (what its optimiser says of the end), `alpha` (q,), `mu` (n, q) and `version`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # read when NumPy loads

import numpy as np  # noqa: E402


def pca(Y: np.ndarray, q: int) -> np.ndarray:
    """Return the scores (n, q) of centred Y on its first principal components, each of unit variance."""
    return np.linalg.svd(Y, full_matrices=False)[0][:, :q] * np.sqrt(len(Y))


def fit(Y: np.ndarray, q: int, m: int, max_iter: int, seed: int) -> dict[str, Any]:
    """Learn, and return the figures."""
    import GPy

    class Traced(GPy.models.BayesianGPLVM):
        """Notes every evaluation."""

        def _objective_grads(self, x: np.ndarray) -> Any:
            found = super()._objective_grads(x)
            seconds.append(time.perf_counter() - began)
            bounds.append(max(-float(found[0]), bounds[-1] if bounds else -np.inf))
            return found

    seconds: list[float] = []
    bounds: list[float] = []
    mu = pca(Y, q)
    model = Traced(
        Y,
        q,
        X=mu,
        X_variance=np.full(mu.shape, 0.1),
        Z=mu[np.random.default_rng(seed).choice(len(mu), m, replace=False)].copy(),
        kernel=GPy.kern.RBF(q, ARD=True),
        likelihood=GPy.likelihoods.Gaussian(variance=0.01 * float(Y.var())),
    )
    began = time.perf_counter()
    model.optimize("lbfgs", max_iters=max_iter)
    total = time.perf_counter() - began
    return {
        "seconds": seconds,
        "bound": bounds,
        "total_seconds": total,
        "status": str(model.optimization_runs[-1].status),
        "alpha": (np.asarray(model.kern.lengthscale) ** -2.0).tolist(),
        "mu": np.asarray(model.X.mean).tolist(),
        "version": GPy.__version__,
    }


def main() -> None:
    """Read the data, learn, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="NPZ file with Y, centred")
    parser.add_argument("--latent", type=int, required=True)
    parser.add_argument("--inducing", type=int, required=True)
    parser.add_argument("--max-iter", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with np.load(arguments.data) as file:
        Y = file["Y"]
    print(json.dumps(fit(Y, arguments.latent, arguments.inducing, arguments.max_iter, arguments.seed)))


if __name__ == "__main__":
    main()
