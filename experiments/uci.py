"""Regression on any data file against the clock of the CPU: mpigp beside GPflow, GPyTorch and two common methods.

Some rows are left to be predicted: those of a split of /test_mask (n, splits), where the file has it, else a share of
them drawn by the seed. All columns are standardized by the others, which every program learns from. The peers start
from the plain start of mpigp: the same inducing points and hyperparameters; mpigp itself may try others (`--start`
of `fit`), in CPU seconds that count. Each model is scored at some CPU seconds of its training, the scoring not
counted, until the time is used up, or it has converged. RMSE and NLPD are in the data's units, bounds in nats of the
standardized outputs. What is reached in a time depends on the machine, as no other number of the results does.

Linear regression and gradient boosting predict one variance for all rows: their mean squared error at a tenth of the
training rows, when learned from the rest.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from experiments import peer_process
from experiments.command import main, option
from experiments.fits import check_counts, fitted
from experiments.regression import HOLDS, SMALLEST, beside, read
from experiments.source import Source
from experiments.splits import Split, held_out, read_mask, split
from experiments.timed_training import Problem, Recorder, Task, scored
from mpigp.errors import InputError
from mpigp.fit.checkpoint import FittedModel
from mpigp.fit.loop import Fit
from mpigp.fit.options import Options
from mpigp.fit.setup import PreparedFit
from mpigp.gp.bound import BOUNDS
from mpigp.gp.posterior import Posterior
from mpigp.types import Integers

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

Found = dict[str, Any]

SUMMARY = "regression against the CPU's clock, beside GPflow and GPyTorch"
NEEDS = {"matplotlib": "report", "sklearn": "sklearn"}
PARALLEL = True  # but on one rank alone, whose CPU seconds are measured
MARKS = (1, 2, 5, 10, 20, 40, 60)  # sixtieths of the time at which models are scored
MARKERS = "osDv^"  # the colors are used again with another
PEER_KERNELS = ("rbf", "matern12", "matern32", "matern52")
PEERS = {"gpflow": {"GPflow SGPR": "sgpr", "GPflow SVGP": "svgp"}, "gpytorch": {"GPyTorch SVGP": "svgp"}}


@dataclass(frozen=True)
class Study:
    """The options."""

    kernels: tuple[str, ...] = option(("rbf",), "NAME,...", "kernels of the GPs, as `fit --kernel` takes them")
    inducing: tuple[int, ...] = option((100, 200), "M,...", "inducing points of the GPs")
    bounds: tuple[str, ...] = option(("titsias",), "NAME,...", f"bounds that mpigp raises: {', '.join(BOUNDS)}")
    seeds: tuple[int, ...] = option((0,), "S,...", "seeds of everything random, and columns of test_mask where it is")
    seconds: float = option(60.0, "T", "CPU seconds that the training of each model may take")
    iterations: int = option(10_000, "N", "iterations of L-BFGS at most")
    test: float = option(0.1, "SHARE", "share of the rows to predict, where there is no test_mask")
    jitter: float = option(1e-6, "J", "jitter on the diagonal of mpigp's K_mm")
    gpflow: str | None = option(None, "PATH", "the Python of an environment with GPflow, to run it too")
    gpytorch: str | None = option(None, "PATH", "the Python of an environment with GPyTorch, to run it too")

    def check(self, n: int, mask: Integers | None) -> None:
        """Refuse values that have no meaning for n rows; the error begins with the option's name."""
        check_counts(self, "inducing", "iterations")
        for name, values in (("kernels", self.kernels), ("bounds", self.bounds)):
            if not values or len(set(values)) < len(values):
                raise InputError(f"--{name}: is {','.join(values) or 'empty'}: give names, each once")
        if unknown := set(self.bounds) - set(BOUNDS):
            raise InputError(f"--bounds: holds {min(unknown)}: choose among {', '.join(BOUNDS)}")
        for kernel in self.kernels:
            try:
                Options(model="regression", inducing=1, kernel=kernel).check()
            except InputError as error:
                raise InputError(f"--kernels: {str(error).removeprefix('kernel: ')}") from error
        if not 0 < self.seconds < math.inf:
            raise InputError(f"--seconds: is {self.seconds:g}: give a number > 0")
        if mask is None and not 0 < self.test < 1:
            raise InputError(f"--test: is {self.test:g}: give a share between 0 and 1")
        if mask is not None and max(self.seeds) >= mask.shape[1]:
            raise InputError(f"--seeds: holds {max(self.seeds)}: /test_mask has {mask.shape[1]} splits, counted from 0")
        self._check_rows(n, mask)
        self._check_peers()

    def _check_rows(self, n: int, mask: Integers | None) -> None:
        counts = [held_out(n, mask, self.test, seed).sum() for seed in self.seeds]
        least, tested = n - max(counts), min(counts)
        if least < SMALLEST or tested < 1:
            remedy = f"leave one at least to predict, and {SMALLEST} to learn from"
            raise InputError(f"{'--test' if mask is None else '/test_mask'}: of {n} rows, {tested} are left to predict "
                             f"and {least} to learn from: {remedy}")  # fmt: skip
        if max(self.inducing) > least:
            raise InputError(f"--inducing: holds {max(self.inducing)}, but there are {least} rows to learn from: give "
                             "at most as many")  # fmt: skip

    def _check_peers(self) -> None:
        for package in PEERS:
            if (python := getattr(self, package)) is None:
                continue
            if unknown := [kernel for kernel in self.kernels if kernel not in PEER_KERNELS]:
                remedy = f"leave out this option, or give kernels among {', '.join(PEER_KERNELS)}"
                raise InputError(f"--{package}: is not run with the kernel {unknown[0]}: {remedy}")
            peer_process.check(f"--{package}", python, package)


