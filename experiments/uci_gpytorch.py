"""Train GPyTorch's SVGP against the clock, on one thread, for `python -m experiments.uci`.

Run by the Python of GPyTorch's own environment; needs NumPy and GPyTorch, nothing of mpigp:

    PYTHONPATH=CHECKOUT PYTHON -m experiments.uci_gpytorch svgp problem.npz TASK

TASK and the JSON object in the last line of standard output are those of `experiments.timed_training`. The model is as
in GPyTorch's tutorials: single precision, a full covariance, whitened, everything learned by Adam. Its noise starts at
GPyTorch's own 0.69, which suits it better than the start of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch

from experiments.timed_training import RATE, Problem, Recorder, Task, blocks, main, minibatches, scored


class SVGP(gpytorch.models.ApproximateGP):
    """A GP of mean zero with q(u) at the inducing points Z (m, q)."""

    def __init__(self, Z: Any, kernel: Any) -> None:
        q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True))
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

    def forward(self, x: Any) -> Any:
        """Return the prior at inputs x (n, q)."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def kernel(problem: Problem, task: Task) -> Any:
    """Return the kernel at the start."""
    q = len(problem.alpha)
    makers: dict[str, Callable[[], Any]] = {
        "rbf": lambda: gpytorch.kernels.RBFKernel(ard_num_dims=q),
        **{f"matern{k}2": partial(gpytorch.kernels.MaternKernel, nu=k / 2, ard_num_dims=q) for k in (1, 3, 5)},
    }
    made = gpytorch.kernels.ScaleKernel(makers[task.kernel]())
    made.outputscale = float(problem.variance)
    made.base_kernel.lengthscale = torch.tensor(problem.alpha**-0.5, dtype=torch.float32)
    return made


def svgp(problem: Problem, task: Task, recorder: Recorder) -> None:
    """Train by Adam on minibatches."""
    torch.manual_seed(task.seed)  # of the first q(u)
    n = len(problem.X)
    X, Y, X_new, Z = (
        torch.tensor(values, dtype=torch.float32)
        for values in (problem.X, problem.Y[:, 0], problem.X_new, problem.Z)
    )  # fmt: skip
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = SVGP(Z, kernel(problem, task))
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)  # by row
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=RATE)

    def score() -> dict[str, float]:
        model.eval(), likelihood.eval()
        with torch.no_grad():
            bound = sum((block.stop - block.start) * float(elbo(model(X[block]), Y[block])) for block in blocks(n))
            parts = [likelihood(model(X_new[block])) for block in blocks(len(X_new))]
            mean, variance = (
                np.concatenate([getattr(part, name).numpy() for part in parts]).astype(float)
                for name in ("mean", "variance")
            )  # fmt: skip
        model.train(), likelihood.train()
        return {"bound": bound, **scored(problem.Y_new[:, 0], mean, variance)}

    model.train(), likelihood.train()
    recorder.begin()
    for iteration, batch in enumerate(minibatches(n, task.seed), start=1):
        optimizer.zero_grad()
        loss = -elbo(model(X[batch]), Y[batch])
        loss.backward()
        optimizer.step()
        if recorder(iteration, score):
            return


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    main({"svgp": svgp}, gpytorch.__version__)
