"""The figures of a report, described."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from mpigp.mpi.timers import PHASES
from mpigp.report import figures
from mpigp.report.comparison import LEVELS, Labels, Predictions
from mpigp.report.figures import BLUE, COLORS, ORANGE, PALE, PHASE_COLORS, Axis, Figures, Panel, Points, Series
from mpigp.report.fitted import SHARES, Fitted

BOUND_DIGITS = 10  # its last changes are small beside itself
RANKS = 200  # that a figure shows at most
TICK = 12  # characters under a bar
DOTS = 50  # on a line at most
OUTPUTS = 12  # whose predictions a figure can show
PERCENT = [(share / 4, f"{25 * share} %") for share in range(5)]


class Report(NamedTuple):
    """A model, and what it is compared with; what is None is left out."""

    fitted: Fitted
    labels: Labels | None = None
    predictions: Predictions | None = None
    metrics: dict[str, Any] | None = None


def describe(report: Report) -> Figures:
    """Return the figures of a report."""
    fitted, labels, predictions, metrics = report
    alpha = fitted.weights.copy()
    alpha[fitted.unmoved] = 0.0  # nothing was learned about them
    across = np.argsort(-alpha, kind="stable").tolist()  # the most relevant (largest alpha) first
    inputs = [f"{'input' if fitted.latent is None else 'dimension'} {place}" for place in range(len(alpha))]
    named = fitted.columns.get("x") if predictions is None else predictions.x_names
    if named:
        inputs = [f"{name}, {column}" for name, column in zip(inputs, named, strict=True)]
    data: dict[str, Any] = {"alpha": alpha, "lengthscale": fitted.weights**-0.5, "inputs": inputs}
    data["learning"] = fitted.learning._asdict() | {"frame": list(fitted.learning.frame)}
    panels = [relevance(fitted)]
    if fitted.latent is not None:
        rows, mu, sd = fitted.latent
        data["latent"] = {"rows": rows, "mu": mu.T, "sd": sd.T}
        panels.append(latent(fitted, labels))
    if labels is not None:
        data["labels"] = labels._asdict()
    if predictions is not None:
        data["predictions"] = predictions_data(predictions)
        panels += [predicted(predictions), calibration(), *components(predictions)]
    if fitted.last:
        panels += learning(fitted)
    if fitted.validation is not None:
        data["validation"] = fitted.validation._asdict()
        panels += validation(len(fitted.validation.iteration))
    if fitted.timing is not None:
        seconds, rows = fitted.timing
        ranks = figures.evenly(len(rows), RANKS)
        data["timing"] = {"names": PHASES, "ranks": ranks, "seconds": seconds[ranks].T, "rows": rows[ranks]}
        panels.append(timing(fitted, ranks.tolist()))
    if metrics is not None:
        data["metrics"] = metrics
        panels.append(time_shares())
    short = figures.rounded(data)
    short["learning"]["bound"] = figures.rounded(fitted.learning.bound, BOUND_DIGITS)
    return Figures({panel.name: panel for panel in panels}, short, {"across": across[0], "up": across[:2][-1]})


def predictions_data(predictions: Predictions) -> dict[str, Any]:
    """Return the numbers that the figures show of predictions: those of the first outputs."""
    truth, mean, y_sd = (values.T[:OUTPUTS] for values in (predictions.truth, predictions.mean, predictions.y_sd))
    curve = predictions.curve
    if curve is not None:
        curve = {name: column if column.ndim == 1 else column.T[:OUTPUTS] for name, column in curve.items()}
    return {
        "rows": predictions.rows, "x": predictions.x, "levels": LEVELS, "coverage": predictions.coverage,
        "x_names": predictions.x_names, "truth": truth, "mean": mean, "y_sd": y_sd,
        "y_names": predictions.y_names[:OUTPUTS], "curve": curve,
        "components": [[values.T[:OUTPUTS] for values in each] for each in predictions.components.values()],
        "outside": (np.abs(truth - mean) > 2 * y_sd).astype(int),
        "ends": np.stack([truth.min(axis=1), truth.max(axis=1)], axis=1),
    }  # fmt: skip


def relevance(fitted: Fitted) -> Panel:
    """Describe the ARD weights."""
    alpha, kind = fitted.weights, "input" if fitted.latent is None else "dimension"
    names = fitted.columns.get("x") or list(map(str, range(len(alpha))))
    ticks = [(place, shortened(name)) for place, name in enumerate(names)]
    x = Axis(kind if fitted.latent is None else "latent dimension", (-0.6, len(alpha) - 0.4), ticks=ticks)
    y = Axis("ARD weight α", (0.0, 1.06 * float(alpha.max()) or 1.0))
    hover = ["{inputs}", "α = {alpha:5}", "lengthscale {lengthscale:5}"]
    marked = () if fitted.latent is None else ("across", "up")
    return Panel("ard", f"Relevance of the {kind}s", x, y, hover, bars=[Series("alpha")], marked=marked)


def shortened(name: str) -> str:
    """Return a name that has room under a bar."""
    return name if len(name) <= TICK else f"{name[: TICK - 1]}…"


def latent(fitted: Fitted, labels: Labels | None) -> Panel:
    """Describe two latent dimensions, at first the most relevant; or the only one against the rows."""
    assert fitted.latent is not None
    one = fitted.latent.mu.shape[1] == 1
    hover = ["row {latent.rows}"] + ([] if labels is None else ["label {labels.values|labels.names}"])
    hover += [f"dimension @{axis}: {{latent.mu.@{axis}:5}} ± {{latent.sd.@{axis}:2}}" for axis in ("across", "up")]
    points = Points("latent.mu.@across", "latent.mu.@up", (*COLORS, PALE), "latent.sd.@across", "latent.sd.@up")
    if one:
        points = replace(points, y="latent.rows", sd_y="")
        hover.pop()
    if labels is not None:
        rest = len(labels.names) - len(COLORS)
        names = labels.names[: len(COLORS)] + ([f"{rest} more"] if rest > 0 else [])
        points = replace(points, group="labels.values", names=names, toggle=True)
    caption = "Latent positions" if one else "Two latent dimensions, at first the two most relevant"
    axes = Axis("dimension @across"), Axis("row" if one else "dimension @up")
    title = f"{len(fitted.latent.rows):,} of {fitted.n:,} rows"
    return Panel("latent", caption, *axes, hover, points=points, tall=True, title=title)


def predicted(predictions: Predictions) -> Panel:
    """Describe the function and the data, where there is one input, else predicted against true outputs."""
    columns = ("truth", "mean", "y_sd", "outside", "ends")
    truth, mean, sd, outside, ends = (f"predictions.{name}.@output" for name in columns)
    x_name, y_name = "{predictions.x_names.0}", "{predictions.y_names.@output}"
    groups: dict[str, Any] = {"colors": (BLUE, ORANGE), "group": outside, "names": ("within ±2σ", "outside")}
    hover = ["row {predictions.rows}", f"true {{{truth}:5}}", f"predicted {{{mean}:5}}, σ {{{sd}:3}}"]
    if predictions.curve is not None:
        curve, f_sd, y_sd = (f"predictions.curve.{name}.@output" for name in ("mean", "f_sd", "y_sd"))
        line = Series(curve, "predictions.curve.x", bands=[y_sd, f_sd])
        points = Points("predictions.x", truth, **groups)
        caption, axes = "The function and the data", (Axis(x_name), Axis(y_name))
        hover.insert(1, f"{x_name}: {{predictions.x:5}}")
    else:
        line = Series(ends, ends, dashed=True)
        points = Points(truth, mean, sd_y=sd, **groups)
        caption, axes = "Predicted against true", (Axis(f"true {y_name}"), Axis(f"predicted {y_name}"))
    title = f"{len(predictions.rows):,} of {predictions.n:,} rows, {predictions.inside[0]:.1%} within ±2σ"
    return Panel("predictions", caption, *axes, hover, [line], points=points, tall=True, title=title)


def components(predictions: Predictions) -> Iterator[Panel]:
    """Describe what each term of a composed kernel contributes to the function of one input."""
    x = Axis("{predictions.x_names.0}")
    for number, (name, color) in enumerate(zip(predictions.components, cycle(COLORS), strict=False)):
        mean, sd = (f"predictions.components.{number}.{place}.@output" for place in (0, 1))
        hover = ["{predictions.x_names.0}: {predictions.curve.x:5}", f"{{{mean}:5}}, σ {{{sd}:3}}"]
        line = Series(mean, "predictions.curve.x", color=color, bands=[sd])
        y = Axis("{predictions.y_names.@output}")
        yield Panel(
            f"component-{number}", f"What {name} contributes", x, y, hover, [line], picture="components", title=name
        )


def calibration() -> Panel:
    """Describe the share of rows that intervals hold."""
    x, y = (Axis(label, (0.0, 1.0), ticks=PERCENT) for label in ("probability of the interval", "share of rows in it"))
    levels = "predictions.levels"
    lines = [Series("predictions.coverage", levels), Series(levels, levels, dashed=True)]
    hover = ["the {predictions.levels:2%} interval", "holds {predictions.coverage:3%} of the rows"]
    return Panel("calibration", "Calibration of the intervals", x, y, hover, lines)


def learning(fitted: Fitted) -> Iterator[Panel]:
    """Describe the bound against iterations and seconds, and the norm of the gradient."""
    hover = ["iteration {learning.iteration}", "bound {learning.bound:8}"]
    hover += ["gradient norm {learning.gradient_norm:5}", "{learning.seconds:5} s"]
    bound, norm = Axis("bound, nats", fitted.learning.frame), Axis("gradient norm", scale="log10")
    for name, caption, x, y, axis in (
        ("bound-iterations", "Bound", Axis("iteration"), "bound", bound),
        ("bound-seconds", "Bound over time", Axis("seconds", zero=True), "bound", bound),
        ("gradient", "Norm of the gradient", Axis("iteration"), "gradient_norm", norm),
    ):
        line = Series(f"learning.{y}", f"learning.{x.label}")
        yield Panel(name, caption, x, axis, hover, [line], picture="learning")


def validation(count: int) -> Iterator[Panel]:
    """Describe how well rows that the fit did not learn from were predicted, at so many iterations."""
    hover = ["iteration {validation.iteration}", "NLPD {validation.nlpd:5}", "RMSE {validation.rmse:5}"]
    for name, caption, label in (
        ("nlpd", "NLPD of the validation rows", "NLPD, nats per row"),
        ("rmse", "RMSE of the validation rows", "RMSE, in the data’s units"),
    ):
        line = Series(f"validation.{name}", "validation.iteration", color=BLUE, dots=count <= DOTS)
        yield Panel(f"validation-{name}", caption, Axis("iteration"), Axis(label), hover, [line], picture="validation")


def timing(fitted: Fitted, ranks: list[int]) -> Panel:
    """Describe the seconds of each rank by phase."""
    assert fitted.timing is not None
    columns = {name: f"timing.seconds.{place}" for place, name in enumerate(PHASES)}
    hover = ["rank {timing.ranks}, {timing.rows} rows", *(f"{name} {{{path}:3}} s" for name, path in columns.items())]
    x = Axis("seconds", (0.0, 1.01 * float(fitted.timing.seconds.sum(axis=1).max()) or 1.0))
    y = Axis("rank", (len(ranks) - 0.5, -0.5), ticks=[(place, str(rank)) for place, rank in enumerate(ranks)])
    bars = [Series(path, "", name, PHASE_COLORS[name]) for name, path in columns.items()]
    title = f"load balance {fitted.balance:.1%}"
    return Panel("timing", "Time of each rank by phase", x, y, hover, bars=bars, horizontal=True, title=title)


def time_shares() -> Panel:
    """Describe the shares of rank 0's time until each iteration."""
    columns = {name: f"metrics.shares.{place}" for place, name in enumerate(SHARES)}
    hover = ["until iteration {metrics.iteration}", *(f"{name} {{{path}:3%}}" for name, path in columns.items())]
    lines = [Series(path, "metrics.iteration", name, PHASE_COLORS[name]) for name, path in columns.items()]
    y = Axis("share of the time", (0.0, 1.0), ticks=PERCENT)
    return Panel("metrics", "Share of rank 0’s time until each iteration", Axis("iteration"), y, hover, lines)