def conduct(comm: Comm, study: Study, source: Source, threads: int) -> Found | None:
    """Learn from every split by every method."""
    if comm.size > 1:
        raise InputError("uci: measures the CPU seconds of one process: leave out mpiexec")
    path = source.file("uci", HOLDS)
    rows = read(path, source.y)
    mask = read_mask(path, len(rows.Y))
    study.check(len(rows.Y), mask)
    runs: list[Found] = []
    with tqdm(study.seeds, unit="split", disable=None) as progress:
        for seed in progress:
            part = split(rows, held_out(len(rows.Y), mask, study.test, seed), seed)
            for run in every_run(comm, part, study, seed, threads):
                progress.set_postfix_str(run["method"])
                runs.append({**run, "seed": seed, "records": [part.in_units(each) for each in run["records"]]})
    return {
        "study": asdict(study),
        "shape": [*rows.X.shape],
        "splits": "of /test_mask" if mask is not None else "by the seed",
        "peers": {run["program"]: run["version"] for run in runs if "version" in run},
        "table": table(runs),
        "runs": runs,
    }


def every_run(comm: Comm, part: Split, study: Study, seed: int, threads: int) -> Iterator[Found]:
    """Yield what every method finds in a split: `method`, `records` and `status`, the reason of the end."""
    yield from others(part, seed, threads)
    for kernel in study.kernels:
        for m in study.inducing:
            problem = part.start(m, seed)
            task = Task(kernel, [mark / MARKS[-1] * study.seconds for mark in MARKS], study.iterations, seed)
            for bound in study.bounds:
                shown = f", {bound}" if len(study.bounds) > 1 else ""
                named = {"program": "mpigp", "method": f"mpigp, {kernel}, m = {m}{shown}"}
                yield named | ours(comm, problem, task, bound, study.jitter, threads)
            for program, command in peers(study):
                named = {"program": program, "method": f"{program}, {kernel}, m = {m}"}
                yield named | theirs(program, command, problem, task)


def peers(study: Study) -> Iterator[tuple[str, list[str]]]:
    """Yield the programs of peers that are to run, and the command that starts each."""
    for package, programs in PEERS.items():
        if python := getattr(study, package):
            for program, method in programs.items():
                yield program, [python, "-m", f"experiments.uci_{package}", method]


