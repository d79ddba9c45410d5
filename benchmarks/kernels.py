"""Time one evaluation with each kernel on one core, against the RBF kernel, its parts apart, and GPflow.

    python -m benchmarks.kernels [--size N M Q D] [--kernels "rbf + linear"] [--peer gpflow --python PATH] [-o FILE]

All kernels are evaluated in turn, in one process, so that what slows the machine slows all of them. Seconds are those
of the processor, on one thread, so that other programs on the core do not count. Those of a round are the least of its
evaluations; a figure is the median of the rounds. A single kernel is compared with RBF, and a sum of two with the sum
of the seconds that they take apart. GPflow's seconds are compared with those of ours right before, at the same
parameters and jitter, where the bounds must be equal.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mpi4py import MPI
from threadpoolctl import threadpool_limits

from benchmarks.support import machine, problems, study
from benchmarks.support.launch import ROOT, RunFailed, figures
from benchmarks.support.problems import JITTER, Arrays, Problem
from benchmarks.support.study import Record, figure, spread
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import Model, model_of
from mpigp.kernels.composition import columns_of
from mpigp.kernels.expression import parse
from mpigp.mpi.evaluator import Evaluation, Evaluator
from mpigp.mpi.rows import Rows

SIZES = ((10_000, 100, 8, 1), (100_000, 500, 8, 1))
GPLVM, LATENT_KERNEL, LATENT_DIFFERENCE = Problem("gplvm", 100, 15, 3, 5), "rbf + linear", 1e-7
VALUES = {"variance": 0.8, "period": 3.0, "shape": 1.5}  # of composed kernels, beside alpha
SECONDS = 0.5  # repeat a short evaluation until the repeats take about this long


class Asked(NamedTuple):
    """What a kernel is compared with, and what is asked of it.

    beside : the kernels whose seconds, added up, it is compared with
    ratio : at most this many times their seconds
    speedup : at least this many times faster than a peer
    difference : at most this relative difference of the bounds
    """

    beside: tuple[str, ...] = ("rbf",)
    ratio: float | None = None
    speedup: float | None = None
    difference: float = 1e-9


KERNELS = {
    "rbf": Asked(),
    # GPflow's distances are roots of |x|² + |z|² − 2xz: where points coincide, half of the digits are missing.
    "matern12": Asked(difference=1e-7),
    "matern32": Asked(ratio=1.5, speedup=3.0),
    "matern52": Asked(ratio=1.5),
    "rq": Asked(),
    "periodic": Asked(),
    "linear": Asked(),
    "rbf + linear": Asked(("rbf", "linear"), 1.15, 3.0),
    "matern32 + rbf": Asked(("matern32", "rbf"), 1.15),
    "rbf[0:4] * periodic[4] + bias": Asked(),
}


class Timed:
    """Evaluations with a kernel, at the parameters of a problem."""

    def __init__(self, model: str, kernel: str, rows: Rows, arrays: Arrays) -> None:
        m, q = arrays["Z"].shape
        self.kernel, self.model = kernel, model_of(model, kernel)
        self.alpha = parameters(self.model, arrays["alpha"])
        self.globals = Globals(arrays["Z"], float(arrays["variance"]), self.alpha, float(arrays["beta"]))
        self.evaluator = Evaluator(MPI.COMM_SELF, self.model, rows, m, q)

    def __call__(self) -> Evaluation:
        """Evaluate the bound and all gradients."""
        return self.evaluator(self.globals, JITTER)

    def seconds(self) -> float:
        """Return the seconds of the processor that one evaluation takes."""
        start = time.process_time()
        self()
        return time.process_time() - start

    def whitened(self) -> list[str]:
        """Return the rounds of the last evaluation whose blocks of rows were whitened, which takes a product more: K_mm
        is ill conditioned."""
        assert self.evaluator.last is not None
        inducing, _ = self.evaluator.last
        rounds = {"statistics": inducing.unwhitened_statistics, "gradient": inducing.unwhitened_gradient}
        return [name for name, unwhitened in rounds.items() if not unwhitened]

    def peer_jitter(self, evaluation: Evaluation) -> float:
        """Return what is added to the diagonal of K_mm, whose jitter is that of a kernel of scale and variance one."""
        return evaluation.jitter * self.model.prior_variance(self.globals)


def parameters(model: Model, alpha: np.ndarray) -> np.ndarray:
    """Return the parameters of a kernel: alpha (q,), or those of its parts, where each alpha is that of its column."""
    named = model.backend.named_parameters(len(alpha))
    return np.array([VALUES.get(each.name, alpha[each.column or 0]) for each in named]) if named else alpha


def described(timed: Timed) -> list[list[Record]]:
    """Return a kernel for a peer, as terms of parts: their kinds, columns and parameters; no variance where None."""
    q, expression = timed.globals.Z.shape[1], parse(timed.kernel)
    named = timed.model.backend.named_parameters(q)

    def values(label: str, name: str) -> list[float]:
        if not named:  # a single part, whose variance is the model's
            return {"alpha": timed.alpha.tolist(), "variance": [timed.globals.variance]}.get(name, [])
        found = zip(named, timed.alpha.tolist(), strict=True)
        return [value for each, value in found if (each.part, each.name) == (label, name)]

    def part(kind: str, columns: list[int], label: str) -> Record:
        lists = {name: values(label, name) for name in ("alpha", "period")}
        singles = {name: next(iter(values(label, name)), None) for name in ("variance", "shape")}
        return {"kind": kind, "columns": columns, **lists, **singles}

    return [
        [part(each.kind, columns_of(each, q), label) for each, label in zip(term, labels, strict=True)]
        for term, labels in zip(expression.terms, expression.labels(), strict=True)
    ]


def main() -> None:
    """Measure, print the table, write the file; exit code 1 if a run of ours failed."""
    arguments = _arguments()
    os.sched_setaffinity(0, {arguments.core})
    study.run(measure, table, arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the figures of all sizes, and with a peer the difference of the bounds of a GPLVM."""
    with threadpool_limits(1):
        sizes = [measure_size(Problem("regression", *size), folder, arguments) for size in arguments.size or SIZES]
        peers = [*zip(arguments.peer, arguments.python, strict=True)]
        latent = {peer: check_latent(python, folder, arguments) for peer, python in peers}
    return {"core": arguments.core, "jitter": JITTER, "sizes": sizes, "gplvm": latent}


