"""The figure of the failure experiment (tutorial §5.2), drawn by matplotlib: the bound against the iteration."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from experiments.cluster import WAYS
from experiments.failures import Run, Study, checked, select
from mpigp.report.figures import COLORS

WIDE = 20.0  # a range of bounds that needs a logarithmic axis
BEGINNING = 0.05  # of the iterations: the bound rises so far in these that nothing else could be seen


def picture(runs: Sequence[Run], study: Study) -> Figure:
    """Return a panel for each way to treat failures, with a colour for each rate."""
    figure = Figure(figsize=(11, 7.2), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for way, axes in zip(WAYS, panels.flat, strict=True):
        axes.set_title(way)
        axes.grid(color="#dfe3e8", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        for place, rate in enumerate(study.rates):
            chosen = select(runs, rate, way)
            color, style = COLORS[place % len(COLORS)], "-" if place == 0 else (0, (4 + place, 1.5 * place))
            true, seen = (np.array([getattr(each, name) for each in chosen], float) for name in ("true", "seen"))
            iterations = checked(study)
            axes.fill_between(iterations, *np.quantile(true, [0.25, 0.75], axis=0), color=color, alpha=0.2, linewidth=0)
            axes.plot(iterations, true.T, color=color, linewidth=0.6, alpha=0.4)
            axes.plot(
                iterations, true.mean(axis=0), color=color, linestyle=style, label=f"true, {100 * rate:g} % failing"
            )
            axes.plot(seen.mean(axis=0), color=color, linestyle=":", linewidth=1, label="as the cluster saw it (seen)")
    for axes in panels[:, 0]:
        axes.set_ylabel("bound, nats")
    for axes in panels[-1]:
        axes.set_xlabel("iteration")
    low, high = frame(runs, study)
    if low < WIDE * high < 0:  # runs that failed early lie so low that the others could not be told apart
        panels[0, 0].set_yscale("symlog", linthresh=10.0 ** math.floor(math.log10(-high)), subs=range(2, 10))
        low, high = 1.2 * low, high / 1.2
    panels[0, 0].set_ylim(low, high)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(study.rates),
                  frameon=False)  # fmt: skip
    figure.suptitle(f"{study.nodes} nodes, {study.repeats} repeats: mean (thick), middle half (band), each (thin)")
    return figure


def frame(runs: Sequence[Run], study: Study) -> tuple[float, float]:
    """Return the bounds between which a figure shows all but the beginning."""
    later = np.array(checked(study)) >= BEGINNING * study.iterations
    values = np.array([each.true for each in runs], float)[:, later]
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = min(0.04 * (high - low), 0.04 * abs(high)) or 1.0
    return low - margin, high + margin
