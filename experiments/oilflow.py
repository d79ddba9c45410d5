"""The tutorial's comparison with GPy (§5.1): the latent space of the oil-flow data, ours beside GPy's.

Ours is learned on all ranks, once from each of several seeds; GPy's on one core, in an environment of its own, or it is
what was recorded for the same data. Both start from PCA and maximise the same bound of the same centred data. Seconds
are those of the iterations, without the start of the programs and reading.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import peer, peer_process
from experiments.command import main, option
from experiments.fits import check_counts, figures, fitted, nearest
from experiments.source import Source
from mpigp.errors import InputError
from mpigp.gp.parameters import effective_dimensions
from mpigp.mpi.communicator import raise_on_all_ranks
from mpigp.mpi.distributed_rows import DistributedRows, fingerprint
from mpigp.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

Found = dict[str, Any]

SUMMARY = "the latent space of oil flow, beside GPy's (tutorial §5.1)"
NEEDS = {"matplotlib": "report", "sklearn": "sklearn"}
PARALLEL = True
SMALL = 0.01  # of the largest alpha: dimensions below it count as switched off
PEER_SECONDS = 3600.0  # that GPy may take


@dataclass(frozen=True)
class Study:
    """The options."""

    inducing: int = option(30, "M", "inducing points")
    latent: int = option(10, "Q", "latent dimensions")
    iterations: int = option(3000, "N", "iterations of each fit at most")
    repeats: int = option(5, "N", "fits, from the seeds S, S + 1, ...")
    seed: int = option(0, "S", "seed of everything random")
    jitter: float = option(1e-6, "J", "jitter on the diagonal of K_mm")
    peer_python: str | None = option(None, "PATH", "the Python of an environment with GPy, to run it too")
    peer_iterations: int = option(2000, "N", "iterations of GPy's optimizer at most")

    def check(self, n: int, d: int) -> None:
        """Refuse values that have no meaning for n rows of d outputs; the error begins with the option's name."""
        check_counts(self, "inducing", "latent", "iterations", "repeats", "peer_iterations")
        if self.inducing > n:
            raise InputError(f"--inducing: is {self.inducing}, but there are {n} rows: give at most as many")
        if self.latent > d:
            raise InputError(f"--latent: is {self.latent}, but the data have {d} columns: give at most as many")
        if n < 2:
            raise InputError("DATA: has one row, which has no neighbours: give more")


def conduct(comm: Comm, study: Study, source: Source, threads: int) -> Found | None:
    """Learn from every seed, and have GPy learn."""
    from mpi4py import MPI

    with raise_on_all_ranks(comm):
        Y, labels = source.oilflow()
        study.check(*Y.shape)
        if comm.rank == 0 and study.peer_python:
            peer_process.check("--peer-python", study.peer_python, "GPy")
    runs = [ours(comm, Y, study, study.seed + number, threads) for number in range(study.repeats)]
    data = fingerprint(DistributedRows(MPI.COMM_SELF, len(Y), Y))
    theirs = None
    if study.peer_python is None:
        theirs = peer.recorded(data, study.latent, study.inducing)
    elif comm.rank == 0:
        theirs = peer.learn(study.peer_python, Y, study.latent, study.inducing, study.peer_iterations, PEER_SECONDS)
    wait(comm)
    if comm.rank != 0:
        return None
    return {
        "study": asdict(study),
        "shape": list(Y.shape),
        "fingerprint": data,
        "peer": None if theirs is None else {"version": theirs["version"], "recorded": study.peer_python is None},
        "table": table(runs, theirs, labels),
        "errors_in_data": None if labels is None else errors(Y, labels),
        "runs": {"labels": None if labels is None else labels.tolist(), "ours": runs, "peer": theirs},
    }


