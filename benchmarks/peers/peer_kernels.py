"""Time one evaluation of bound and gradient by GPflow with any kernel, on one thread.

Run by the Python of GPflow's own environment; needs NumPy and GPflow, nothing of this project:

    PYTHON benchmarks/peers/peer_kernels.py problem.npz --jitter J [--repeat K] [--memory BYTES]

The NPZ file holds the arrays of `benchmarks.support.problems.make`, and `kernel`, the JSON text of a list of terms,
each a list of parts: `kind`, `columns`, `variance` (null where it has none), `alpha`, `period` and `shape`, as
`benchmarks.kernels.described` makes them. The jitter is added to the diagonal of K_mm as it is.

The last line on standard output is a JSON object with `seconds` of the processor (a list of K), `bound` and `version`.
The gradient is by all of Z, the noise and the parameters that are given, and for the GPLVM by mu and S.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from functools import reduce
from operator import add, mul
from typing import Any

from peer_models import Arrays, gpflow_model, np, read, report

Part = dict[str, Any]


def kernel_of(terms: list[list[Part]]) -> Any:
    """Return GPflow's kernel, a sum of products of parts."""
    return reduce(add, (reduce(mul, map(part_of, term)) for term in terms))


def part_of(part: Part) -> Any:
    """Return GPflow's kernel of a part; where the part has no variance, GPflow's is one and stays so."""
    from gpflow import kernels, set_trainable

    kind, alpha, dims = part["kind"], np.array(part["alpha"]), columns_of(part)
    if kind == "linear":
        return kernels.Linear(variance=alpha, active_dims=dims)
    variance = 1.0 if part["variance"] is None else part["variance"]
    if kind == "bias":
        kernel = kernels.Constant(variance=variance)
    elif kind == "rq":
        kernel = kernels.RationalQuadratic(variance, alpha**-0.5, alpha=part["shape"], active_dims=dims)
    else:
        names = {"matern12": "Matern12", "matern32": "Matern32", "matern52": "Matern52"}
        kernel = getattr(kernels, names.get(kind, "SquaredExponential"))(variance, alpha**-0.5, active_dims=dims)
    if part["variance"] is None:
        set_trainable(kernel.variance, False)
    return kernels.Periodic(kernel, period=np.array(part["period"])) if kind == "periodic" else kernel


def columns_of(part: Part) -> Any:
    """Return the columns of a part, as a slice if they are one, which GPflow takes faster; psi statistics need it."""
    columns = part["columns"]
    if columns and columns == list(range(columns[0], columns[-1] + 1)):
        return slice(columns[0], columns[-1] + 1)
    return columns


def timed(arrays: Arrays, jitter: float, repeat: int) -> dict[str, Any]:
    """Compile to one TensorFlow graph, warm up, time, and return the figures."""
    model, version = gpflow_model(arrays, jitter)
    import tensorflow as tf

    model.kernel = kernel_of(json.loads(str(arrays["kernel"])))
    variables = model.trainable_variables

    @tf.function
    def loss_and_gradient() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = model.training_loss()
        return loss, tape.gradient(loss, variables)

    bound = -float(loss_and_gradient()[0])
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        float(loss_and_gradient()[0])
        seconds.append(time.process_time() - start)
    return {"seconds": seconds, "bound": bound, "version": version}


def main() -> None:
    """Read the arrays, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", help="NPZ file with the data, the parameters and the kernel")
    parser.add_argument("--jitter", type=float, required=True, help="added to the diagonal of K_mm")
    parser.add_argument("--repeat", type=int, default=5, help="evaluations to time after the first")
    parser.add_argument("--memory", type=int, help="bytes of address space it may take")
    arguments = parser.parse_args()
    if arguments.memory:
        resource.setrlimit(resource.RLIMIT_AS, (arguments.memory, arguments.memory))
    report(lambda: timed(read(arguments.problem), arguments.jitter, arguments.repeat))


if __name__ == "__main__":
    main()
