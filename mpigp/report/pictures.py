"""Figures as PNG files, drawn by matplotlib from their descriptions."""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from mpigp.files.atomic import replacing
from mpigp.report.figures import COLORS, Axis, Figures, Panel, Points

DPI = 160
TICKS = 9  # with texts of their own that an axis shows at most


def save(figures: Figures, folder: Path) -> list[str]:
    """Write the figures to this folder, panels of one picture side by side; return the paths."""
    written = []
    for name, group in groupby(figures.panels.values(), key=lambda panel: panel.picture or panel.name):
        path, panels = folder / f"{name}.png", list(group)
        with replacing(path) as temporary:
            draw(figures, panels).savefig(temporary, format="png", dpi=DPI)
        written.append(str(path))
    return written


def draw(figures: Figures, panels: list[Panel]) -> Figure:
    """Return panels side by side as one figure."""
    first = panels[0]
    width, height = (7.0, 5.1) if first.tall else (4.2 if len(panels) > 1 else 5.6, 3.4)
    if first.horizontal:
        height = min(1.6 + 0.25 * len(figures.column(first.bars[0].y)), 8)
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.grid(color="#dfe3e8", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(panel.title, fontsize=10)
        draw_lines(axes, figures, panel)
        draw_bars(axes, figures, panel)
        if panel.points is not None:
            draw_points(axes, figures, panel.points)
        set_axis(axes, figures, panel.x, "x")
        set_axis(axes, figures, panel.y, "y")
        if panel is first and axes.get_legend_handles_labels()[1]:
            outside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
            axes.legend(frameon=False, **({} if panel.lines else outside))
    return figure


def set_axis(axes: Any, figures: Figures, axis: Axis, which: str) -> None:
    """Give a panel's x or y its label, scale, range and ticks."""
    getattr(axes, f"set_{which}label")(literal(figures.text(axis.label)))
    if axis.scale is not None:
        getattr(axes, f"set_{which}scale")("log", base=int(axis.scale.removeprefix("log")))
    if axis.ticks is not None:
        shown = axis.ticks[:: -(-len(axis.ticks) // TICKS)]
        getattr(axes, f"{which}axis").set_minor_locator(NullLocator())
        getattr(axes, f"set_{which}ticks")([value for value, _ in shown], [literal(text) for _, text in shown])
    if axis.range is not None or axis.zero:
        getattr(axes, f"set_{which}lim")(axis.range or (0, None))


def literal(text: str) -> str:
    """Return text of users for matplotlib, which would take what is between dollars for a formula."""
    return text.replace("$", r"\$")


def draw_lines(axes: Any, figures: Figures, panel: Panel) -> None:
    """Draw lines, with their bands of two standard deviations."""
    for line in panel.lines:
        x, y = figures.numbers(line.x), figures.numbers(line.y)
        color = line.color or COLORS[8 if line.dashed else 0]
        for path, alpha in zip(line.bands, (0.16, 0.26), strict=False):
            reach = 2 * figures.numbers(path)
            axes.fill_between(x, y - reach, y + reach, color=color, alpha=alpha, linewidth=0)
        style = {"linestyle": "--", "linewidth": 1} if line.dashed else {"marker": "o" if line.dots else None}
        axes.plot(x, y, color=color, label=line.name or None, **style)


def draw_bars(axes: Any, figures: Figures, panel: Panel) -> None:
    """Draw bars, the parts of each on one another."""
    if not panel.bars:
        return
    heights = np.array([figures.numbers(bar.y) for bar in panel.bars])
    if panel.shares:
        heights /= heights.sum(axis=0)
    bars, start = (axes.barh, "left") if panel.horizontal else (axes.bar, "bottom")
    for bar, height, top in zip(panel.bars, heights, heights.cumsum(axis=0), strict=True):
        style = {"color": bar.color or COLORS[0], "label": bar.name or None, start: top - height}
        bars(np.arange(len(height)), height, **style)


def draw_points(axes: Any, figures: Figures, points: Points) -> None:
    """Draw dots with their ellipses or bars."""
    x, y = figures.numbers(points.x), figures.numbers(points.y)
    group = figures.numbers(points.group).astype(int) if points.group else np.zeros(len(x), int)
    colors = np.array(points.colors)[np.minimum(group, len(points.colors) - 1)]
    sd_y = figures.numbers(points.sd_y) if points.sd_y else np.zeros(len(y))
    few = len(x) <= 300
    if points.sd_x:
        ellipses = EllipseCollection(2 * figures.numbers(points.sd_x), 2 * sd_y, np.zeros(len(x)), units="xy",
                                     offsets=np.column_stack([x, y]), transOffset=axes.transData, facecolors=colors,
                                     alpha=0.15 if few else 0.04)  # fmt: skip
        axes.add_collection(ellipses)
    elif points.sd_y:
        axes.errorbar(x, y, 2 * sd_y, fmt="none", ecolor=colors, elinewidth=0.6, alpha=0.2)
    axes.scatter(x, y, s=14 if few else 5, c=colors, linewidths=0)
    for name, color in zip(points.names, points.colors, strict=False):
        axes.scatter([], [], c=color, label=literal(name))
