"""Figures described once, as data: the page's script draws them as SVG, `pictures` as PNG files.

A description names its numbers by paths into the data that it comes with: `learning.bound` is
data["learning"]["bound"]. `@name` stands for the value of the page's control of that name, as in `latent.mu.@across`.
In labels and hover texts `{path}` is a value, `{path:4}` a number of 4 digits, `{path:3%}` and `{path:3ms}` one in
these units, and `{path|names}` the name at that place of a list. Text of users is in the data, never in a description.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpigp.data.held_out import scattered

MOST = 4000  # rows that a figure shows: a random sample, spread evenly over a file of any size
BLOCK = 2**16  # rows in memory at a time
# Petroff's ten colors, distinct with any color vision (arXiv:2107.02270), with the two grays late in the order.
COLORS = ("#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#a96b59", "#94a4a2", "#e76300", "#b9ac70", "#717581", "#92dadd")
PALE = "#c9ced6"  # for what has no color of its own
BLUE, YELLOW, PURPLE, GRAY, ORANGE, CYAN = (COLORS[place] for place in (0, 1, 3, 5, 6, 9))
PHASE_COLORS = {
    "broadcast": YELLOW, "statistics": BLUE, "reduce": ORANGE, "bound": CYAN, "gradients": PURPLE, "wait": GRAY,
    "compute": BLUE, "messages": ORANGE, "master": PURPLE, "imbalance": GRAY, "algebra": CYAN, "latency": ORANGE,
    "bandwidth": YELLOW,
}  # fmt: skip
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """label : with references.   range : by default that of the data.   ticks : values and texts, or round ones."""

    label: str
    range: tuple[float, float] | None = None
    scale: str | None = None  # log2 or log10
    ticks: Sequence[tuple[float, str]] | None = None
    zero: bool = False  # whether the range of the data is extended to 0


@dataclass(frozen=True)
class Series:
    """A line through (x, y), or bars of heights y, which are paths.   bands : of standard deviations, drawn as ±2σ."""

    y: str
    x: str = ""
    name: str = ""
    color: str = ""
    dashed: bool = False
    dots: bool = False
    bands: Sequence[str] = ()


@dataclass(frozen=True)
class Points:
    """Dots at (x, y), in ellipses of sd_x and sd_y, or, without sd_x, with bars of twice sd_y: paths of columns.

    group : the place in `colors` of each dot, the last color for all beyond;   names : those of the legend
    toggle : whether a click on a name shows its dots alone
    """

    x: str
    y: str
    colors: Sequence[str]
    sd_x: str = ""
    sd_y: str = ""
    group: str = ""
    names: Sequence[str] = ()
    toggle: bool = False


@dataclass(frozen=True)
class Panel:
    """A pair of axes with lines, stacked bars or points.

    name : of its element on the page;   picture : the PNG file, of one or more panels, that shows it (default: name)
    hover : the lines of text for the point, bar or place of the first line that the pointer is at
    shares : whether bars are shares of their sum;   marked : controls that choose the bars to highlight
    title : above the panel in a PNG file
    """

    name: str
    caption: str
    x: Axis
    y: Axis
    hover: Sequence[str]
    lines: Sequence[Series] = ()
    bars: Sequence[Series] = ()
    points: Points | None = None
    horizontal: bool = False
    shares: bool = False
    marked: Sequence[str] = ()
    tall: bool = False
    picture: str = ""
    title: str = ""


@dataclass(frozen=True)
class Figures:
    """panels : by name.   data : what they refer to, ready for JSON.   chosen : the first values of the controls."""

    panels: dict[str, Panel]
    data: dict[str, Any]
    chosen: Mapping[str, int] = field(default_factory=dict)

    def column(self, path: str) -> Any:
        """Return what a path refers to, with the first values of the controls."""
        value: Any = self.data
        for key in self.choose(path).split("."):
            value = value[int(key)] if isinstance(value, list | tuple) else value[key]
        return value

    def numbers(self, path: str) -> np.ndarray:
        """Return a column as numbers, NaN where they are not finite."""
        return np.array(self.column(path), float)

    def text(self, template: str) -> str:
        """Return a label."""
        return re.sub(r"\{(.+?)\}", lambda match: str(self.column(match[1])), self.choose(template))

    def choose(self, template: str) -> str:
        return re.sub(r"@(\w+)", lambda match: str(self.chosen.get(match[1], 0)), template)

    def json(self) -> dict[str, Any]:
        """Return the data and, as `panels`, the descriptions without what is empty."""

        def filled(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
            return {name: value for name, value in items if value not in (None, "", (), False)}

        return {**self.data, "panels": [asdict(panel, dict_factory=filled) for panel in self.panels.values()]}


def rounded(values: Any, digits: int = 5) -> Any:
    """Return arrays as lists of numbers of some digits, integers as they are; what is not finite becomes None."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, dict):
        return {name: rounded(value, digits) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [rounded(value, digits) for value in values]
    if not isinstance(values, float):
        return values
    if not math.isfinite(values):
        return None
    short = float(f"{values:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def thinned(n: int, most: int = MOST) -> Indices:
    """Return all rows where there are at most `most`, else one at random from each of `most` equal runs of rows."""
    return np.arange(n) if n <= most else scattered(n, most, np.random.default_rng(0))


def evenly(count: int, most: int) -> Indices:
    """Return at most `most` of `count` places, evenly, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64)) if count else np.arange(0)


def pick(n: int, rows: Indices, read: Callable[[int, int], NDArray]) -> NDArray:
    """Return some of n rows, given in ascending order, from the blocks that `read` returns for [start, stop)."""
    parts = []
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        first, last = np.searchsorted(rows, (start, stop))
        parts.append(read(start, stop)[rows[first:last] - start])
    return np.concatenate(parts)
