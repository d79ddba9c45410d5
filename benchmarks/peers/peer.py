"""Time one evaluation of bound and gradient by GPy or GPflow, on one thread.

Run by the Python of the peer's own environment; needs NumPy and the peer, nothing of this project:

    PYTHON benchmarks/peers/peer.py --peer gpy|gpflow problem.npz [--repeat K] [--jitter J] [--memory BYTES]

The last line on standard output is a JSON object with `seconds` (a list of K), `bound` and `version`.
The gradient is that of the peer's own training: with respect to all of Z, the hyperparameters and, for the
GPLVM, mu and S.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

from peer_models import Arrays, gpflow_model, gpy_model, read, report

Evaluate = Callable[[int], float]
"""Does the evaluation number k, at parameters not seen before, and returns the bound."""


def gpy(arrays: Arrays, jitter: float | None) -> tuple[Evaluate, str]:
    """Return the evaluation by GPy's SparseGPRegression or BayesianGPLVM."""
    model, version = gpy_model(arrays, jitter)
    start = model.optimizer_array.copy()

    def evaluate(k: int) -> float:
        # GPy keeps results for parameters it has seen: move them all a little each time.
        return -float(model._objective_grads(start * (1.0 + 1e-9 * k))[0])

    return evaluate, version


def gpflow(arrays: Arrays, jitter: float | None) -> tuple[Evaluate, str]:
    """Return the evaluation by GPflow's SGPR or BayesianGPLVM, compiled to one TensorFlow graph."""
    model, version = gpflow_model(arrays, jitter)
    import tensorflow as tf

    variables = model.trainable_variables

    @tf.function
    def loss_and_gradient() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, variables)

    def evaluate(k: int) -> float:
        return -float(loss_and_gradient()[0])  # the graph keeps nothing from one call to the next

    return evaluate, version


PEERS = {"gpy": gpy, "gpflow": gpflow}


def timed(peer: str, arrays: Arrays, jitter: float | None, repeat: int) -> dict[str, Any]:
    """Warm up, time, and return the figures."""
    evaluate, version = PEERS[peer](arrays, jitter)
    bound = evaluate(0)
    seconds = []
    for k in range(1, repeat + 1):
        start = time.perf_counter()
        evaluate(k)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "bound": bound, "version": version}


def main() -> None:
    """Read the arrays, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", help="NPZ file with the data and the parameters")
    parser.add_argument("--peer", choices=sorted(PEERS), required=True)
    parser.add_argument("--repeat", type=int, default=5, help="evaluations to time after the first")
    parser.add_argument("--jitter", type=float, help="added to the diagonal of K_mm (default: its own)")
    parser.add_argument("--memory", type=int, help="bytes of address space it may take")
    arguments = parser.parse_args()
    if arguments.memory:
        resource.setrlimit(resource.RLIMIT_AS, (arguments.memory, arguments.memory))
    arrays = read(arguments.problem)
    report(lambda: timed(arguments.peer, arrays, arguments.jitter, arguments.repeat))


if __name__ == "__main__":
    main()
