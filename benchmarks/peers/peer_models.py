"""The models of GPy and GPflow at given parameters, on one thread; what a peer's script reads and prints.

Imported by the scripts that the Python of a peer's own environment runs; needs NumPy and the peer, nothing of this
project. The arrays are those of `benchmarks.support.problems.make`. Import it before NumPy, which it keeps to one
thread.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # read when NumPy loads

import numpy as np  # noqa: E402

Arrays = Mapping[str, np.ndarray]


def read(path: str) -> Arrays:
    """Return the arrays of an NPZ file."""
    with np.load(path) as file:
        return dict(file)


def report(work: Callable[[], dict[str, Any]]) -> None:
    """Print what the work returns as one line of JSON; what a peer raises ends the program with one line."""
    try:
        found = work()
    except Exception as error:  # whatever it is, it is the result
        lines = [line.strip() for line in str(error).splitlines() if "OOM" in line] or str(error).splitlines()
        sys.exit(f"{type(error).__name__}: {lines[0] if lines else ''}")
    print(json.dumps(found))


def gpy_model(arrays: Arrays, jitter: float | None) -> tuple[Any, str]:
    """Return GPy's SparseGPRegression or BayesianGPLVM, and GPy's version; the jitter is per unit of variance."""
    import GPy
    from GPy.inference.latent_function_inference import VarDTC

    if jitter is not None:
        VarDTC.const_jitter = jitter * float(arrays["variance"])
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
    return model, GPy.__version__


def gpflow_model(arrays: Arrays, jitter: float | None) -> tuple[Any, str]:
    """Return GPflow's SGPR or BayesianGPLVM, and GPflow's version; the jitter is per unit of variance."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    import gpflow

    if jitter is not None:
        gpflow.config.set_default_jitter(jitter * float(arrays["variance"]))
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
    return model, gpflow.__version__
