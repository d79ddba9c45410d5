"""The figures of a study and its forecast, described."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mpigp.mpi.timers import GROUPS
from mpigp.report.figures import COLORS, PHASE_COLORS, Axis, Figures, Panel, Series, rounded
from mpigp.report.panels import PERCENT
from mpigp.scaling.costs import Forecast, layout_of
from mpigp.scaling.study import Study
from mpigp.scaling.summary import Line

COLUMNS = ("ranks", "seconds", "speedup", "efficiency", "balance", "balance_of_rows")
QUARTERS = [(share / 4, f"{share / 4:g}") for share in range(5)]


def describe(study: Study, lines: Sequence[Line], forecast: Forecast) -> Figures:
    """Return the figures of a study."""
    fitted = [forecast.here.seconds(layout_of(point)) for point in study.points]
    model = [line.speedup * line.seconds / seconds for line, seconds in zip(lines, fitted, strict=True)]
    measured: dict[str, Any] = {name: [getattr(line, name) for line in lines] for name in COLUMNS}
    measured["shares"] = {name: [line.shares[name] for line in lines] for name in GROUPS}
    measured |= {"fitted": fitted, "model_speedup": model, "ideal": [1] * len(lines)}
    measured["model_efficiency"] = [speedup / line.ranks for speedup, line in zip(model, lines, strict=True)]
    predicted = {name: getattr(forecast, name) for name in ("ranks", "speedup", "efficiency", "terms")}
    data = {"measured": measured, "forecast": predicted | {"ideal": [1] * len(forecast.ranks)}}
    panels = [*scaling("measured", measured), stacked("shares", "Share of each phase", "measured.shares", data, "%")]
    panels += [balance(measured), *scaling("forecast", predicted)]
    panels.append(stacked("terms", "Share of each term", "forecast.terms", data, "ms"))
    return Figures({panel.name: panel for panel in panels}, rounded(data))


def scaling(part: str, columns: dict[str, Any]) -> Iterator[Panel]:
    """Yield the speed-up and the efficiency, with those of the model and the ideal ones."""
    measured, ranks, speedup = part == "measured", columns["ranks"], columns["speedup"]
    hover = [f"{{{part}.ranks}} ranks", f"speed-up {{{part}.speedup:4}}", f"efficiency {{{part}.efficiency:4}}"]
    if measured:
        hover += ["{measured.seconds:4} s per evaluation", "the model predicts {measured.fitted:4} s"]
    low = math.floor(math.log2(min(*speedup, *ranks)) - 0.02)
    high = math.ceil(math.log2(max(*speedup, *ranks)) + 0.02)
    powers = [(2.0**power, f"{2.0**power:.4g}") for power in range(low, high + 1, math.ceil((high - low) / 7))]
    most = 1.02 * max(1.05, *columns["efficiency"])
    for name, caption, ideal, axis in (
        ("speedup", "Speed-up", "ranks", Axis("speed-up", (2.0**low, 2.0**high), "log2", powers)),
        ("efficiency", "Efficiency", "ideal", Axis("efficiency", (0.0, most), ticks=QUARTERS)),
    ):
        x, y = f"{part}.ranks", f"{part}.{name}"
        lines = [Series(y, x, "measured", COLORS[0], dots=True)] if measured else []
        lines.append(Series(f"{part}.model_{name}" if measured else y, x, "model", COLORS[1]))
        lines.append(Series(f"{part}.{ideal}", x, "ideal", COLORS[8], dashed=True))
        name, picture = (name, "scaling") if measured else (f"forecast-{name}", "forecast")
        yield Panel(name, caption, ranks_axis(ranks), axis, hover, lines, picture=picture)


def stacked(name: str, caption: str, path: str, data: dict[str, Any], unit: str) -> Panel:
    """Describe the share of each part at each number of ranks; the text under the pointer is in this unit."""
    part, group = path.split(".")
    ranks, columns = data[part]["ranks"], {each: f"{path}.{each}" for each in data[part][group]}
    x = Axis("ranks", (-0.6, len(ranks) - 0.4), ticks=[(place, str(count)) for place, count in enumerate(ranks)])
    y = Axis("share of the time", (0.0, 1.0), ticks=PERCENT)
    hover = [f"{{{part}.ranks}} ranks", *(f"{each} {{{column}:3{unit}}}" for each, column in columns.items())]
    bars = [Series(column, "", each, PHASE_COLORS[each]) for each, column in columns.items()]
    return Panel(name, caption, x, y, hover, bars=bars, shares=True)


def balance(measured: dict[str, Any]) -> Panel:
    """Describe the load balance in seconds and in rows."""
    names = {"seconds on rows": "measured.balance", "rows": "measured.balance_of_rows"}
    each = zip(names.items(), COLORS, strict=False)
    lines = [Series(path, "measured.ranks", name, color, dots=True) for (name, path), color in each]
    hover = ["{measured.ranks} ranks", *(f"{name} {{{path}:3}}" for name, path in names.items())]
    y = Axis("mean over maximum", (0.0, 1.05), ticks=QUARTERS)
    return Panel("balance", "Load balance", ranks_axis(measured["ranks"]), y, hover, lines)


def ranks_axis(ranks: Sequence[int]) -> Axis:
    """Return the axis of numbers of ranks, by their logarithms."""
    margin = 2 ** (0.04 * math.log2(ranks[-1] / ranks[0]) or 0.5)
    return Axis("ranks", (ranks[0] / margin, ranks[-1] * margin), "log2", [(count, str(count)) for count in ranks])
