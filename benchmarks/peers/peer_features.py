"""Tell what a peer has: run by the Python of its own environment; needs NumPy and the peer, nothing of this project.

    PYTHON benchmarks/peers/peer_features.py gpy|gpflow|gpytorch THREADS

The last line on standard output is a JSON object: `version`; `gplvm`, the class of its Bayesian GPLVM; `communicator`,
whether its models take one of MPI; of the bound of a sparse regression and its gradient by Z, whether they are
`finite`, and a hash of their `bits`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from typing import Any

PEER, THREADS = sys.argv[1], sys.argv[2]
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = THREADS  # read when NumPy loads
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, size=(20_000, 8))
Y = np.sin(X).sum(axis=1, keepdims=True) + 0.1 * RNG.normal(size=(20_000, 1))
Z = X[:100].copy()


def told(*values: Any) -> dict[str, Any]:
    """Return what is told of numbers: whether they are finite, and a hash of their bits."""
    arrays = [np.asarray(value, np.float64) for value in values]
    bits = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return {"finite": all(bool(np.isfinite(array).all()) for array in arrays), "bits": bits}


def gpy() -> dict[str, Any]:
    """Return what GPy has."""
    import GPy

    model = GPy.models.SparseGPRegression(X, Y, kernel=GPy.kern.RBF(8, ARD=True), Z=Z)
    kinds = [GPy.models.SparseGPRegression, GPy.models.BayesianGPLVM]
    return {
        "version": GPy.__version__,
        "gplvm": GPy.models.BayesianGPLVM.__name__,
        "communicator": all("mpi_comm" in inspect.signature(kind.__init__).parameters for kind in kinds),
        **told(model.log_likelihood(), model.Z.gradient),
    }


def gpflow() -> dict[str, Any]:
    """Return what GPflow has."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(int(THREADS))
    tf.config.threading.set_inter_op_parallelism_threads(int(THREADS))
    import gpflow

    kernel = gpflow.kernels.SquaredExponential(lengthscales=np.ones(8))
    model = gpflow.models.SGPR((X, Y), kernel, inducing_variable=Z)
    with tf.GradientTape() as tape:
        loss = model.training_loss()
    kinds = [gpflow.models.SGPR, gpflow.models.BayesianGPLVM]
    return {
        "version": gpflow.__version__,
        "gplvm": gpflow.models.BayesianGPLVM.__name__,
        "communicator": any("comm" in name for kind in kinds for name in inspect.signature(kind.__init__).parameters),
        **told(loss, tape.gradient(loss, model.inducing_variable.Z.unconstrained_variable)),
    }


def gpytorch() -> dict[str, Any]:
    """Return what GPyTorch has."""
    import gpytorch
    import torch
    from gpytorch.kernels import InducingPointKernel, RBFKernel, ScaleKernel
    from gpytorch.models.gplvm.bayesian_gplvm import BayesianGPLVM

    torch.set_num_threads(int(THREADS))
    torch.set_default_dtype(torch.float64)
    inputs, outputs = torch.tensor(X), torch.tensor(Y[:, 0])
    likelihood = gpytorch.likelihoods.GaussianLikelihood()

    class Sparse(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(inputs, outputs, likelihood)
            self.mean = gpytorch.means.ZeroMean()
            inner = ScaleKernel(RBFKernel(ard_num_dims=8))
            self.kernel = InducingPointKernel(inner, inducing_points=torch.tensor(Z), likelihood=likelihood)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model = Sparse()
    model.train()
    value = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(inputs), outputs)
    value.backward()
    kinds = [InducingPointKernel, BayesianGPLVM]
    return {
        "version": gpytorch.__version__,
        "gplvm": BayesianGPLVM.__name__,
        "communicator": any("comm" in name for kind in kinds for name in inspect.signature(kind.__init__).parameters),
        **told(value.detach().numpy(), model.kernel.inducing_points.grad.numpy()),
    }


print(json.dumps({"gpy": gpy, "gpflow": gpflow, "gpytorch": gpytorch}[PEER]()))