def wait(comm: Comm) -> None:
    """Wait for all ranks, without using the cores that one of them may be working with."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.05)


def ours(comm: Comm, Y: Floats, study: Study, seed: int, threads: int) -> Found:
    """Return what one fit of ours found: its figures, and `trace`, `alpha` and `points` as of `peer.learn`."""
    from mpigp.estimators import BayesianGPLVM

    model = fitted(
        BayesianGPLVM(study.inducing, latent=study.latent, max_iter=study.iterations, standardize="center",
                      jitter=study.jitter, random_state=seed, threads=threads, comm=comm), Y
    )  # fmt: skip
    trace = {name: getattr(model.trace_, name) for name in ("bound", "evaluations", "seconds")}
    points = model.embedding_[:, peer.largest(model.alpha_)]
    return {
        "seed": seed, **figures(model), "trace": trace, "alpha": model.alpha_.tolist(), "points": points.tolist()
    }  # fmt: skip


def errors(points: Any, labels: Any) -> int:
    """Return how many rows have another label than the nearest of the other rows."""
    return int((labels[nearest(np.asarray(points))] != labels).sum())


def table(runs: list[Found], theirs: Found | None, labels: Any) -> list[Found]:
    """Return a line for each fit.

    used : dimensions whose alpha is not below SMALL of the largest.   effective : their number by the weights' entropy
    largest, second : of alpha
    errors, errors_scaled : rows whose nearest neighbour has another label, in the two dimensions with the largest
        alpha; the same with the dimensions scaled by √alpha
    reached : evaluations and seconds until the bound was as good as GPy's last; None where it never was
    """
    lines = []
    for each in [*runs, *([theirs] if theirs else [])]:
        alpha, points = np.array(each["alpha"]), np.array(each["points"])
        scale = np.sqrt(alpha[peer.largest(alpha)])
        mark = None
        if theirs is not None:
            trace = each["trace"]
            place = next((k for k, bound in enumerate(trace["bound"]) if bound >= theirs["trace"]["bound"][-1]), None)
            mark = None if place is None else {name: trace[name][place] for name in ("evaluations", "seconds")}
        lines.append(
            {
                "program": "mpigp" if "seed" in each else f"GPy {each['version']}",
                "seed": each.get("seed"),
                **{name: each[name] for name in ("bound", "evaluations", "seconds")},
                "used": int((alpha > SMALL * alpha.max()).sum()),
                "effective": effective_dimensions(alpha),
                "largest": float(np.sort(alpha)[-1]),
                "second": float(np.sort(alpha)[-2]) if len(alpha) > 1 else None,
                "errors": None if labels is None else errors(points, labels),
                "errors_scaled": None if labels is None else errors(points * scale, labels),
                "reached": mark,
            }
        )
    return lines


def shown(found: Found) -> list[str]:
    """Return the table as lines."""
    n, d = found["shape"]
    lines = [f"{n} rows of {d} outputs, {found['study']['latent']} latent dimensions, "
             f"{found['study']['inducing']} inducing points",
             f"{'':16}{'seed':>5}{'bound':>10}{'evals':>7}{'seconds':>9}{'used':>6}{'effective':>10}"
             f"{'largest α':>11}{'second':>8}{'errors':>8}{'scaled':>8}   as good as GPy after"]  # fmt: skip
    for each in found["table"]:
        reached = each["reached"]
        lines.append(
            f"{each['program']:16}{text(each['seed']):>5}{each['bound']:10.1f}{each['evaluations']:7d}"
            f"{each['seconds']:9.2f}{each['used']:6d}{each['effective']:10.2f}{each['largest']:11.4g}"
            f"{text(each['second'], '.3g'):>8}{text(each['errors']):>8}{text(each['errors_scaled']):>8}"
            + ("" if reached is None else f"   {reached['seconds']:.2f} s, {reached['evaluations']} evals")
        )
    if found["errors_in_data"] is not None:
        lines.append(f"errors are of nearest neighbours in two dimensions; in the data: {found['errors_in_data']}")
    if found["peer"] is None:
        lines.append("GPy: nothing is recorded for these data and sizes: --peer-python PATH runs it")
    elif found["peer"]["recorded"]:
        lines.append("GPy's line is a recorded one, its seconds those of the machine it ran on")
    return lines


def text(value: Any, form: str = "") -> str:
    """Return a number as text; nothing where there is none."""
    return "" if value is None else format(value, form)


def picture(found: Found) -> Figure:
    """Return both latent spaces, their ARD weights, and the bounds as they rise."""
    from matplotlib.figure import Figure

    from mpigp.report.figures import COLORS, PALE

    runs, labels = found["runs"], found["runs"]["labels"]
    best = max(runs["ours"], key=lambda run: run["bound"])
    sides = [("mpigp, the best seed", best)] + ([(found["table"][-1]["program"], runs["peer"])] if runs["peer"] else [])
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    if len(sides) == 1:
        axes[0, 1].axis("off")
    for (title, run), panel in zip(sides, axes[0], strict=False):
        points = np.array(run["points"])
        across, up = points[:, 0], points[:, 1] if points.shape[1] > 1 else np.zeros(len(points))
        for label in [None] if labels is None else sorted(set(labels)):
            chosen = slice(None) if label is None else np.array(labels) == label
            color = PALE if label is None else COLORS[label % len(COLORS)]
            panel.scatter(across[chosen], up[chosen], s=7, color=color, label=f"label {label}")
        panel.set(title=f"{title}: {run['bound']:.0f} nats", xlabel="largest α", ylabel="second largest α")
    if labels is not None:
        axes[0, 0].legend(frameon=False, markerscale=2)
    weights, rise = axes[1]
    for place, (title, run) in enumerate(sides):
        alpha = np.sort(run["alpha"])[::-1]
        weights.bar(np.arange(len(alpha)) + 0.4 * place, alpha, 0.4, color=COLORS[place], label=title)
    weights.set(title="ARD weights, largest first", xlabel="dimension", ylabel="α")
    for run in runs["ours"]:
        rise.plot(
            run["trace"]["seconds"], run["trace"]["bound"], color=COLORS[0], linewidth=1, label="mpigp, each seed"
        )
    if runs["peer"]:
        rise.plot(runs["peer"]["trace"]["seconds"], runs["peer"]["trace"]["bound"], color=COLORS[1], label=sides[1][0])
    traces = [run["trace"]["bound"] for run in [*runs["ours"], *(run for _, run in sides)]]
    low, high = min(trace[len(trace) // 20] for trace in traces), max(trace[-1] for trace in traces)
    rise.set(title="the bound", xlabel="seconds", ylabel="nats", xscale="log")
    rise.set_ylim(low, high + 0.05 * abs(high - low) + 1)
    named = dict(zip(*reversed(rise.get_legend_handles_labels()), strict=True))  # each once
    for panel, legend in ((weights, weights.get_legend_handles_labels()), (rise, (named.values(), named.keys()))):
        panel.legend(*legend, frameon=False)
    return figure


if __name__ == "__main__":
    main("oilflow")
