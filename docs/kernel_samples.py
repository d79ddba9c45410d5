"""Functions drawn from the priors of the built-in kernels and of some compositions: the figure of docs/kernels.md.

    python docs/kernel_samples.py -o kernels.png

The covariances are those of mpigp. The seed is fixed, and all panels have the same random numbers. Needs matplotlib.
"""

from __future__ import annotations

import argparse

import numpy as np
from matplotlib.figure import Figure

from mpigp.kernels.registry import backend_of
from mpigp.report.figures import COLORS

# The parameters of each, in the order of mpigp.kernels.composition; alpha = 4 is a lengthscale of ½.
KERNELS = {
    "rbf": [4.0],
    "matern52": [4.0],
    "matern32": [4.0],
    "matern12": [4.0],
    "rq": [1.0, 4.0, 0.3],
    "periodic": [1.0, 4.0, 1.3],
    "linear": [0.5],
    "bias": [1.0],
    "linear + rbf": [1.0, 0.2, 16.0],
    "linear + periodic": [0.5, 0.3, 1.0, 0.7],
    "rbf * periodic": [1.0, 0.3, 2.0, 0.7],
    "linear * periodic": [0.5, 1.0, 0.7],
}
DRAWS, SEED = 3, 21


def draws(kernel: str, parameters: list[float], x: np.ndarray) -> np.ndarray:
    """Return functions (DRAWS, n) of the prior, at the inputs x (n,)."""
    backend, alpha, X = backend_of(kernel), np.array(parameters), x[:, None]
    K = backend.scale(alpha, 1) * backend.covariance(X, X, alpha)
    L = np.linalg.cholesky(K + 1e-8 * np.eye(len(x)))
    return np.random.default_rng(SEED).normal(size=(DRAWS, len(x))) @ L.T


def main() -> None:
    """Draw all kernels, a panel for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", required=True, metavar="PNG", help="the picture to write")
    path = parser.parse_args().output
    x = np.linspace(-2, 2, 401)
    figure = Figure(figsize=(11, 6.6), layout="constrained")
    panels = figure.subplots(3, 4, sharex=True, sharey=True).flat
    for axes, (kernel, parameters) in zip(panels, KERNELS.items(), strict=True):
        for function, color in zip(draws(kernel, parameters, x), COLORS, strict=False):
            axes.plot(x, function, color=color, linewidth=1.2)
        axes.set_title(kernel, fontsize=11, family="monospace")
        axes.grid(color="#dfe3e8", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(-3.4, 3.4)
    figure.supxlabel("input x, standardized", fontsize=10)
    figure.supylabel("function", fontsize=10)
    figure.savefig(path, format="png", dpi=110)
    print(path)


if __name__ == "__main__":
    main()
