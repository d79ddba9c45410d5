"""A study and its forecast as one HTML page."""

from typing import Any

from mpigp.report.document import document, figure, grid, note, number, percent, provenance, section, table
from mpigp.report.figures import Figures
from mpigp.scaling.costs import MAX_RANKS, MIN_POINTS, Forecast
from mpigp.scaling.study import Study
from mpigp.scaling.summary import HEAD, PHASES_HEAD, Line, cells, phase_cells

MODELS = {"gplvm": "Bayesian GPLVM", "regression": "sparse GP regression"}


def render(study: Study, lines: list[Line], forecast: Forecast, figures: Figures) -> str:
    """Return the page."""
    kind = f"{MODELS[study.points[0].problem.model]}, one evaluation with its gradient"
    sections = [measured(lines, figures), time(lines, figures), model(forecast), predicted(forecast, figures)]
    sections.append(provenance(origin(study)))
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


def measured(lines: list[Line], figures: Figures) -> str:
    """Return the section on speed-up and efficiency."""
    words = "The seconds of an evaluation are medians, and the spread is half of their interquartile range. "
    words += f"Speed-up and efficiency are relative to the fewest ranks, {lines[0].ranks}."
    if any(line.shared for line in lines):
        words += " Where ranks share cores they take turns: such runs show the messages and bytes, but no speed-up, "
        words += "and the seconds of each phase include the turns of other ranks."
    drawn = grid("two", figure(figures, "speedup"), figure(figures, "efficiency"))
    return section("Measured", note(words), drawn, table(map(cells, lines), HEAD))


def time(lines: list[Line], figures: Figures) -> str:
    """Return the section on phases and balance."""
    words = (
        "Shares of the time of all ranks: compute is time on rows; master is rank 0’s work on matrices of size m, for "
        "which the others wait; messages are transfer alone. Balance is the mean over the ranks divided by the "
        "maximum, of the seconds on rows and of the rows. Messages and bytes are those of each rank in an evaluation."
    )
    drawn = grid("two", figure(figures, "shares"), figure(figures, "balance"))
    return section("Where the time goes", note(words), drawn, table(map(phase_cells, lines), PHASES_HEAD))


def model(forecast: Forecast) -> str:
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


def predicted(forecast: Forecast, figures: Figures) -> str:
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
