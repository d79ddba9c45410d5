"""The paper's regression experiment: flight delays, by the distributed GP and by methods that are common for big data.

Of the rows, shuffled, some are left to be predicted; the first 7 thousand, 70 thousand, ... of the others are learned
from. The GP's predictive variances are its own. Every other method predicts one variance for all rows: its mean squared
error at a tenth of the training rows, when learned from the rest; then it learns from them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from experiments.command import main, option
from experiments.fits import check_counts, figures, fitted
from experiments.regression import HOLDS, SMALLEST, Rows, beside, read
from experiments.source import Source
from mpigp.errors import InputError
from mpigp.gp.posterior import Prediction
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import scores
from mpigp.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

Found = dict[str, Any]

SUMMARY = "regression of flight delays, beside other methods"
NEEDS = {"matplotlib": "report", "sklearn": "sklearn"}
PARALLEL = True
LEAF = 5  # rows of a forest's leaf at least


@dataclass(frozen=True)
class Study:
    """The options."""

    sizes: tuple[int, ...] = option((7_000, 70_000, 700_000), "N,...", "training rows; more than there are means all")
    test: int = option(50_000, "N", "rows to predict")
    inducing: tuple[int, ...] = option((100, 200), "M,...", "inducing points of the GPs")
    iterations: int = option(150, "N", "iterations of each fit at most")
    trees: int = option(50, "N", "trees of the random forest")
    seed: int = option(0, "S", "seed of everything random")
    jitter: float = option(1e-6, "J", "jitter on the diagonal of K_mm")

    def check(self, n: int) -> None:
        """Refuse values that have no meaning for n rows; the error begins with the option's name."""
        check_counts(self, "sizes", "test", "inducing", "iterations", "trees")
        if n - self.test < SMALLEST:
            raise InputError(f"--test: is {self.test} of {n} rows: leave {SMALLEST} at least to learn from")
        if min(self.sizes) < SMALLEST:
            raise InputError(f"--sizes: holds {min(self.sizes)}: give numbers ≥ {SMALLEST}")
        if len([size for size in self.sizes if size >= n - self.test]) > 1:
            raise InputError(f"--sizes: {n - self.test} rows are left to learn from, and more than one size is as "
                             "large: leave the others out")  # fmt: skip


def methods(study: Study, threads: int) -> dict[str, Callable[[], Any]]:
    """Return what makes the regressors that stand beside the GP."""
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    seed = study.seed
    return {
        "mean": DummyRegressor,
        "linear": LinearRegression,
        "ridge": lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 6, 17))),
        "gradient boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
        "random forest": lambda: RandomForestRegressor(
            study.trees, min_samples_leaf=LEAF, max_features=1 / 3, random_state=seed, n_jobs=threads
        ),
    }


def conduct(comm: Comm, study: Study, source: Source, threads: int) -> Found | None:
    """Learn at every size by every method, and predict."""
    from mpi4py import MPI

    with raise_on_all_ranks(comm):
        rows = read(source.file("flights", HOLDS), source.y)
        study.check(len(rows.Y))
    rows = rows.take(np.random.default_rng(study.seed).permutation(len(rows.Y)))
    test, rest = rows.part(0, study.test), rows.part(study.test, len(rows.Y))
    sizes = [min(size, len(rest.Y)) for size in study.sizes]

    def scored(mean: Floats, variance: Floats) -> Found:
        found = scores(MPI.COMM_SELF, len(mean), [(Prediction(mean[:, None], variance, variance), test.Y[:, None])])
        return {"rmse": found["rmse"], "nlpd": -found["log_density"]}

    lines = others(comm, [(size, rest.part(0, size), test) for size in sizes], study, threads, scored)
    jobs = [(size, m) for size in sizes for m in study.inducing]
    with tqdm(jobs, unit="fit", disable=None if comm.rank == 0 else True) as progress:
        for size, m in progress:
            progress.set_description(f"{size} rows, m = {m}")
            lines.append({"rows": size, "method": f"GP, m = {m}",
                          **ours(comm, rest.part(0, size), test, m, study, threads, scored)})  # fmt: skip
    if comm.rank != 0:
        return None
    return {
        "study": asdict(study),
        "shape": [*rows.X.shape],
        "table": sorted(lines, key=lambda line: line["rows"]),  # of the same size as they were made
        "runs": [],
    }


