"""Embed new rows in a trained Bayesian GPLVM by GPy's `infer_newX`, on one thread, and judge others' embedding too.

Run by the Python of GPy's own environment; needs NumPy and GPy, nothing of this project:

    PYTHON benchmarks/peers/peer_embed.py problem.npz [--jitter J] [--together K]

The NPZ file holds the training rows `Y`, the parameters, the new rows `Y_new` (n*, d), and another program's embedding
of them, `other_mu` and `other_S` (n*, q). The last line on standard output is a JSON object with `seconds`, `version`,
and for both embeddings (`own`, `other`) the mean per row of GPy's objective, in nats and up to a constant, and the root
mean square error of the outputs at them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from peer_models import Arrays, gpy_model, np, read, report


def embed(model: Any, Y: np.ndarray, together: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and the variances of rows, inferred so many together."""
    found = [model.infer_newX(Y[start : start + together])[0] for start in range(0, len(Y), together)]
    return np.concatenate([x.mean.values for x in found]), np.concatenate([x.variance.values for x in found])


def quality(model: Any, Y: np.ndarray, mu: np.ndarray, S: np.ndarray) -> dict[str, float]:
    """Return the mean of the objective per row, and the root mean square error of the outputs."""
    from GPy.core.parameterization.variational import NormalPosterior

    inference = model.infer_newX(Y, optimize=False)[1]
    inference.X.mean[:], inference.X.variance[:] = mu, S
    error = model.predict_noiseless(NormalPosterior(mu, S))[0] - Y
    return {"bound": float(inference.log_likelihood()) / len(Y), "rmse": float(np.sqrt(np.mean(error**2)))}


def figures(arrays: Arrays, jitter: float | None, together: int) -> dict[str, Any]:
    """Embed, and return the figures."""
    model, version = gpy_model(arrays, jitter)
    Y = arrays["Y_new"]
    start = time.perf_counter()
    mu, S = embed(model, Y, together)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "version": version,
        "own": quality(model, Y, mu, S),
        "other": quality(model, Y, arrays["other_mu"], arrays["other_S"]),
    }


def main() -> None:
    """Embed and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", help="NPZ file with the data, the parameters and the new rows")
    parser.add_argument("--jitter", type=float, help="on the diagonal of K_mm, per unit of variance (default: its own)")
    parser.add_argument("--together", type=int, default=50, help="rows that are inferred together (default 50)")
    arguments = parser.parse_args()
    report(lambda: figures(read(arguments.problem), arguments.jitter, arguments.together))


if __name__ == "__main__":
    main()
