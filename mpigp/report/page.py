"""The report as one HTML page: text and tables written here, figures drawn by the page's own script."""

import math
from html import escape

from mpigp.files.provenance import Timing
from mpigp.gp.parameters import effective_dimensions
from mpigp.mpi.timers import PHASES
from mpigp.report.comparison import Predictions
from mpigp.report.document import choice, document, figure, grid, note, number, percent, provenance, section, table
from mpigp.report.figures import Figures
from mpigp.report.fitted import Fitted
from mpigp.report.panels import OUTPUTS, RANKS, Report

MODELS = {"gplvm": "Bayesian GPLVM", "regression": "Sparse GP regression"}


def render(report: Report, figures: Figures) -> str:
    """Return the page."""
    fitted = report.fitted
    sections = [latent(report, figures) if fitted.latent else regression(report, figures), learning(fitted, figures)]
    sections += [time(fitted, figures), parameters(fitted), provenance(fitted.made)]
    return document(fitted.name, MODELS[fitted.model], headlines(report), sections, figures)


def duration(seconds: float) -> str:
    """Return seconds in the unit that a person would use."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def headlines(report: Report) -> list[tuple[str, str]]:
    """Return the most important numbers, by name."""
    fitted, predictions = report.fitted, report.predictions
    m, q = fitted.parameters.Z.shape
    tiles = [("bound, nats", number(fitted.last["bound"], 6))] if fitted.last else []
    tiles += [("rows n", number(fitted.n)), ("inducing m", number(m))]
    tiles += [("latent q" if fitted.latent else "inputs q", number(q))]
    tiles += [("outputs d", number(fitted.d))] if fitted.d is not None else []
    if predictions is None or len(predictions.rmse) > 1:
        if not fitted.kernel_parameters:
            tiles += [("signal to noise", number(fitted.parameters.variance * fitted.parameters.beta, 3))]
    else:
        tiles += [("RMSE", number(predictions.rmse[0], 4)), ("within ±2σ", percent(predictions.inside[0]))]
    if fitted.last:
        tiles += [("iterations", number(fitted.last["iterations"])), ("time", duration(fitted.last["seconds"]))]
    return tiles


def latent(report: Report, figures: Figures) -> str:
    """Return the section on the latent space, with the ARD weights."""
    fitted, alpha = report.fitted, report.fitted.weights
    assert fitted.latent is not None
    controls = '<label class="switch"><input type="checkbox" id="unsure" checked> uncertainty</label>'
    if len(alpha) > 1:
        options = [(k, f"{k} (α = {number(weight, 3)})") for k, weight in enumerate(alpha)]
        controls = "".join(choice(name, options, figures.chosen[name]) for name in ("across", "up")) + controls
    words = "Each dot is the posterior mean of a row, and each ellipse shows its standard deviations. "
    words += rows_drawn(len(fitted.latent.rows), fitted.n)
    if report.labels is not None:
        words += f" Colors show the {number(len(report.labels.names))} labels; click on a label to show it alone."
    body = grid("wide", figure(figures, "latent", controls), relevance(fitted, figures))
    return section("Latent space", note(words), body)


def relevance(fitted: Fitted, figures: Figures) -> str:
    """Return the figure of the ARD weights, with the effective number of inputs."""
    alpha, kind = fitted.weights, "inputs" if fitted.latent is None else "latent dimensions"
    effective = number(effective_dimensions(alpha), 3)
    words = f"Effective number of {kind}: {effective} (1 means that a single one dominates)."
    names = fitted.columns.get("x", [])
    rows = [(name, number(weight, 4), number(weight**-0.5, 4)) for name, weight in zip(names, alpha, strict=False)]
    weights = table(rows, ("input", "ARD weight α", "lengthscale")) if rows else ""
    return f"<div>{figure(figures, 'ard')}{note(words if len(alpha) > 1 else '')}{weights}</div>"


def regression(report: Report, figures: Figures) -> str:
    """Return the section on predictions, where there are data, and the ARD weights."""
    predictions, weights = report.predictions, relevance(report.fitted, figures)
    if predictions is None:
        words = "The report compares predictions with the truth here when data are given."
        return section("Inputs", note(words), grid("two", weights))
    words = f"Data: {escape(predictions.name)}. {rows_drawn(len(predictions.rows), predictions.n)} "
    if predictions.curve is not None:
        words += "The line is the mean of the function; the bands are ±2σ of the function (dark) and of outputs (pale)."
    else:
        words += "Bars are ±2σ of the outputs; a perfect prediction lies on the diagonal."
    d = len(predictions.rmse)
    if d > OUTPUTS:
        words += f" The figure offers the first {OUTPUTS} of {number(d)} outputs."
    output = choice("output", enumerate(predictions.y_names[:OUTPUTS]), 0) if d > 1 else ""
    side = f'<div class="stack">{scores(predictions)}{figure(figures, "calibration")}{weights}</div>'
    drawn = grid("wide", figure(figures, "predictions", output), side)
    if predictions.components:
        words_of = "The function is the mean of the outputs plus the terms of the kernel; the bands are ±2σ."
        parts = (figure(figures, f"component-{number}") for number in range(len(predictions.components)))
        drawn += note(words_of) + grid("three", *parts)
    return section("Predictions", note(words), drawn)


def scores(predictions: Predictions) -> str:
    """Return the table of the errors of each output."""
    columns = zip(predictions.y_names, predictions.rmse, predictions.nlpd, predictions.inside, strict=True)
    rows = [(name, number(rmse, 4), number(nlpd, 4), percent(inside)) for name, rmse, nlpd, inside in columns]
    words = "Computed over the rows drawn, in the data’s units. NLPD is the mean negative log predictive density. "
    words += f"The interval ±2σ should hold {percent(math.erf(math.sqrt(2)))} of the rows."
    return f"<div>{table(rows, ('output', 'RMSE', 'NLPD', 'within ±2σ'))}{note(words)}</div>"


def rows_drawn(shown: int, n: int) -> str:
    """Return a sentence on how many of n rows are drawn."""
    if shown == n:
        return f"All {number(n)} rows are drawn."
    return f"A random sample of {number(shown)} of the {number(n)} rows is drawn, spread evenly over the file."


def learning(fitted: Fitted, figures: Figures) -> str:
    """Return the section on the iterations."""
    last, shown = fitted.last, fitted.learning.iteration
    if not last:
        return section("Optimization", note("The file holds no iterations."))
    words = f"{number(last['iterations'])} iterations"
    words += f", {number(last['evaluations'])} evaluations" if "evaluations" in last else ""
    words += f", {duration(last['seconds'])}; the bound ended at {number(last['bound'], 9)} nats."
    if fitted.stopped:
        words += f" It stopped because {escape(fitted.stopped)}."
    if len(shown) < last["iterations"]:
        words += f" The figures show {number(len(shown))} of the iterations, evenly spaced."
    below = shown[fitted.learning.bound < fitted.learning.frame[0]]
    if len(below):
        words += f" The bounds of the first iterations, up to {number(below[-1])}, lie below the frame."
    names = ["bound-iterations", "bound-seconds", "gradient"]
    if fitted.validation is not None:
        iteration, rmse, nlpd = (series[-1] for series in fitted.validation)
        words += f" At iteration {number(iteration)} the RMSE of the rows that it did not learn from was "
        words += f"{number(rmse, 4)}, and their NLPD, the mean negative log predictive density, {number(nlpd, 4)}."
        names += ["validation-nlpd", "validation-rmse"]
    return section("Optimization", note(words), grid("three", *(figure(figures, name) for name in names)))


def time(fitted: Fitted, figures: Figures) -> str:
    """Return the section on time, as far as the files tell."""
    timing, shares = fitted.timing, figure(figures, "metrics")
    if timing is None:
        return section("Time", note("The file holds no times of ranks and phases."), shares and grid("two", shares))
    words = f"Seconds inside evaluations of the last run. Load balance {percent(fitted.balance)}: the time spent on "
    words += "rows (statistics and gradients), as the mean over the ranks divided by the maximum."
    if len(timing.rows) > RANKS:
        words += f" The figure shows {RANKS} of {number(len(timing.rows))} ranks, evenly spaced."
    drawn = f'<div class="stack">{figure(figures, "timing")}{shares}</div>'
    return section("Time", note(words), grid("two", drawn, phases(timing)))


def phases(timing: Timing) -> str:
    """Return the table of the seconds of the phases over the ranks."""
    rows = []
    for name, seconds in zip(PHASES, timing.seconds.T, strict=True):
        cells = (number(value, 3) for value in (seconds.mean(), seconds.min(), seconds.max()))
        rows.append((name, *cells, percent(seconds.sum() / (timing.seconds.sum() or 1.0))))
    cells = (number(value) for value in (round(timing.rows.mean()), timing.rows.min(), timing.rows.max()))
    return table([*rows, ("rows of a rank", *cells, "")], ("seconds", "mean", "min", "max", "share"))


def parameters(fitted: Fitted) -> str:
    """Return the section on the parameters."""
    Z, variance, _, beta = fitted.parameters
    composed = bool(fitted.kernel_parameters)
    names = fitted.columns.get("x") or [str(q) for q in range(Z.shape[1])]
    noise = f"{number(beta**-0.5)}, in the model’s units"
    if fitted.y_scale is not None and len(fitted.y_scale) == 1:
        noise += f"; {number(beta**-0.5 * float(fitted.y_scale[0]))} in the data’s"
    shape = [
        ("model", MODELS[fitted.model]), ("kernel", fitted.kernel), ("bound", fitted.bound),
        ("rows n", number(fitted.n)), ("inducing points m", number(Z.shape[0])),
        ("latent dimensions q" if fitted.latent else "inputs q", number(Z.shape[1])),
        ("outputs d", None if fitted.d is None else number(fitted.d)),
        ("jitter", None if fitted.jitter is None else number(fitted.jitter)),
        ("seed", None if fitted.seed is None else str(fitted.seed)),
    ]  # fmt: skip
    learned = [
        *((name, number(value)) for name, value in fitted.kernel_parameters.items()),
        ("kernel variance σ_f²", None if composed else number(variance)),
        ("noise precision β", number(beta)), ("noise σ", noise),
        ("signal to noise σ_f² β", None if composed else number(variance * beta)),
        ("evidence at most, nats", None if fitted.upper_bound is None else number(fitted.upper_bound, 9)),
        ("inputs that never moved", ", ".join(names[q] for q in fitted.unmoved) or None),
        ("stopped because", "it has not stopped: this is a checkpoint" if fitted.stopped == "" else fitted.stopped),
    ]  # fmt: skip
    halves = ([(name, value) for name, value in rows if value is not None] for rows in (shape, learned))
    return section("Parameters", grid("two", *map(table, halves)))