def others(
    comm: Comm, parts: list[tuple[int, Rows, Rows]], study: Study, threads: int, scored: Callable[..., Found]
) -> list[Found]:
    """Return the lines of all other methods, on every rank: each is done by one of them, the slowest ones first."""
    from threadpoolctl import threadpool_limits

    known = methods(study, threads)
    jobs = [(size, training, test, method) for size, training, test in parts for method in known]
    mine: dict[int, Found] = {}
    with threadpool_limits(threads):
        for place in list(range(len(jobs)))[::-1][comm.rank :: comm.size]:
            size, training, test, method = jobs[place]
            mean, variance, seconds = beside(known[method], training, test.X)
            found = scored(mean, np.full(len(mean), variance))
            mine[place] = {"rows": size, "method": method, **found, "seconds": seconds}
    every = {place: line for part in comm.allgather(mine) for place, line in part.items()}
    return [every[place] for place in range(len(jobs))]


def ours(
    comm: Comm, training: Rows, test: Rows, m: int, study: Study, threads: int, scored: Callable[..., Found]
) -> Found:
    """Return the scores of the GP, and how its fit went."""
    from mpigp.estimators import SparseGPRegression

    began = time.perf_counter()
    model = fitted(
        SparseGPRegression(m, max_iter=study.iterations, jitter=study.jitter, random_state=study.seed,
                           threads=threads, comm=comm), *training
    )  # fmt: skip
    seconds = time.perf_counter() - began  # its start included
    mean, std = model.predict(test.X, return_std=True)
    return {**scored(mean, std**2), **figures(model), "seconds": seconds}


def shown(found: Found) -> list[str]:
    """Return the table as lines."""
    study, (n, q) = found["study"], found["shape"]
    lines = [f"{n} rows of {q} inputs; {study['test']} are predicted, {n - study['test']} are left to learn from"]
    for rows in dict.fromkeys(line["rows"] for line in found["table"]):
        lines.append(f"{rows:8d} rows            {'RMSE':>9}{'NLPD':>9}{'seconds':>10}")
        for line in (line for line in found["table"] if line["rows"] == rows):
            end = ""
            if "bound" in line:
                end = f"   {line['iterations']} iterations" + ("" if line["converged"] else ", not converged")
            lines.append(f"    {line['method']:20}{line['rmse']:9.3f}{line['nlpd']:9.4f}{line['seconds']:10.1f}{end}")
    return lines


def picture(found: Found) -> Figure:
    """Return both scores of every method against the number of training rows."""
    from matplotlib.figure import Figure

    from mpigp.report.figures import COLORS

    figure = Figure(figsize=(9, 4), layout="constrained")
    for name, title, axes in zip(("rmse", "nlpd"), ("RMSE, minutes", "NLPD, nats"), figure.subplots(1, 2), strict=True):
        for place, method in enumerate(dict.fromkeys(line["method"] for line in found["table"])):
            chosen = [line for line in found["table"] if line["method"] == method]
            axes.plot(
                [line["rows"] for line in chosen], [line[name] for line in chosen], marker="o", markersize=4,
                color=COLORS[place % len(COLORS)], label=method, linestyle="-" if "GP" in method else "--",
            )  # fmt: skip
        axes.set(xscale="log", xlabel="training rows", ylabel=title)
        axes.grid(color="#dfe3e8", linewidth=0.8)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


if __name__ == "__main__":
    main("flights")
