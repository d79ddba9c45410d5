"""The report's figures as PNG files, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mpigp.files.atomic import replacing
from mpigp.mpi.timers import PHASES
from mpigp.report import palette
from mpigp.report.contents import Report
from mpigp.report.metrics import SHARES
from mpigp.report.palette import COLORS, INSIDE, OUTSIDE, PALE

DPI = 160


def draw(report: Report, folder: Path) -> list[str]:
    """Write the figures that a report has to this folder; return their paths."""
    return save(pictures(report), folder)


def save(figures: Iterable[tuple[str, Figure]], folder: Path) -> list[str]:
    """Write figures, by their names, to this folder; return their paths."""
    written = []
    for name, figure in figures:
        path = folder / f"{name}.png"
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI)
        written.append(str(path))
    return written


def pictures(report: Report) -> Iterator[tuple[str, Figure]]:
    """Yield each figure that a report has, by its name."""
    fitted = report.fitted
    if fitted.latent is not None:
        yield "latent", latent(report)
    yield "ard", weights(report)
    if report.predictions is not None:
        yield "predictions", predictions(report)
        yield "calibration", calibration(report)
    if fitted.last:
        yield "learning", learning(report)
    if fitted.timing is not None:
        yield "timing", timing(report)
    if report.metrics is not None:
        yield "metrics", metrics(report)


def panels(width: float, height: float, count: int = 1) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    found = [figure.add_subplot(1, count, place + 1) for place in range(count)]
    for axes in found:
        axes.grid(color="#dfe3e8", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, found


def latent(report: Report) -> Figure:
    """The two most relevant dimensions."""
    fitted, labels = report.fitted, report.labels
    assert fitted.latent is not None
    rows, mu, sd = fitted.latent
    figure, (axes,) = panels(7, 5.2)
    pair = fitted.relevance[:2]
    if len(pair) == 2:
        places, spread = mu[:, pair], sd[:, pair]
        axes.set_ylabel(f"dimension {pair[1]}")
    else:
        places, spread = np.column_stack([mu[:, 0], rows]), np.column_stack([sd[:, 0], np.zeros(len(rows))])
        axes.set_ylabel("row")
    axes.set_xlabel(f"dimension {pair[0]}")
    groups = np.zeros(len(rows), int) if labels is None else np.minimum(labels.values, len(COLORS))
    colors = np.array([*COLORS, PALE])[groups]
    axes.add_collection(
        EllipseCollection(2 * spread[:, 0], 2 * spread[:, 1], np.zeros(len(rows)), units="xy", offsets=places,
                          transOffset=axes.transData, facecolors=colors, alpha=0.15 if len(rows) <= 300 else 0.04)
    )  # fmt: skip
    axes.scatter(*places.T, s=14 if len(rows) <= 300 else 5, c=colors, linewidths=0)
    if labels is not None:
        for place, color in enumerate([*COLORS, PALE]):
            rest = len(labels.names) - len(COLORS)
            if place < len(labels.names):
                name = labels.names[place] if place < len(COLORS) else f"{rest} more"
                axes.scatter([], [], c=color, label=name)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_title(f"{len(rows):,} of {fitted.n:,} rows", fontsize=10)
    return figure


def weights(report: Report) -> Figure:
    """The ARD weights."""
    alpha = report.fitted.parameters.alpha
    figure, (axes,) = panels(5, 3.2)
    axes.bar(np.arange(len(alpha)), alpha, color=COLORS[0])
    axes.set_xlabel("input" if report.fitted.latent is None else "latent dimension")
    axes.set_ylabel("ARD weight α")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure


def predictions(report: Report) -> Figure:
    """The function and the data, or predicted against true; of the first output."""
    found = report.predictions
    assert found is not None
    truth, mean, sd = found.truth[:, 0], found.mean[:, 0], found.y_sd[:, 0]
    figure, (axes,) = panels(7, 5)
    colors = np.where(np.abs(truth - mean) <= 2 * sd, INSIDE, OUTSIDE)
    size = 14 if len(truth) <= 300 else 5
    if found.curve is not None:
        x, centre, f_sd, y_sd = found.curve
        for each, alpha in ((y_sd, 0.16), (f_sd, 0.26)):
            low, high = centre[:, 0] - 2 * each[:, 0], centre[:, 0] + 2 * each[:, 0]
            axes.fill_between(x, low, high, color=COLORS[0], alpha=alpha, linewidth=0)
        axes.plot(x, centre[:, 0], color=COLORS[0])
        axes.scatter(found.x, truth, s=size, c=colors, linewidths=0)
        axes.set_xlabel(found.x_names[0])
        axes.set_ylabel(found.y_names[0])
    else:
        axes.axline((truth[0], truth[0]), slope=1, color=COLORS[8], linestyle="--", linewidth=1)
        axes.errorbar(truth, mean, 2 * sd, fmt="none", ecolor=colors, elinewidth=0.6, alpha=0.2)
        axes.scatter(truth, mean, s=size, c=colors, linewidths=0)
        axes.set_xlabel(f"true {found.y_names[0]}")
        axes.set_ylabel(f"predicted {found.y_names[0]}")
    axes.set_title(f"{len(truth):,} of {found.n:,} rows, {found.inside[0]:.1%} within ±2σ", fontsize=10)
    return figure


def calibration(report: Report) -> Figure:
    """The share of rows that intervals hold."""
    assert report.predictions is not None
    figure, (axes,) = panels(4.2, 3.6)
    axes.plot([0, 1], [0, 1], color=COLORS[8], linestyle="--", linewidth=1)
    axes.plot(report.predictions.levels, report.predictions.coverage, color=COLORS[0])
    axes.set_xlabel("interval should hold")
    axes.set_ylabel("holds")
    return figure


def learning(report: Report) -> Figure:
    """The bound against iterations and seconds, and the gradient's norm."""
    iteration, bound, norm, seconds = report.fitted.learning
    figure, axes = panels(11, 3.2, 3)
    for place, (x, y, x_name, y_name) in enumerate(
        [(iteration, bound, "iteration", "bound, nats"), (seconds, bound, "seconds", "bound, nats"),
         (iteration, norm, "iteration", "gradient norm")]
    ):  # fmt: skip
        axes[place].plot(x, y, color=COLORS[0])
        axes[place].set_xlabel(x_name)
        axes[place].set_ylabel(y_name)
    for each in axes[:2]:
        each.set_ylim(*report.fitted.learning.frame)
    axes[2].set_yscale("log")
    return figure


def timing(report: Report) -> Figure:
    """The seconds of each rank by phase."""
    assert report.fitted.timing is not None
    seconds = report.fitted.timing.seconds
    figure, (axes,) = panels(7, min(1.6 + 0.25 * len(seconds), 8))
    before = np.zeros(len(seconds))
    for name, each in zip(PHASES, seconds.T, strict=True):
        axes.barh(np.arange(len(seconds)), each, left=before, label=name, color=palette.PHASES[name])
        before += each
    axes.set_xlabel("seconds")
    axes.set_ylabel("rank")
    axes.invert_yaxis()
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.set_title(f"load balance {report.fitted.balance:.1%}", fontsize=10)
    return figure


def metrics(report: Report) -> Figure:
    """The shares of rank 0's time until each iteration."""
    assert report.metrics is not None
    figure, (axes,) = panels(6, 3.4)
    for name, share in zip(SHARES, report.metrics.shares.T, strict=True):
        axes.plot(report.metrics.iteration, share, label=name, color=palette.PHASES[name])
    axes.set_ylim(0, 1)
    axes.set_xlabel("iteration")
    axes.set_ylabel("share of the time")
    axes.legend(frameon=False)
    return figure
