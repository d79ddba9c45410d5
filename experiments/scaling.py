"""The paper's three questions about scaling, of both models, by the studies of `mpigp scaling`.

How does the time of an evaluation fall with the number of ranks, when the rows are the same? Does it stay, when every
rank has as many rows as before? And how evenly is the work spread over the ranks? The first two are a strong and a weak
study; the third is in their runs: the seconds that each rank computes in an evaluation, and its rows.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.command import main, option
from experiments.source import Source
from mpigp.errors import InputError
from mpigp.mpi.processes import SIZE_VARIABLES
from mpigp.mpi.timers import GROUPS
from mpigp.scaling import study as studies
from mpigp.scaling.summary import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mpi4py.MPI import Comm

Found = dict[str, Any]

SUMMARY = "time against ranks and rows, and the spread of the load (the paper's three questions)"
NEEDS = {"matplotlib": "report"}
PARALLEL = False
PROBLEMS = {"regression": (8, 1), "gplvm": (10, 12)}  # inputs or latent dimensions, and outputs
ROWS = 50_000
TIMEOUT = 1800.0  # seconds that one run may take


@dataclass(frozen=True)
class Study:
    """The options."""

    counts: tuple[int, ...] = option((1, 2), "P,...", "numbers of ranks")
    inducing: int = option(100, "M", "inducing points of both models")
    repeats: int = option(3, "N", "rounds, of a run on each number of ranks")
    evaluations: int = option(3, "N", "evaluations that a run times")

    def check(self, rows: int) -> None:
        """Refuse values that have no meaning for so many rows; the error begins with the option's name."""
        for name in ("inducing", "repeats", "evaluations"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name}: is {getattr(self, name)}: give a number ≥ 1")
        if not self.counts or min(self.counts) < 1 or len(set(self.counts)) < len(self.counts):
            raise InputError(f"--counts: is {','.join(map(str, self.counts))}: give numbers of ranks, each once")
        if rows // max(self.counts) < self.inducing:
            raise InputError(f"--rows: is {rows}: give at least {self.inducing} for each of {max(self.counts)} ranks, "
                             "one for every inducing point")  # fmt: skip


def conduct(comm: Comm | None, study: Study, source: Source, threads: int) -> Found | None:
    """Run both studies of both models; each run starts ranks of its own."""
    if any(os.environ.get(name) for name in SIZE_VARIABLES):
        raise InputError("scaling: starts its ranks itself, by --counts: leave out mpiexec")
    if source.path is not None:
        raise InputError(f"{source.path}: scaling makes its data: leave DATA out")
    rows = ROWS if source.rows is None else source.rows
    study.check(rows)
    counts = sorted(study.counts)
    runs: list[Found] = []
    for model, (q, d) in PROBLEMS.items():
        for kind in studies.KINDS:
            n = rows if kind == "strong" else rows // counts[-1]
            problem = studies.Problem(model, n, study.inducing, q, d)
            with tempfile.TemporaryDirectory(prefix="mpigp-experiment-") as name:
                options = studies.Options(
                    kind=kind, ranks=counts, problem=problem, data=None, names=("X", "Y"), threads=threads,
                    rounds=study.repeats, repeat=study.evaluations, timeout=TIMEOUT, folder=Path(name),
                    command=f"python -m experiments.scaling, {kind}",
                )  # fmt: skip
                for _ in studies.run(options):
                    pass
                found = studies.read_study(options.folder)
            runs += [
                {"model": model, "kind": kind, "load": load(point), **line._asdict()}
                for point, line in zip(found.points, summary(found), strict=True)
            ]
    return {"study": asdict(study), "rows": rows, "ranks": counts[-1], "table": runs, "runs": []}


def load(point: studies.Point) -> Found:
    """Return the rows of each rank, and the seconds that it computed in all evaluations of a run."""
    told = point.run["by_rank"]
    seconds = np.sum([told["seconds"][phase] for phase in GROUPS["compute"]], axis=0)
    return {"rows": list(told["rows"]), "seconds": seconds.tolist()}


def shown(found: Found) -> list[str]:
    """Return the table as lines."""
    lines = [f"{'':12}{'study':8}{'ranks':>6}{'rows':>9}{'seconds':>10}{'speed-up':>10}{'efficiency':>12}"
             f"{'messages':>10}   load of the ranks: least, mean, most, by the mean"]  # fmt: skip
    for line in found["table"]:
        seconds = np.array(line["load"]["seconds"])
        low, high = seconds.min() / seconds.mean(), seconds.max() / seconds.mean()
        lines.append(
            f"{line['model']:12}{line['kind']:8}{line['ranks']:6d}{line['rows']:9d}{line['seconds']:10.4g}"
            f"{line['speedup']:10.2f}{line['efficiency']:12.3f}{line['shares']['messages']:10.1%}"
            f"   {low:.3f}  1  {high:.3f}" + (" (cores are shared)" if line["shared"] else "")
        )
    return lines


def picture(found: Found) -> Figure:
    """Return a panel for each question, with a colour for each model."""
    from matplotlib.figure import Figure

    from mpigp.report.figures import COLORS, PALE

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    strong, weak, spread = figure.subplots(1, 3)
    for place, model in enumerate(PROBLEMS):
        color = COLORS[place]
        for kind, axes in (("strong", strong), ("weak", weak)):
            lines = [line for line in found["table"] if (line["model"], line["kind"]) == (model, kind)]
            ranks, seconds = ([line[name] for line in lines] for name in ("ranks", "seconds"))
            first = lines[0]
            ideal = [first["seconds"] * (first["ranks"] / each if kind == "strong" else 1) for each in ranks]
            axes.plot(ranks, ideal, color=PALE, linestyle="--", label="ideal" if place == 0 else None)
            axes.plot(ranks, seconds, color=color, marker="o", label=model)
            axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="seconds of an evaluation")
            axes.set_xticks(ranks, [str(each) for each in ranks])
            axes.minorticks_off()
        most = max((line for line in found["table"] if line["model"] == model), key=lambda line: line["ranks"])
        load = np.array(most["load"]["seconds"])
        spread.bar(np.arange(len(load)) + 0.4 * place, load / load.mean(), 0.4, color=color, label=model)
    strong.set_title("the same rows")
    weak.set_title("the same rows on each rank")
    spread.set(title="load, by its mean", xlabel="rank", xticks=range(found["ranks"]))
    strong.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main("scaling")