def others(part: Split, seed: int, threads: int) -> Iterator[Found]:
    """Yield what linear regression and gradient boosting find."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression
    from threadpoolctl import threadpool_limits

    methods: dict[str, Callable[[], Any]] = {
        "linear": LinearRegression,
        "gradient boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
    }
    for method, make in methods.items():
        with threadpool_limits(threads):
            mean, variance, seconds = beside(make, part.training, part.test.X, time.process_time)
        record = {"seconds": seconds, **scored(part.test.Y, mean, variance)}
        yield {"program": method, "method": method, "records": [record], "status": ""}


def ours(comm: Comm, problem: Problem, task: Task, bound: str, jitter: float, threads: int) -> Found:
    """Return the records of mpigp, and the reason of its end."""
    from mpigp.estimators import SparseGPRegression

    def scores(posterior: Posterior, bound: float) -> dict[str, float]:
        found = posterior.predict(problem.X_new, threads)
        noise = posterior.beta**-0.5  # of the standardized outputs, the others' being in the data's units
        return {"bound": bound, "noise": noise, **scored(problem.Y_new[:, 0], found.mean[:, 0], found.y_variance)}

    def after(fit: Fit) -> bool:
        return recorder(fit.iteration, lambda: scores(posterior_of(comm, fit, task), fit.bound))

    estimator = SparseGPRegression(
        len(problem.Z), kernel=task.kernel, bound=bound, max_iter=task.iterations, standardize="none", jitter=jitter,
        random_state=task.seed, threads=threads, callback=after, comm=comm,
    )  # fmt: skip
    recorder = Recorder(task.marks)
    model = fitted(estimator, problem.X, problem.Y[:, 0])
    recorder.finish(model.n_iter_, lambda: scores(model.posterior_, model.bound_))
    return {"records": recorder.records, "status": recorder.ending(task.iterations)}


def posterior_of(comm: Comm, fit: Fit, task: Task) -> Posterior:
    """Return what a fit in progress predicts with; its data have been standardized before."""
    prepared = PreparedFit(fit, {}, {}, {"seed": task.seed})
    with FittedModel.of(comm, prepared, {}).open() as model:
        return model.posterior(task.kernel)


def theirs(program: str, command: list[str], problem: Problem, task: Task) -> Found:
    """Return the records of a peer, its version, and the reason of its end."""
    limit = 600 + 10 * task.marks[-1]  # seconds: its start and its scoring take time, too
    with tempfile.TemporaryDirectory(prefix="mpigp-experiment-") as name:
        data = Path(name, "problem.npz")
        np.savez(data, **problem._asdict())
        try:
            return peer_process.ask(program, [*command, str(data), json.dumps(task._asdict())], limit)
        except RuntimeError as error:  # the results of the others are worth keeping
            return {"records": [], "status": str(error)}


def table(runs: list[Found]) -> list[Found]:
    """Return a line for each method: its last records' means over the seeds, standard deviations, and endings.

    The bound, the noise, iterations and deviations are None where there are none, and all numbers where no seed has
    a record.
    """
    lines = []
    for method in dict.fromkeys(run["method"] for run in runs):
        chosen = [run for run in runs if run["method"] == method]
        last = [run["records"][-1] for run in chosen if run["records"]]
        line: Found = {"method": method, "seeds": len(last)}
        for name in ("rmse", "nlpd", "bound", "noise", "seconds", "iterations"):
            values = [record[name] for record in last if name in record]
            line[name] = float(np.mean(values)) if values else None
            if name in ("rmse", "nlpd"):
                line[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
        endings = [run["status"] for run in chosen]
        line["endings"] = {ending: endings.count(ending) for ending in dict.fromkeys(endings) if ending}
        lines.append(line)
    return lines


def shown(found: Found) -> list[str]:
    """Return the table as lines."""
    (n, q), study = found["shape"], found["study"]
    seeds = ", ".join(map(str, study["seeds"]))
    lines = [f"{n} rows of {q} inputs; splits {found['splits']}: {seeds}; RMSE and NLPD in the data's units, "
             "noise of mpigp in standard deviations of the outputs, mean ± standard deviation over splits",
             f"{'':36}{'RMSE':>20}{'NLPD':>20}{'bound':>12}{'noise':>9}{'CPU s':>8}{'iterations':>12}"]  # fmt: skip
    for line in found["table"]:
        scores = "".join(f"{spread(line[name], line[f'{name}_sd']):>20}" for name in ("rmse", "nlpd"))
        bound, noise, seconds, iterations = (
            "" if line[name] is None else format(line[name], form)
            for name, form in (("bound", ".1f"), ("noise", ".4f"), ("seconds", ".1f"), ("iterations", ".0f"))
        )
        endings = "; ".join(f"{ending} ({count})" if len(line["endings"]) > 1 else ending
                            for ending, count in line["endings"].items())  # fmt: skip
        lines.append(
            f"{line['method']:36}{scores}{bound:>12}{noise:>9}{seconds:>8}{iterations:>12}   {endings}".rstrip()
        )
    return lines + [f"{program}: version {version}" for program, version in found["peers"].items()]


def spread(mean: float | None, deviation: float | None) -> str:
    """Return a mean and its standard deviation as text, with four digits of the mean."""
    if mean is None:
        return ""
    return f"{mean:.4g}" + ("" if deviation is None else f" ± {deviation:.2g}")


def picture(found: Found) -> Figure:
    """Return the NLPD of every method against the CPU seconds of its training, with a line for each seed."""
    from matplotlib.figure import Figure

    from mpigp.report.figures import COLORS

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    for place, method in enumerate(dict.fromkeys(run["method"] for run in found["runs"])):
        chosen = [run for run in found["runs"] if run["method"] == method and run["records"]]
        color, marker = COLORS[place % len(COLORS)], MARKERS[place // len(COLORS) % len(MARKERS)]
        for number, run in enumerate(chosen):
            label = method if number == 0 else None
            seconds, nlpd = ([record[name] for record in run["records"]] for name in ("seconds", "nlpd"))
            if "bound" not in run["records"][0]:  # no training that takes time
                axes.axhline(nlpd[0], color=color, linestyle="--", linewidth=1, label=label)
            else:
                style = "-" if run["program"] == "mpigp" else ":"
                axes.plot(seconds, nlpd, color=color, linestyle=style, marker=marker, markersize=4, label=label)
    last = [run["records"][-1]["nlpd"] for run in found["runs"] if run["records"]]
    margin = 0.1 * (max(last) - min(last)) or 0.1
    axes.set(xscale="log", xlabel="CPU seconds of training", ylabel="NLPD, nats", title=Path(found["data"]).name)
    axes.set_ylim(min(last) - margin, max(last) + margin)  # the first records may be far above
    axes.grid(color="#dfe3e8", linewidth=0.8)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    main("uci")