def measure_size(problem: Problem, folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the figures of the kernels at one size."""
    arrays = problems.make(problem, arguments.seed)
    rows = Rows(MPI.COMM_SELF, problem.n, arrays["X"], None, arrays["Y"])
    timed = {name: Timed(problem.model, name, rows, arrays) for name in needed(arguments.kernels)}
    evaluations = {name: each() for name, each in timed.items()}  # this warms up, too
    repeat = max(arguments.repeat, math.ceil(SECONDS / timed["rbf"].seconds()))
    rounds: list[Record] = []
    for number in range(arguments.rounds):
        print(f"round {number + 1}: {problem}", file=sys.stderr, flush=True)
        rounds.append({"seconds": least_seconds(timed.values(), repeat), "peers": {}})
        for peer, python in zip(arguments.peer, arguments.python, strict=True):
            rounds[-1]["peers"][peer] = {
                name: beside_peer(python, timed[name], evaluations[name], arrays, repeat, folder, arguments)
                for name in arguments.kernels
            }
    results = [
        {"kernel": name, "whitened": timed[name].whitened(), "bound": evaluations[name].bound, **summary(name, rounds)}
        for name in arguments.kernels
    ]
    return {**problems.describe(problem), "kernels": results, "rounds": rounds}


def needed(kernels: Iterable[str]) -> list[str]:
    """Return the kernels and those that they are compared with, in the order of the table; RBF always."""
    wanted = {"rbf"}.union(kernels, *(KERNELS[name].beside for name in kernels))
    return [name for name in KERNELS if name in wanted]


def least_seconds(timed: Iterable[Timed], repeat: int) -> dict[str, float]:
    """Return the least seconds of each kernel, all evaluated in turn so many times."""
    turns = [{each.kernel: each.seconds() for each in timed} for _ in range(repeat)]
    return {name: min(turn[name] for turn in turns) for name in turns[0]}


def beside_peer(
    python: str,
    timed: Timed,
    evaluation: Evaluation,
    arrays: Arrays,
    repeat: int,
    folder: Path,
    arguments: argparse.Namespace,
) -> Record:
    """Return the least seconds of ours and then of a peer, its bound and version, or the error it ended with."""
    ours = least_seconds([timed], repeat)[timed.kernel]
    print(f"    {timed.kernel}", file=sys.stderr, flush=True)
    given = {**arrays, "kernel": np.array(json.dumps(described(timed)))}
    file = problems.write_npz(timed.model.name, given, folder)
    options = {
        "--jitter": repr(timed.peer_jitter(evaluation)),
        "--repeat": arguments.peer_repeat,
        "--memory": arguments.memory or int(0.8 * machine.available_memory()),
    }
    words = [str(word) for option in options.items() for word in option]
    script = ROOT / "benchmarks" / "peers" / "peer_kernels.py"
    try:
        theirs = figures([python, str(script), str(file), *words], arguments.timeout)
    except RunFailed as failure:
        return {"error": str(failure)}
    differ = abs(theirs["bound"] / evaluation.bound - 1.0)
    return {**theirs, "seconds": min(theirs["seconds"]), "ours": ours, "bound_difference": differ}


def check_latent(python: str, folder: Path, arguments: argparse.Namespace) -> Record:
    """Return a peer's figures of a small GPLVM with a sum of kernels, whose bound must be ours."""
    arrays = problems.make(GPLVM, arguments.seed)
    rows = Rows(MPI.COMM_SELF, GPLVM.n, arrays["mu"], arrays["S"], arrays["Y"])
    timed = Timed(GPLVM.model, LATENT_KERNEL, rows, arrays)
    return beside_peer(python, timed, timed(), arrays, arguments.repeat, folder, arguments)


def summary(kernel: str, rounds: list[Record]) -> Record:
    """Reduce the rounds of a kernel to medians and ranges.

    Returns
    -------
    result : `seconds`, their `ratio` to those of the kernels `beside` it, and for each peer `seconds` and `speedup`
        (theirs over ours), each the median with the least and the greatest, and the greatest relative
        `bound_difference`, or `error`
    """
    asked = KERNELS[kernel]
    apart = [sum(each["seconds"][name] for name in asked.beside) for each in rounds]
    result: Record = {
        "asked": asked._asdict(),
        "seconds": spread(each["seconds"][kernel] for each in rounds),
        "ratio": spread(each["seconds"][kernel] / other for each, other in zip(rounds, apart, strict=True)),
        "peers": {},
    }
    for peer in rounds[0]["peers"]:
        theirs = [each["peers"][peer][kernel] for each in rounds]
        failed = [their["error"] for their in theirs if "error" in their]
        result["peers"][peer] = {"error": failed[0]} if failed else compared(theirs)
    return result


def compared(theirs: list[Record]) -> Record:
    """Return the figures of a peer, from those of the rounds."""
    return {
        "version": theirs[0]["version"],
        "seconds": spread(their["seconds"] for their in theirs),
        "speedup": spread(their["seconds"] / their["ours"] for their in theirs),
        "bound_difference": max(their["bound_difference"] for their in theirs),
    }


def table(results: Record) -> Iterator[str]:
    """Yield the lines of the table: a median stands with its range in brackets, a goal missed with a !."""
    for size in results["sizes"]:
        yield str(Problem(*(size[key] for key in ("model", "n", "m", "q", "d"))))
        for each in size["kernels"]:
            asked = KERNELS[each["kernel"]]
            note = f"; whitened {' and '.join(each['whitened'])}" if each["whitened"] else ""
            seconds, beside = each["seconds"]["median"], " and ".join(asked.beside)
            yield f"    {each['kernel']:30}{seconds:10.4g} s{at_most(each['ratio'], asked.ratio)} times {beside}{note}"
            for peer, theirs in each["peers"].items():
                if "error" in theirs:
                    yield f"        {peer:26} failed: {theirs['error']}"
                    continue
                speedup = at_least(theirs["speedup"], asked.speedup)
                differ = difference(theirs, asked.difference)
                yield f"        {peer:26}{theirs['seconds']['median']:10.4g} s{speedup} times ours; {differ}"
    for peer, theirs in results["gplvm"].items():
        yield f"{GPLVM}, {LATENT_KERNEL}"
        found = f"failed: {theirs['error']}" if "error" in theirs else difference(theirs, LATENT_DIFFERENCE)
        yield f"        {peer:26} {found}"


def at_most(values: dict[str, float], limit: float | None) -> str:
    """Return a median with its range, marked if it is above the limit."""
    if limit is None:
        return ranged(values)
    return ranged(values, "!" if values["median"] > limit else " ", f"; asked at most {limit:g}")


def at_least(values: dict[str, float], goal: float | None) -> str:
    """Return a median with its range, marked if it is below the goal."""
    return ranged(values) if goal is None else figure(values, goal)


def ranged(values: dict[str, float], mark: str = " ", asked: str = "") -> str:
    """Return a median with its range, a mark and what is asked."""
    return f"{values['median']:6.2f}{mark} ({values['least']:.2f} to {values['greatest']:.2f}{asked})"


def difference(theirs: Record, limit: float) -> str:
    """Return the relative difference of the bounds, marked if it is above the limit."""
    differ = theirs["bound_difference"]
    return f"bounds differ by {differ:.0e}{'' if differ <= limit else '!'}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.splitlines()[0])
    add = parser.add_argument
    sizes = " and ".join(" ".join(map(str, size)) for size in SIZES)
    add("--size", type=int, nargs=4, action="append", metavar=tuple("NMQD"), help=f"to measure (default {sizes})")
    add("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS), metavar="KERNEL", help=", ".join(KERNELS))
    add("--rounds", type=int, default=3, help="times that everything is measured (default 3)")
    add("--repeat", type=int, default=3, help="evaluations of ours in a round, at least (default 3)")
    add("--peer-repeat", type=int, default=3, help="evaluations of a peer in a round (default 3)")
    add("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    add("--timeout", type=float, default=600.0, help="seconds that one run of a peer may take (default 600)")
    add("--memory", type=int, help="bytes that a peer may take (default: 80 %% of what is free)")
    add("--seed", type=int, default=0, help="of the data and the parameters (default 0)")
    add("--peer", action="append", default=[], choices=("gpflow",), help="a program to time too")
    add("--python", action="append", default=[], help="the Python that has it")
    add("-o", "--output", "--json", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    if len(arguments.peer) != len(arguments.python):
        parser.error("give one --python PATH for each --peer NAME")
    return arguments


if __name__ == "__main__":
    main()
