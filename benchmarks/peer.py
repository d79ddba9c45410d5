"""Time one evaluation of bound and gradient by GPy or GPflow, on one thread.

Run by the Python of the peer's own environment; needs NumPy and the peer, nothing of this project:

    PYTHON benchmarks/peer.py --peer gpy|gpflow problem.npz [--repeat K] [--jitter J] [--memory BYTES]

The last line on standard output is a JSON object with `seconds` (a list of K), `bound` and `version`.
The gradient is that of the peer's own training: with respect to all of Z, the hyperparameters and, for the
GPLVM, mu and S.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # read when NumPy loads

import numpy as np  # noqa: E402

Evaluate = Callable[[int], float]
"""Does the evaluation number k, at parameters not seen before, and returns the bound."""


def gpy(arrays: Mapping[str, np.ndarray], jitter: float | None) -> tuple[Evaluate, str]:
    """Return the evaluation by GPy's SparseGPRegression or BayesianGPLVM."""
    import GPy
    from GPy.inference.latent_function_inference import VarDTC

    if jitter is not None:
        VarDTC.const_jitter = jitter
    q = arrays["Z"].shape[1]
    kernel = GPy.kern.RBF(q, variance=float(arrays["variance"]), lengthscale=arrays["alpha"] ** -0.5, ARD=True)
    noise = 1.0 / float(arrays["beta"])
    if str(arrays["model"]) == "regression":
        model = GPy.models.SparseGPRegression(arrays["X"], arrays["Y"], kernel=kernel, Z=arrays["Z"])
        model.likelihood.variance = noise
    else:
        model = GPy.models.BayesianGPLVM(
            arrays["Y"],
            q,
            X=arrays["mu"],
            X_variance=arrays["S"],
            Z=arrays["Z"],
            kernel=kernel,
            likelihood=GPy.likelihoods.Gaussian(variance=noise),
        )
    start = model.optimizer_array.copy()

    def evaluate(k: int) -> float:
        # GPy keeps results for parameters it has seen: move them all a little each time.
        return -float(model._objective_grads(start * (1.0 + 1e-9 * k))[0])

    return evaluate, GPy.__version__


def gpflow(arrays: Mapping[str, np.ndarray], jitter: float | None) -> tuple[Evaluate, str]:
    """Return the evaluation by GPflow's SGPR or BayesianGPLVM, compiled to one TensorFlow graph."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import gpflow

    if jitter is not None:
        gpflow.config.set_default_jitter(jitter)
    kernel = gpflow.kernels.SquaredExponential(variance=float(arrays["variance"]), lengthscales=arrays["alpha"] ** -0.5)
    noise = 1.0 / float(arrays["beta"])
    if str(arrays["model"]) == "regression":
        model = gpflow.models.SGPR(
            (arrays["X"], arrays["Y"]), kernel, inducing_variable=arrays["Z"].copy(), noise_variance=noise
        )
    else:
        model = gpflow.models.BayesianGPLVM(
            arrays["Y"], arrays["mu"], arrays["S"], kernel, inducing_variable=arrays["Z"].copy()
        )
        model.likelihood.variance.assign(noise)
    variables = model.trainable_variables

    @tf.function
    def loss_and_gradient() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, variables)

    def evaluate(k: int) -> float:
        return -float(loss_and_gradient()[0])  # the graph keeps nothing from one call to the next

    return evaluate, gpflow.__version__


PEERS = {"gpy": gpy, "gpflow": gpflow}


def main() -> None:
    """Read the arrays, warm up, time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", help="NPZ file with the data and the parameters")
    parser.add_argument("--peer", choices=sorted(PEERS), required=True)
    parser.add_argument("--repeat", type=int, default=5, help="evaluations to time after the first")
    parser.add_argument("--jitter", type=float, help="added to the diagonal of K_mm (default: its own)")
    parser.add_argument("--memory", type=int, help="bytes of address space it may take")
    arguments = parser.parse_args()
    if arguments.memory:
        resource.setrlimit(resource.RLIMIT_AS, (arguments.memory, arguments.memory))

    with np.load(arguments.problem) as file:
        arrays = dict(file)
    try:
        evaluate, version = PEERS[arguments.peer](arrays, arguments.jitter)
        bound = evaluate(0)
        seconds = []
        for k in range(1, arguments.repeat + 1):
            start = time.perf_counter()
            evaluate(k)
            seconds.append(time.perf_counter() - start)
    except Exception as error:  # whatever a peer raises is the result, said in one line
        lines = [line.strip() for line in str(error).splitlines() if "OOM" in line] or str(error).splitlines()
        sys.exit(f"{type(error).__name__}: {lines[0] if lines else ''}")
    print(json.dumps({"seconds": seconds, "bound": bound, "version": version}))


if __name__ == "__main__":
    main()
