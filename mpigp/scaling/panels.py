"""The figures of a study and its forecast, described."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mpigp.mpi.timers import GROUPS
from mpigp.report import palette
from mpigp.report.figures import Axis, Figures, Panel, Series, rounded
from mpigp.report.palette import COLORS
from mpigp.report.panels import PERCENT
from mpigp.scaling.costs import TERMS, layout_of
from mpigp.scaling.forecast import Forecast
from mpigp.scaling.study import Study
from mpigp.scaling.summary import Line

COLUMNS = ("ranks", "seconds", "speedup", "efficiency", "balance", "balance_of_rows")
QUARTERS = [(share / 4, f"{share / 4:g}") for share in range(5)]


def describe(study: Study, lines: Sequence[Line], forecast: Forecast) -> Figures:
    """Return the figures of a study."""
    measured = {name: [getattr(line, name) for line in lines] for name in COLUMNS}
    fitted = [forecast.here.seconds(layout_of(point)) for point in study.points]
    model = [line.speedup * line.seconds / seconds for line, seconds in zip(lines, fitted, strict=True)]
    data = {
        "measured": {
            **measured,
            "shares": {name: [line.shares[name] for line in lines] for name in GROUPS},
            "fitted": fitted,
            "model_speedup": model,
            "model_efficiency": [speedup / line.ranks for speedup, line in zip(model, lines, strict=True)],
            "ideal_efficiency": [1] * len(lines),
        },
        "forecast": {
            "ranks": forecast.ranks,
            "speedup": forecast.speedup,
            "efficiency": forecast.efficiency,
            "terms": forecast.terms,
            "ideal_efficiency": [1] * len(forecast.ranks),
        },
    }
    return Figures({panel.name: panel for panel in panels(lines, forecast)}, rounded(data))


def panels(lines: Sequence[Line], forecast: Forecast) -> Iterator[Panel]:
    """Yield each figure of a study, and those of its forecast."""
    ranks = [line.ranks for line in lines]
    yield from scaling("measured", "", ranks, [line.speedup for line in lines])
    yield stacked("shares", "Share of each phase", ranks, "measured.shares", GROUPS, "%")
    balance = {"seconds on rows": "measured.balance", "rows": "measured.balance_of_rows"}
    yield Panel(
        name="balance",
        caption="Load balance",
        x=ranks_axis(ranks),
        y=Axis("mean over maximum", (0.0, 1.05), ticks=QUARTERS),
        lines=[
            Series(y, "measured.ranks", name, color, dots=True)
            for (name, y), color in zip(balance.items(), COLORS, strict=False)
        ],
        hover="\n".join(["{measured.ranks} ranks", *(f"{name} {{{y}:3}}" for name, y in balance.items())]),
    )
    yield from scaling("forecast", "forecast-", forecast.ranks, forecast.speedup)
    yield stacked("terms", "Share of each term", forecast.ranks, "forecast.terms", TERMS, "ms")


def scaling(part: str, prefix: str, ranks: Sequence[int], speedup: Sequence[float]) -> Iterator[Panel]:
    """Yield the speed-up and the efficiency, measured or forecast, with those of the model and the ideal ones."""
    hover = f"{{{part}.ranks}} ranks\nspeed-up {{{part}.speedup:4}}\nefficiency {{{part}.efficiency:4}}"
    if part == "measured":
        hover += "\n{measured.seconds:4} s per evaluation\nthe model predicts {measured.fitted:4} s"
    low = math.floor(math.log2(min(*speedup, *ranks)) - 0.02)
    high = math.ceil(math.log2(max(*speedup, *ranks)) + 0.02)
    powers = [(2.0**power, f"{2.0**power:.4g}") for power in range(low, high + 1, math.ceil((high - low) / 7))]
    most = 1.02 * max(1.05, *(value / count for value, count in zip(speedup, ranks, strict=True)))
    for name, ideal, axis in (
        ("speedup", "ranks", Axis("speed-up", (2.0**low, 2.0**high), "log2", powers)),
        ("efficiency", "ideal_efficiency", Axis("efficiency", (0.0, most), ticks=QUARTERS)),
    ):
        model = f"model_{name}" if part == "measured" else name
        lines = [Series(f"{part}.{name}", f"{part}.ranks", "measured", COLORS[0], dots=True)] if model != name else []
        lines.append(Series(f"{part}.{model}", f"{part}.ranks", "model", COLORS[1]))
        lines.append(Series(f"{part}.{ideal}", f"{part}.ranks", "ideal", COLORS[8], dashed=True))
        caption, picture = {"speedup": "Speed-up"}.get(name, "Efficiency"), {"measured": "scaling"}.get(part, part)
        yield Panel(f"{prefix}{name}", caption, ranks_axis(ranks), axis, hover, lines, picture=picture)


def stacked(name: str, caption: str, ranks: Sequence[int], path: str, parts: Sequence[str], unit: str) -> Panel:
    """Return the share of each part at each number of ranks."""
    words = [f"{part} {{{path}.{part}:3{unit}}}" for part in parts]
    return Panel(
        name=name,
        caption=caption,
        x=Axis("ranks", (-0.6, len(ranks) - 0.4), ticks=[(place, str(count)) for place, count in enumerate(ranks)]),
        y=Axis("share of the time", (0.0, 1.0), ticks=PERCENT),
        bars=[Series(f"{path}.{part}", name=part, color=palette.PHASES[part]) for part in parts],
        shares=True,
        hover="\n".join([f"{{{path.split('.')[0]}.ranks}} ranks", *words]),
    )


def ranks_axis(ranks: Sequence[int]) -> Axis:
    """Return the axis of numbers of ranks, by their logarithms."""
    margin = 2 ** (0.04 * math.log2(ranks[-1] / ranks[0]) or 0.5)
    return Axis("ranks", (ranks[0] / margin, ranks[-1] * margin), "log2", [(count, str(count)) for count in ranks])
