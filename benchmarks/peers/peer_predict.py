"""Predict by GPy or GPflow, from given parameters, on one thread.

Run by the Python of the peer's own environment; needs NumPy and the peer, nothing of this project:

    PYTHON benchmarks/peers/peer_predict.py --peer gpy|gpflow problem.npz -o predictions.npz [--jitter J] [--block ROWS]

The NPZ file holds the data, the parameters, the new points `X_new` (n*, q) and, for uncertain ones (GPy alone), their
variances `X_new_variance`. The result holds `mean` (n*, d) and `variance` (n*, 1 or d) of the function. The last line
on standard output is a JSON object with `seconds` (the rows alone, after the model was made ready) and `version`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from peer_models import Arrays, gpflow_model, gpy_model, np, read, report

Predict = Callable[[np.ndarray, "np.ndarray | None"], tuple[np.ndarray, np.ndarray]]
"""Takes points (rows, q) and their variances, or None; returns the mean and the variance of the function."""


def gpy(arrays: Arrays, jitter: float | None) -> tuple[Predict, str]:
    """Return the predictions of GPy, which keeps what it needs of the training rows."""
    from GPy.core.parameterization.variational import NormalPosterior

    model, version = gpy_model(arrays, jitter)

    def predict(X: np.ndarray, X_variance: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return model.predict_noiseless(X if X_variance is None else NormalPosterior(X, X_variance))

    return predict, version


def gpflow(arrays: Arrays, jitter: float | None) -> tuple[Predict, str]:
    """Return the predictions of GPflow, compiled to one TensorFlow graph; SGPR keeps what it needs of the rows."""
    model, version = gpflow_model(arrays, jitter)
    import tensorflow as tf

    predict_f = (model.posterior() if str(arrays["model"]) == "regression" else model).predict_f
    graph = tf.function(predict_f, reduce_retracing=True)

    def predict(X: np.ndarray, X_variance: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        if X_variance is not None:
            raise NotImplementedError("GPflow's models predict at certain points alone")
        mean, variance = graph(tf.constant(X))
        return mean.numpy(), variance.numpy()

    return predict, version


PEERS = {"gpy": gpy, "gpflow": gpflow}


def predictions(arguments: argparse.Namespace) -> dict[str, Any]:
    """Predict block by block, write the predictions, return the figures."""
    arrays = read(arguments.problem)
    predict, version = PEERS[arguments.peer](arrays, arguments.jitter)
    X, X_variance = arrays["X_new"], arrays.get("X_new_variance")
    places = [slice(start, start + arguments.block) for start in range(0, len(X), arguments.block)]
    for place in (places[0], places[-1]):  # warm up, at both sizes of block
        predict(X[place], None if X_variance is None else X_variance[place])
    start = time.perf_counter()
    found = [predict(X[place], None if X_variance is None else X_variance[place]) for place in places]
    seconds = time.perf_counter() - start
    mean, variance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    np.savez(arguments.output, mean=mean, variance=variance)
    return {"seconds": seconds, "version": version}


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", help="NPZ file with the data, the parameters and the new points")
    parser.add_argument("--peer", choices=sorted(PEERS), required=True)
    parser.add_argument("-o", "--output", required=True, help="NPZ file to write")
    parser.add_argument("--jitter", type=float, help="on the diagonal of K_mm, per unit of variance (default: its own)")
    parser.add_argument("--block", type=int, default=10_000, help="rows at a time (default 10000)")
    arguments = parser.parse_args()
    report(lambda: predictions(arguments))


if __name__ == "__main__":
    main()
