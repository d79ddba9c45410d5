"""The figures of a study as PNG files, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from mpigp.mpi.timers import GROUPS
from mpigp.report import palette
from mpigp.report.palette import COLORS
from mpigp.report.pictures import panels, save
from mpigp.scaling.costs import layout_of
from mpigp.scaling.forecast import Forecast
from mpigp.scaling.study import Study
from mpigp.scaling.summary import Line


def draw(study: Study, lines: list[Line], forecast: Forecast, folder: Path) -> list[str]:
    """Write the figures to this folder; return their paths."""
    return save(pictures(study, lines, forecast), folder)


def pictures(study: Study, lines: list[Line], forecast: Forecast) -> Iterator[tuple[str, Figure]]:
    """Yield each figure, by its name."""
    ranks = np.array([line.ranks for line in lines])
    speedup = np.array([line.speedup for line in lines])
    seconds = np.array([line.seconds for line in lines])
    fitted = np.array([forecast.here.seconds(layout_of(point)) for point in study.points])
    yield "scaling", scaling(ranks, {"measured": speedup, "model": speedup * seconds / fitted})
    shares = {name: np.array([line.shares[name] for line in lines]) for name in GROUPS}
    yield "shares", stacked(ranks, shares)
    balances = {"seconds on rows": [line.balance for line in lines], "rows": [line.balance_of_rows for line in lines]}
    yield "balance", balance(ranks, balances)
    yield "forecast", scaling(np.array(forecast.ranks), {"model": np.array(forecast.speedup)})
    yield "terms", stacked(forecast.ranks, {name: np.array(values) for name, values in forecast.terms.items()})


def scaling(ranks: Any, speedups: Mapping[str, Any]) -> Figure:
    """Speed-up and efficiency with the ideal line."""
    figure, (left, right) = panels(9, 3.6, 2)
    for axes, by, label in ((left, 1, "speed-up"), (right, ranks, "efficiency")):
        axes.plot(ranks, ranks / by, color=COLORS[8], linestyle="--", linewidth=1, label="ideal")
        for (name, values), color in zip(speedups.items(), COLORS, strict=False):
            axes.plot(ranks, values / by, marker="o" if name == "measured" else None, color=color, label=name)
        counts(axes, ranks)
        axes.set_ylabel(label)
    left.set_yscale("log", base=2)
    left.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.set_ylim(0, None)
    left.legend(frameon=False)
    return figure


def stacked(ranks: Sequence[int] | Any, parts: Mapping[str, Any]) -> Figure:
    """The share of each part at each number of ranks."""
    figure, (axes,) = panels(6.4, 3.4)
    total, before = sum(parts.values()), 0.0
    for name, values in parts.items():
        axes.bar(np.arange(len(ranks)), values / total, bottom=before, label=name, color=palette.PHASES[name])
        before = before + values / total
    places = np.arange(len(ranks))[:: -(-len(ranks) // 8)]
    axes.set_xticks(places, [str(ranks[place]) for place in places])
    axes.set_xlabel("ranks")
    axes.set_ylabel("share of the time")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def balance(ranks: Any, balances: Mapping[str, Sequence[float]]) -> Figure:
    """The mean over the ranks as a share of the most."""
    figure, (axes,) = panels(5, 3.4)
    for (name, values), color in zip(balances.items(), COLORS, strict=False):
        axes.plot(ranks, values, marker="o", color=color, label=name)
    counts(axes, ranks)
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("mean over most")
    axes.legend(frameon=False)
    return figure


def counts(axes: Any, ranks: Any) -> None:
    """Make the horizontal axis one of numbers of ranks."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(ranks[:: -(-len(ranks) // 8)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.set_xlabel("ranks")
