"""Train GPflow's SGPR or SVGP against the clock, on one thread, for `python -m experiments.uci`.

Run by the Python of GPflow's own environment; needs NumPy and GPflow, nothing of mpigp:

    PYTHONPATH=CHECKOUT PYTHON -m experiments.uci_gpflow sgpr|svgp problem.npz TASK

TASK and the JSON object in the last line of standard output are those of `experiments.timed_training`. TensorFlow makes
its graphs before the clock starts. SVGP has a full covariance, is whitened, and learns everything by Adam. Its noise
starts at GPflow's own 1, which suits it better than the start of the others.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # read when NumPy loads
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import gpflow  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from experiments.timed_training import RATE, Problem, Recorder, Task, blocks, main, minibatches, scored  # noqa: E402

KERNELS = {"rbf": gpflow.kernels.SquaredExponential, "matern12": gpflow.kernels.Matern12,
           "matern32": gpflow.kernels.Matern32, "matern52": gpflow.kernels.Matern52}  # fmt: skip


def kernel(problem: Problem, task: Task) -> Any:
    """Return the kernel at the start."""
    return KERNELS[task.kernel](variance=float(problem.variance), lengthscales=problem.alpha**-0.5)


def predicted(model: Any, problem: Problem) -> dict[str, float]:
    """Return the scores of the predictions at the new rows."""
    parts = [model.predict_y(problem.X_new[block]) for block in blocks(len(problem.X_new))]
    mean, variance = (np.concatenate([part[which].numpy() for part in parts]) for which in (0, 1))
    return scored(problem.Y_new, mean, variance)


def sgpr_at_start(problem: Problem, task: Task) -> Any:
    """Return the SGPR with the parameters that all programs start from."""
    return gpflow.models.SGPR(
        (problem.X, problem.Y), kernel(problem, task), problem.Z.copy(), noise_variance=1 / float(problem.beta)
    )


def sgpr(problem: Problem, task: Task, recorder: Recorder) -> None:
    """Train by SciPy's L-BFGS."""
    model = sgpr_at_start(problem, task)
    optimizer, start = gpflow.optimizers.Scipy(), [variable.numpy() for variable in model.trainable_variables]
    minimize = partial(optimizer.minimize, model.training_loss, model.trainable_variables)

    def score() -> dict[str, float]:
        return {"bound": float(model.elbo()), **predicted(model, problem)}

    def after(step: int, variables: Any, values: Any) -> None:
        def score_here() -> dict[str, float]:
            optimizer.assign_tensors(variables, values)
            return score()

        if recorder(step + 1, score_here):
            raise StopIteration  # ends SciPy's L-BFGS

    minimize(options={"maxiter": 1})  # makes the graph, which the next call uses again
    optimizer.assign_tensors(model.trainable_variables, start)
    recorder.begin()
    limits = {"maxiter": task.iterations, "maxfun": 100 * task.iterations}
    recorder.finish(minimize(step_callback=after, options=limits).nit, score)


def svgp(problem: Problem, task: Task, recorder: Recorder) -> None:
    """Train by Adam on minibatches."""
    n, q = problem.X.shape
    model = gpflow.models.SVGP(kernel(problem, task), gpflow.likelihoods.Gaussian(), problem.Z.copy(), num_data=n)
    variables, optimizer = model.trainable_variables, tf.optimizers.Adam(RATE)
    optimizer.build(variables)

    @tf.function
    def step(X: Any, Y: Any) -> None:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = model.training_loss((X, Y))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    def score() -> dict[str, float]:
        # The ELBO of a part scales the part up to n rows, so that of all rows is the mean of the parts'.
        parts = [(block.stop - block.start, model.elbo((problem.X[block], problem.Y[block]))) for block in blocks(n)]
        return {"bound": sum(rows * float(elbo) for rows, elbo in parts) / n, **predicted(model, problem)}

    batches = minibatches(n, task.seed)
    first = next(batches)
    step.get_concrete_function(*(tf.TensorSpec((len(first), columns), tf.float64) for columns in (q, 1)))
    recorder.begin()
    for iteration, batch in enumerate(batches, start=1):
        step(tf.constant(problem.X[batch]), tf.constant(problem.Y[batch]))
        if recorder(iteration, score):
            return


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main({"sgpr": sgpr, "svgp": svgp}, gpflow.__version__)
