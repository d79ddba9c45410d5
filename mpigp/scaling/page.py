"""A study and its forecast as one HTML page."""

from __future__ import annotations

from typing import Any

from mpigp.mpi.timers import GROUPS
from mpigp.report.document import document, made, resource
from mpigp.report.drawing import rounded
from mpigp.report.markup import figure, grid, note, number, percent, section, table
from mpigp.scaling.costs import FEWEST, Costs, layout_of
from mpigp.scaling.forecast import BOTTLENECKS, MOST, Forecast
from mpigp.scaling.study import Study
from mpigp.scaling.summary import HEAD, PHASES_HEAD, Line, cells, phase_cells

MODELS = {"gplvm": "Bayesian GPLVM", "regression": "sparse GP regression"}


def render(study: Study, lines: list[Line], forecast: Forecast) -> str:
    """Return the page."""
    title = f"{study.kind.capitalize()} scaling"
    sections = [measured(lines), time(lines), model(study, forecast), foretold(forecast), made(origin(study))]
    kind = MODELS[study.points[0].problem.model]
    return document(title, f"{kind}, one evaluation with its gradient", headlines(study, lines, forecast), sections,
                    resource("mpigp.scaling", "page.js"), drawn(study, lines, forecast))  # fmt: skip


def headlines(study: Study, lines: list[Line], forecast: Forecast) -> list[tuple[str, str]]:
    """Return the figures that matter most, by name."""
    problem = study.points[0].problem
    rows, name = (problem.n, "rows n") if study.kind == "strong" else (problem.n // lines[0].ranks, "rows of a rank")
    whole = [line for line in lines if not line.shared]
    found = [(name, number(rows)), ("inducing m", number(problem.m)), ("q", number(problem.q))]
    found += [("outputs d", number(problem.d)), ("ranks", f"{lines[0].ranks} to {lines[-1].ranks}")]
    if len(whole) > 1:
        found.append((f"efficiency, {whole[-1].ranks} ranks", f"{whole[-1].efficiency:.3f}"))
    found.append(("half efficient at", f"over {MOST}" if forecast.half is None else number(forecast.half)))
    return found


def measured(lines: list[Line]) -> str:
    """Return the section on speed-up and efficiency."""
    words = (
        "Seconds of an evaluation are medians, and the spread is the middle half of all runs. Speed-up and efficiency "
        f"are over the fewest ranks, {lines[0].ranks}."
    )
    if any(line.shared for line in lines):
        words += (
            " Where cores are shared, ranks take turns: such counts show messages and bytes, and no speed-up; the "
            "seconds of their phases hold the turns of others."
        )
    figures = grid("two", figure("speedup", "Speed-up"), figure("efficiency", "Efficiency"))
    return section("Measured", note(words), figures, table(map(cells, lines), HEAD))


def time(lines: list[Line]) -> str:
    """Return the section on phases and balance."""
    words = (
        "Shares of the time of all ranks: compute is time on rows; master is rank 0’s work on matrices of size m, for "
        "which the others wait; messages are transfer alone. Balance is the mean over the ranks, as a share of the "
        "most, of seconds on rows and of rows. Messages and bytes are those of each rank in an evaluation."
    )
    body = grid("two", figure("shares", "Share of each phase"), figure("balance", "Balance of the load"))
    return section("Where the time goes", note(words), body, table(map(phase_cells, lines), PHASES_HEAD))


def model(study: Study, forecast: Forecast) -> str:
    """Return the section on the fitted costs, and how well they foretell counts that they have not seen."""
    errors = forecast.errors
    if errors:
        worst = max(errors.values(), key=abs)
        words = (
            f"Fitted without a count, the model foretells its seconds with an error of at most {percent(abs(worst))}."
        )
    else:
        words = f"There are fewer than {FEWEST} counts: none could be left out to see how well the model foretells it."
    costs = [(name, f"{number(1e6 * value, 4)} µs") for name, value in parts(forecast.here).items()]
    rows = [(str(ranks), f"{100 * error:+.1f} %".replace("-", "−")) for ranks, error in errors.items()]
    tables = grid("two", table(costs), table(rows, ("ranks left out", "error")) if rows else "")
    return section("The model", note(words), tables)


def parts(costs: Costs) -> dict[str, float]:
    """Return the fitted costs by what they are of, in seconds."""
    return {
        "a row": costs.per_row,
        "matrices that every rank makes": costs.algebra,
        "matrices that the master makes": costs.master,
        "a step of a message, here": costs.latency,
        "a kB of messages, here": 1e3 * costs.per_byte,
    }


def foretold(forecast: Forecast) -> str:
    """Return the section on more ranks."""
    name, latency, bandwidth, source = forecast.interconnect
    words = (
        f"On {name}: latency {number(1e6 * latency, 3)} µs, bandwidth {number(bandwidth / 1e9, 3)} GB/s ({source}); a "
        "core for each thread. "
    )
    if forecast.half is None:
        words += f"The efficiency stays above one half up to {MOST} ranks."
    else:
        words += f"The efficiency falls below one half at {number(forecast.half)} ranks."
    words += f" The first bottleneck is {forecast.bottleneck}: {BOTTLENECKS[forecast.bottleneck]}."
    figures = (
        figure("forecast-speedup", "Speed-up"),
        figure("forecast-efficiency", "Efficiency"),
        figure("terms", "Share of each term"),
    )
    return section("More ranks", note(words), grid("three", *figures))


def origin(study: Study) -> dict[str, Any]:
    """Return how a study was made."""
    run = study.points[-1].run
    nodes = sorted({node for point in study.points for node in point.run["by_rank"]["nodes"]})
    machine = {"cpu": run["cpu"], "instruction set": run["instruction_set"], "threads of a rank": run["threads"]}
    machine |= {"nodes": ", ".join(nodes[:20]) + (f" and {len(nodes) - 20} more" if len(nodes) > 20 else "")}
    return {"command": study.command, "machine": machine, "versions": run["versions"]}


def drawn(study: Study, lines: list[Line], forecast: Forecast) -> dict[str, Any]:
    """Return what the page's script draws."""
    names = ("ranks", "seconds", "speedup", "efficiency", "balance", "balance_of_rows")
    found: dict[str, Any] = {name: [getattr(line, name) for line in lines] for name in names}
    found["shares"] = {name: rounded([line.shares[name] for line in lines]) for name in GROUPS}
    found["fitted"] = [forecast.here.seconds(layout_of(point)) for point in study.points]
    terms = {name: rounded(values) for name, values in forecast.terms.items()}
    more = {name: rounded(getattr(forecast, name)) for name in ("ranks", "speedup", "efficiency")}
    here = {name: values if name == "shares" else rounded(values) for name, values in found.items()}
    return {"measured": here, "forecast": {**more, "terms": terms}}
