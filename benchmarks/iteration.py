"""Time iterations of L-BFGS against the evaluations in them, on one core, in one process.

    python -m benchmarks.iteration [--rows N] [--inducing M] [--latent Q] [--outputs D] [--iterations K] [-o FILE.json]

The first iterations, until the memory of the optimiser is full, are not counted: they are cheaper.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # read when NumPy loads

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from mpi4py import MPI  # noqa: E402

from benchmarks.support import machine, problems  # noqa: E402
from benchmarks.support.problems import JITTER, Problem  # noqa: E402
from mpigp.fit.objective import Objective  # noqa: E402
from mpigp.fit.optimizers.lbfgs import LBFGS  # noqa: E402
from mpigp.gp.parameters import Globals  # noqa: E402
from mpigp.gp.statistics import MODELS  # noqa: E402
from mpigp.mpi.evaluator import Evaluation, Evaluator  # noqa: E402
from mpigp.mpi.rows import Rows  # noqa: E402

ASKED = 1.15


class Clock:
    """Adds up the seconds spent in functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds[name] += time.perf_counter() - began
                self.calls[name] += 1

        return timed

    def clear(self) -> None:
        """Forget what was counted."""
        self.seconds.clear()
        self.calls.clear()


class TimedEvaluator(Evaluator):
    """An evaluator whose calls are timed."""

    clock: Clock

    def __call__(self, parameters: Globals | None, jitter: float) -> Evaluation:
        """Evaluate."""
        return self.clock.wrap("evaluation", super().__call__)(parameters, jitter)


def measure(problem: Problem, iterations: int) -> dict[str, Any]:
    """Return the seconds of iterations with a full memory, and of their parts."""
    arrays = problems.make(problem)
    rows = Rows(
        MPI.COMM_SELF, problem.n, arrays["mu" if problem.model == "gplvm" else "X"], arrays.get("S"), arrays["Y"]
    )
    evaluator = TimedEvaluator(MPI.COMM_SELF, MODELS[problem.model], rows, problem.m, problem.q)
    clock = evaluator.clock = Clock()
    objective = Objective(evaluator, JITTER)
    start = Globals(arrays["Z"].copy(), float(arrays["variance"]), arrays["alpha"], float(arrays["beta"]))
    space = objective.space
    optimizer = LBFGS(clock.wrap("objective", objective), space, objective.point(start))
    for name in ("dots", "combine"):
        setattr(space, name, clock.wrap(name, getattr(space, name)))
    while len(optimizer.pairs) < optimizer.memory:
        if not optimizer.step():
            sys.exit("no step lowers the value before the memory is full: take another problem")
    clock.clear()
    each = []
    for _ in range(iterations):
        began, before = time.perf_counter(), clock.seconds["evaluation"]
        optimizer.step()
        seconds = time.perf_counter() - began
        each.append(seconds / (clock.seconds["evaluation"] - before))
        clock.seconds["step"] += seconds
    mean = {name: value / iterations for name, value in clock.seconds.items()}
    return {
        **problems.describe(problem),
        "ratio": mean["step"] / mean["evaluation"],
        "ratios": each,
        "evaluations_per_iteration": clock.calls["evaluation"] / iterations,
        "seconds_per_iteration": {
            "step": mean["step"],
            "evaluations": mean["evaluation"],
            "transform of the objective": mean["objective"] - mean["evaluation"],
            "dot products": mean["dots"],
            "direction": mean["combine"],
            "the rest": mean["step"] - mean["objective"] - mean["dots"] - mean["combine"],
        },
    }


def main() -> None:
    """Measure, print, write the file; exit code 1 if an iteration costs more than asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.iteration", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", choices=list(MODELS), default="gplvm", help="default gplvm")
    add("--rows", type=int, default=100_000, help="default 100000")
    add("--inducing", type=int, default=50, help="default 50")
    add("--latent", type=int, default=10, help="latent dimensions, or inputs (default 10)")
    add("--outputs", type=int, default=12, help="default 12")
    add("--iterations", type=int, default=10, help="iterations to time (default 10)")
    add("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    add("-o", "--output", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    problem = Problem(arguments.model, arguments.rows, arguments.inducing, arguments.latent, arguments.outputs)
    result = measure(problem, arguments.iterations)
    mark = "!" if result["ratio"] > ASKED else ""
    low, high = min(result["ratios"]), max(result["ratios"])
    print(f"{problem}: an iteration costs {result['ratio']:.3f}{mark} of its evaluations"
          f" ({low:.3f} to {high:.3f}; asked at most {ASKED})")  # fmt: skip
    for name, seconds in result["seconds_per_iteration"].items():
        print(f"    {name:28}{1e3 * seconds:10.2f} ms")
    if arguments.output:
        report = {"machine": machine.describe(), "core": arguments.core, **result}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(result["ratio"] > ASKED)


if __name__ == "__main__":
    main()
