"""The figures of a report, described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mpigp.mpi.timers import PHASES
from mpigp.report import palette
from mpigp.report.figures import Axis, Figures, Panel, Points, Series, rounded
from mpigp.report.fitted import Fitted
from mpigp.report.labels import Labels
from mpigp.report.metrics import SHARES, Metrics
from mpigp.report.palette import COLORS, INSIDE, OUTSIDE, PALE
from mpigp.report.predictions import Predictions
from mpigp.report.thinning import evenly

BOUND_DIGITS = 10  # its last changes are small beside itself
RANKS = 200  # that a figure shows at most
OUTPUTS = 12  # whose predictions a figure can show
PERCENT = [(share / 4, f"{25 * share} %") for share in range(5)]


class Report(NamedTuple):
    """A model, and what it is compared with; what is None is left out."""

    fitted: Fitted
    labels: Labels | None = None
    predictions: Predictions | None = None
    metrics: Metrics | None = None


def describe(report: Report) -> Figures:
    """Return the figures of a report."""
    across, up = (*report.fitted.relevance.tolist(), 0)[:2]
    chosen = {"across": across, "up": up}
    return Figures({panel.name: panel for panel in panels(report)}, rounded_data(report), chosen)


def rounded_data(report: Report) -> dict[str, Any]:
    """Return the numbers that the figures show, by figure."""
    fitted, labels, predictions, metrics = report
    alpha = fitted.parameters.alpha
    learning = fitted.learning._asdict() | {"frame": list(fitted.learning.frame)}
    data = {"alpha": alpha, "lengthscale": alpha**-0.5, "input_names": input_names(report), "learning": learning}
    if fitted.latent is not None:
        rows, mu, sd = fitted.latent
        data["latent"] = {"rows": rows, "mu": mu.T, "sd": sd.T}
    if labels is not None:
        data["labels"] = labels._asdict()
    if predictions is not None:
        data["predictions"] = predictions_data(predictions)
    if fitted.timing is not None:
        ranks = evenly(len(fitted.timing.rows), RANKS)
        seconds, rows = fitted.timing
        data["timing"] = {"names": PHASES, "ranks": ranks, "seconds": seconds[ranks].T, "rows": rows[ranks]}
    if metrics is not None:
        data["metrics"] = {"names": SHARES, "iteration": metrics.iteration, "shares": metrics.shares.T}
    short = rounded(data)
    short["learning"]["bound"] = rounded(fitted.learning.bound, BOUND_DIGITS)
    return short


def predictions_data(predictions: Predictions) -> dict[str, Any]:
    """Return the numbers that the figures show of predictions: those of the first outputs."""
    names = ("rows", "x", "levels", "coverage", "x_names")
    data = {name: getattr(predictions, name) for name in names}
    truth, mean, y_sd = (values.T[:OUTPUTS] for values in (predictions.truth, predictions.mean, predictions.y_sd))
    data |= {"truth": truth, "mean": mean, "y_sd": y_sd, "y_names": predictions.y_names[:OUTPUTS], "curve": None}
    data["outside"] = (np.abs(truth - mean) > 2 * y_sd).astype(int)
    data["ends"] = np.stack([truth.min(axis=1), truth.max(axis=1)], axis=1)
    if predictions.curve is not None:
        x, *columns = predictions.curve
        named = zip(predictions.curve._fields[1:], columns, strict=True)
        data["curve"] = {"x": x} | {name: values.T[:OUTPUTS] for name, values in named}
    return data


def input_names(report: Report) -> list[str]:
    """Return what the figure of ARD weights says of each input."""
    kind = "input" if report.fitted.latent is None else "dimension"
    names = [f"{kind} {place}" for place in range(len(report.fitted.parameters.alpha))]
    if report.predictions is None:
        return names
    return [f"{name}, {column}" for name, column in zip(names, report.predictions.x_names, strict=True)]


def panels(report: Report) -> Iterator[Panel]:
    """Yield each figure that a report has."""
    fitted = report.fitted
    if fitted.latent is not None:
        yield latent(report)
    yield relevance(fitted)
    if report.predictions is not None:
        yield predicted(report.predictions)
        yield calibration()
    if fitted.last:
        yield from learning(fitted)
    if fitted.timing is not None:
        yield timing(fitted)
    if report.metrics is not None:
        yield metrics()


def latent(report: Report) -> Panel:
    """Describe two latent dimensions, at first the most relevant; or the only one against the rows."""
    fitted, labels = report.fitted, report.labels
    assert fitted.latent is not None
    one = fitted.latent.mu.shape[1] == 1
    names: list[str] = []
    if labels is not None:
        names = labels.names[: len(COLORS)]
        names += [f"{len(labels.names) - len(COLORS)} more"] if len(labels.names) > len(COLORS) else []
    hover = ["row {latent.rows}", "dimension @across: {latent.mu.@across:5} ± {latent.sd.@across:2}"]
    hover[1:1] = [] if labels is None else ["label {labels.values|labels.names}"]
    hover += [] if one else ["dimension @up: {latent.mu.@up:5} ± {latent.sd.@up:2}"]
    points = Points(
        x="latent.mu.@across",
        y="latent.rows" if one else "latent.mu.@up",
        sd_x="latent.sd.@across",
        sd_y="" if one else "latent.sd.@up",
        colors=(*COLORS, PALE),
        group="" if labels is None else "labels.values",
        names=names,
        toggle=True,
    )
    return Panel(
        name="latent",
        caption="Latent positions" if one else "Two latent dimensions, at first the two most relevant",
        x=Axis("dimension @across"),
        y=Axis("row" if one else "dimension @up"),
        points=points,
        hover="\n".join(hover),
        tall=True,
        title=f"{len(fitted.latent.rows):,} of {fitted.n:,} rows",
    )


def relevance(fitted: Fitted) -> Panel:
    """Describe the ARD weights."""
    alpha, kind = fitted.parameters.alpha, "inputs" if fitted.latent is None else "dimensions"
    ticks = [(place, str(place)) for place in range(len(alpha))]
    return Panel(
        name="ard",
        caption=f"Relevance of the {kind}",
        x=Axis("input" if fitted.latent is None else "latent dimension", (-0.6, len(alpha) - 0.4), ticks=ticks),
        y=Axis("ARD weight α", (0.0, 1.06 * float(alpha.max()) or 1.0)),
        bars=[Series("alpha")],
        marked=() if fitted.latent is None else ("across", "up"),
        hover="{input_names}\nα = {alpha:5}\nlengthscale {lengthscale:5}",
    )


def predicted(predictions: Predictions) -> Panel:
    """Describe the function and the data, where there is one input, else predicted against true outputs."""
    one, output = predictions.curve is not None, "{predictions.y_names.@output}"
    truth, mean, sd = (f"predictions.{name}.@output" for name in ("truth", "mean", "y_sd"))
    hover = ["row {predictions.rows}", f"true {{{truth}:5}}", f"predicted {{{mean}:5}}, σ {{{sd}:3}}"]
    hover[1:1] = ["{predictions.x_names.0}: {predictions.x:5}"] if one else []
    if one:
        curve = "predictions.curve"
        line = Series(f"{curve}.mean.@output", f"{curve}.x", bands=[f"{curve}.{sd}.@output" for sd in ("y_sd", "f_sd")])
    else:
        line = Series("predictions.ends.@output", "predictions.ends.@output", dashed=True)
    return Panel(
        name="predictions",
        caption="The function and the data" if one else "Predicted against true",
        x=Axis("{predictions.x_names.0}" if one else f"true {output}"),
        y=Axis(output if one else f"predicted {output}"),
        lines=[line],
        points=Points(
            x="predictions.x" if one else truth,
            y=truth if one else mean,
            sd_y="" if one else sd,
            colors=(INSIDE, OUTSIDE),
            group="predictions.outside.@output",
            names=("within ±2σ", "outside"),
        ),
        hover="\n".join(hover),
        tall=True,
        title=f"{len(predictions.rows):,} of {predictions.n:,} rows, {predictions.inside[0]:.1%} within ±2σ",
    )


def calibration() -> Panel:
    """Describe the share of rows that intervals hold."""
    levels = "predictions.levels"
    return Panel(
        name="calibration",
        caption="Calibration of the intervals",
        x=Axis("probability of the interval", (0.0, 1.0), ticks=PERCENT),
        y=Axis("share of the rows in it", (0.0, 1.0), ticks=PERCENT),
        lines=[Series("predictions.coverage", levels), Series(levels, levels, dashed=True)],
        hover="the {predictions.levels:2%} interval\nholds {predictions.coverage:3%} of the rows",
    )


def learning(fitted: Fitted) -> Iterator[Panel]:
    """Describe the bound against iterations and seconds, and the norm of the gradient."""
    hover = "iteration {learning.iteration}\nbound {learning.bound:8}\n"
    hover += "gradient norm {learning.gradient_norm:5}\n{learning.seconds:5} s"
    bound, norm = Axis("bound, nats", fitted.learning.frame), Axis("gradient norm", scale="log10")
    for name, caption, x, y, y_axis in (
        ("bound-iterations", "Bound", "iteration", "bound", bound),
        ("bound-seconds", "Bound over time", "seconds", "bound", bound),
        ("gradient", "Norm of the gradient", "iteration", "gradient_norm", norm),
    ):
        line = Series(f"learning.{y}", f"learning.{x}")
        yield Panel(name, caption, Axis(x, zero=x == "seconds"), y_axis, hover, lines=[line], picture="learning")


def timing(fitted: Fitted) -> Panel:
    """Describe the seconds of each rank by phase."""
    assert fitted.timing is not None
    ranks = evenly(len(fitted.timing.rows), RANKS).tolist()
    seconds = [f"{name} {{timing.seconds.{place}:3}} s" for place, name in enumerate(PHASES)]
    bars = [Series(f"timing.seconds.{k}", name=name, color=palette.PHASES[name]) for k, name in enumerate(PHASES)]
    most = float(fitted.timing.seconds.sum(axis=1).max())
    return Panel(
        name="timing",
        caption="Time of each rank by phase",
        x=Axis("seconds", (0.0, 1.01 * most or 1.0)),
        y=Axis("rank", (len(ranks) - 0.5, -0.5), ticks=[(place, str(rank)) for place, rank in enumerate(ranks)]),
        bars=bars,
        horizontal=True,
        hover="\n".join(["rank {timing.ranks}, {timing.rows} rows", *seconds]),
        title=f"load balance {fitted.balance:.1%}",
    )


def metrics() -> Panel:
    """Describe the shares of rank 0's time until each iteration."""
    columns = {name: f"metrics.shares.{place}" for place, name in enumerate(SHARES)}
    words = [f"{name} {{{y}:3%}}" for name, y in columns.items()]
    return Panel(
        name="metrics",
        caption="Share of rank 0’s time until each iteration",
        x=Axis("iteration"),
        y=Axis("share of the time", (0.0, 1.0), ticks=PERCENT),
        lines=[Series(y, "metrics.iteration", name, palette.PHASES[name]) for name, y in columns.items()],
        hover="\n".join(["until iteration {metrics.iteration}", *words]),
    )
