"""A study and its forecast as one HTML page, and the figures on it, described."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mpigp.mpi.timers import GROUPS
from mpigp.report.document import document, figure, grid, note, number, percent, provenance, section, table
from mpigp.report.figures import COLORS, PHASE_COLORS, Axis, Figures, Panel, Series, rounded
from mpigp.report.panels import PERCENT
from mpigp.scaling.costs import MAX_RANKS, MIN_POINTS, Forecast, layout_of
from mpigp.scaling.study import Study
from mpigp.scaling.summary import HEAD, PHASES_HEAD, Line, cells, phase_cells

MODELS = {"gplvm": "Bayesian GPLVM", "regression": "sparse GP regression"}
COLUMNS = ("ranks", "seconds", "speedup", "efficiency", "balance", "balance_of_rows")
QUARTERS = [(share / 4, f"{share / 4:g}") for share in range(5)]


def render(study: Study, lines: list[Line], forecast: Forecast, figures: Figures) -> str:
    """Return the page."""
    kind = f"{MODELS[study.points[0].problem.model]}, one evaluation with its gradient"
    sections = [measured_section(lines, figures), time_section(lines, figures), model_section(forecast)]
    sections += [forecast_section(forecast, figures), provenance(origin(study))]
    return document(f"{study.kind.capitalize()} scaling", kind, headlines(study, lines, forecast), sections, figures)


def headlines(study: Study, lines: list[Line], forecast: Forecast) -> list[tuple[str, str]]:
    """Return the most important numbers, by name."""
    problem = study.points[0].problem
    rows, name = (problem.n, "rows n") if study.kind == "strong" else (problem.n // lines[0].ranks, "rows of a rank")
    tiles = [(name, number(rows)), ("inducing m", number(problem.m)), ("q", number(problem.q))]
    tiles += [("outputs d", number(problem.d)), ("ranks", f"{lines[0].ranks} to {lines[-1].ranks}")]
    own_cores = [line for line in lines if not line.shared]
    if len(own_cores) > 1:
        tiles.append((f"efficiency, {own_cores[-1].ranks} ranks", f"{own_cores[-1].efficiency:.3f}"))
    tiles.append(("half efficient at", f"over {MAX_RANKS}" if forecast.half is None else number(forecast.half)))
    return tiles


def measured_section(lines: list[Line], figures: Figures) -> str:
    """Return the section on speed-up and efficiency."""
    words = "The seconds of an evaluation are medians, and the spread is half of their interquartile range. "
    words += f"Speed-up and efficiency are relative to the fewest ranks, {lines[0].ranks}."
    if any(line.shared for line in lines):
        words += " Where ranks share cores they take turns: such runs show the messages and bytes, but no speed-up, "
        words += "and the seconds of each phase include the turns of other ranks."
    drawn = grid("two", figure(figures, "speedup"), figure(figures, "efficiency"))
    return section("Measured", note(words), drawn, table(map(cells, lines), HEAD))


def time_section(lines: list[Line], figures: Figures) -> str:
    """Return the section on phases and balance."""
    words = (
        "Shares of the time of all ranks: compute is time on rows; master is rank 0’s work on matrices of size m, for "
        "which the others wait; messages are transfer alone. Balance is the mean over the ranks divided by the "
        "maximum, of the seconds on rows and of the rows. Messages and bytes are those of each rank in an evaluation."
    )
    drawn = grid("two", figure(figures, "shares"), figure(figures, "balance"))
    return section("Where the time goes", note(words), drawn, table(map(phase_cells, lines), PHASES_HEAD))


def model_section(forecast: Forecast) -> str:
    """Return the section on the fitted costs and their errors in cross-validation."""
    errors = forecast.errors
    words = f"Cross-validation of the model needs at least {MIN_POINTS} numbers of ranks."
    if errors:
        worst = percent(max(map(abs, errors.values())))
        words = f"Leave-one-out cross-validation: each number of ranks is predicted from the others within {worst}."
    here = forecast.here
    seconds = {
        "one row": here.per_row, "matrices that every rank computes": here.algebra,
        "matrices that rank 0 computes": here.master, "one step of a message, on this machine": here.latency,
        "one kB of messages, on this machine": 1e3 * here.per_byte,
    }  # fmt: skip
    costs = [(name, f"{number(1e6 * value, 4)} µs") for name, value in seconds.items()]
    rows = [(str(ranks), f"{100 * error:+.1f} %".replace("-", "−")) for ranks, error in errors.items()]
    tables = grid("two", table(costs), table(rows, ("ranks left out", "error")) if rows else "")
    return section("The model", note(words), tables)


def forecast_section(forecast: Forecast, figures: Figures) -> str:
    """Return the section on more ranks."""
    name, latency, bandwidth, source = forecast.interconnect
    words = f"On {name}: latency {number(1e6 * latency, 3)} µs, bandwidth {number(bandwidth / 1e9, 3)} GB/s ({source})"
    words += f"; each thread has a core of its own. There {forecast.conclusion}."
    names = ("forecast-speedup", "forecast-efficiency", "terms")
    return section("More ranks", note(words), grid("three", *(figure(figures, name) for name in names)))


def origin(study: Study) -> dict[str, Any]:
    """Return how a study was made."""
    run = study.points[-1].run
    nodes = sorted({node for point in study.points for node in point.run["by_rank"]["nodes"]})
    machine = {"cpu": run["cpu"], "instruction set": run["instruction_set"], "threads of a rank": run["threads"]}
    machine |= {"nodes": ", ".join(nodes[:20]) + (f" and {len(nodes) - 20} more" if len(nodes) > 20 else "")}
    return {"command": study.command, "machine": machine, "versions": run["versions"]}


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
