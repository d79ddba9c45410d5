"""The report as one HTML page: text and tables written here, figures drawn by the page's own script."""

from __future__ import annotations

import math
from html import escape

from mpigp.files.provenance import Timing
from mpigp.gp.parameters import effective_dimensions
from mpigp.mpi.timers import PHASES
from mpigp.report.contents import Report
from mpigp.report.document import document, made, resource
from mpigp.report.drawing import OUTPUTS, RANKS, drawn
from mpigp.report.fitted import Fitted
from mpigp.report.markup import choice, duration, figure, grid, note, number, percent, section, stack, table
from mpigp.report.predictions import Predictions

KINDS = {"gplvm": "Bayesian GPLVM", "regression": "Sparse GP regression"}


def render(report: Report) -> str:
    """Return the page."""
    fitted = report.fitted
    first = latent if fitted.model == "gplvm" else regression
    sections = [first(report), learning(fitted), time(report), parameters(fitted), made(fitted.made)]
    script = resource("mpigp.report", "page.js")
    return document(fitted.name, KINDS[fitted.model], headlines(report), sections, script, drawn(report))


def headlines(report: Report) -> list[tuple[str, str]]:
    """Return the figures that matter most, by name."""
    fitted, predictions = report.fitted, report.predictions
    m, q = fitted.parameters.Z.shape
    found = [("bound, nats", number(fitted.last["bound"], 6))] if fitted.last else []
    found += [("rows n", number(fitted.n)), ("inducing m", number(m))]
    found += [("latent q" if fitted.latent else "inputs q", number(q))]
    found += [("outputs d", number(fitted.d))] if fitted.d is not None else []
    if predictions is None or len(predictions.rmse) > 1:
        found += [("signal to noise", number(fitted.parameters.variance * fitted.parameters.beta, 3))]
    else:
        found += [("RMSE", number(predictions.rmse[0], 4)), ("within ±2σ", percent(predictions.inside[0]))]
    if fitted.last:
        found += [("iterations", number(fitted.last["iterations"])), ("time", duration(fitted.last["seconds"]))]
    return found


def latent(report: Report) -> str:
    """Return the section on the latent space, with the ARD weights."""
    fitted, labels = report.fitted, report.labels
    assert fitted.latent is not None
    q = fitted.parameters.Z.shape[1]
    controls = '<label class="switch"><input type="checkbox" id="unsure" checked> uncertainty</label>'
    if q > 1:
        options = [(k, f"{k} (α = {number(fitted.parameters.alpha[k], 3)})") for k in range(q)]
        first, second = fitted.relevance.tolist()[:2]
        controls = choice("across", "across", options, first) + choice("up", "up", options, second) + controls
    words = "Each dot is the posterior mean of a row, each ellipse its standard deviation. "
    words += some(len(fitted.latent.rows), fitted.n)
    if labels is not None:
        words += f" Colours are the {number(len(labels.names))} labels; a click on one shows it alone."
    caption = "Latent positions" if q == 1 else "Two latent dimensions, at first the two most relevant"
    body = grid("wide", figure("latent", caption, controls), relevance(fitted, "Relevance of the dimensions"))
    return section("Latent space", note(words), body)


def relevance(fitted: Fitted, caption: str) -> str:
    """Return the figure of the ARD weights, and in how many dimensions they lie."""
    effective = number(effective_dimensions(fitted.parameters.alpha), 3)
    words = f"Effective dimensions {effective}: the exponential of the entropy of the weights’ shares."
    return f"<div>{figure('ard', caption)}{note(words if len(fitted.parameters.alpha) > 1 else '')}</div>"


def regression(report: Report) -> str:
    """Return the section on predictions, where there are data, and the ARD weights."""
    found, weights = report.predictions, relevance(report.fitted, "Relevance of the inputs")
    if found is None:
        words = "Given data, a report shows predictions against the truth here."
        return section("Inputs", note(words), grid("two", weights))
    words = f"Data: {escape(found.name)}. {some(len(found.rows), found.n)} "
    if found.curve is not None:
        caption = "The function and the data"
        words += "The line is the function’s mean; the bands are ±2σ of the function (dark) and of the outputs (pale)."
    else:
        caption = "Predicted against true"
        words += "Bars are ±2σ of the outputs; a perfect prediction lies on the diagonal."
    d = len(found.rmse)
    if d > OUTPUTS:
        words += f" The figure offers the first {OUTPUTS} of {number(d)} outputs."
    output = choice("output", "output", enumerate(found.y_names[:OUTPUTS]), 0) if d > 1 else ""
    calibration = figure("calibration", "Calibration of the intervals")
    body = grid("wide", figure("predictions", caption, output), stack(scores(found), calibration, weights))
    return section("Predictions", note(words), body)


def scores(found: Predictions) -> str:
    """Return how good the predictions of each output are."""
    each = zip(found.y_names, found.rmse, found.nlpd, found.inside, strict=True)
    rows = [(name, number(rmse, 4), number(nlpd, 4), percent(inside)) for name, rmse, nlpd, inside in each]
    words = (
        "Over the rows drawn, in the data’s units. NLPD is the mean negative log predictive density; ±2σ should hold "
        f"{percent(math.erf(math.sqrt(2)))}."
    )
    return f"<div>{table(rows, ('output', 'RMSE', 'NLPD', 'within ±2σ'))}{note(words)}</div>"


def some(shown: int, n: int) -> str:
    """Return a sentence on how many of n rows are drawn."""
    if shown == n:
        return f"All {number(n)} rows are drawn."
    each = number(round(n / shown))
    return (
        f"{number(shown)} of {number(n)} rows are drawn: thinned evenly, one at random from each run of about {each}."
    )


def learning(fitted: Fitted) -> str:
    """Return the section on the iterations."""
    last, shown = fitted.last, fitted.learning.iteration
    if not last:
        return section("Learning", note("The file holds no iterations."))
    words = f"{number(last['iterations'])} iterations"
    words += f", {number(last['evaluations'])} evaluations" if "evaluations" in last else ""
    words += f", {duration(last['seconds'])}; the bound ended at {number(last['bound'], 9)} nats."
    if fitted.stopped:
        words += f" It stopped because {escape(fitted.stopped)}."
    if len(shown) < last["iterations"]:
        words += f" {number(len(shown))} of the iterations are drawn, evenly."
    below = shown[fitted.learning.bound < fitted.learning.frame[0]]
    if len(below):
        words += f" The first iterations, up to {number(below[-1])}, lie below the frame."
    body = grid(
        "three",
        figure("bound-iterations", "Bound"),
        figure("bound-seconds", "Bound over time"),
        figure("gradient", "Norm of the gradient"),
    )
    return section("Learning", note(words), body)


def time(report: Report) -> str:
    """Return the section on time, as far as there is something to tell."""
    timing = report.fitted.timing
    shares = figure("metrics", "Share of rank 0’s time until each iteration") if report.metrics is not None else ""
    if timing is None:
        return section("Time", note("The file holds no times of ranks and phases."), shares and grid("two", shares))
    words = (
        f"Seconds inside evaluations, of the last run alone. Load balance {percent(report.fitted.balance)}: the mean "
        "over the ranks of the time spent on rows (statistics and gradients), as a share of the busiest rank’s."
    )
    if len(timing.rows) > RANKS:
        words += f" {RANKS} of {number(len(timing.rows))} ranks are drawn, evenly."
    return section(
        "Time", note(words), grid("two", stack(figure("timing", "Time of each rank by phase"), shares), phases(timing))
    )


def phases(timing: Timing) -> str:
    """Return the seconds of the phases over the ranks."""
    total = timing.seconds.sum() or 1.0
    rows = []
    for name, seconds in zip(PHASES, timing.seconds.T, strict=True):
        ends = (number(value, 3) for value in (seconds.mean(), seconds.min(), seconds.max()))
        rows.append((name, *ends, percent(seconds.sum() / total)))
    ends = (number(value) for value in (round(timing.rows.mean()), timing.rows.min(), timing.rows.max()))
    return table([*rows, ("rows of a rank", *ends, "")], ("seconds", "mean", "least", "most", "share"))


def parameters(fitted: Fitted) -> str:
    """Return the section on the parameters."""
    Z, variance, _, beta = fitted.parameters
    noise = f"{number(beta**-0.5)}, in the model’s units"
    if fitted.y_scale is not None and len(fitted.y_scale) == 1:
        noise += f"; {number(beta**-0.5 * float(fitted.y_scale[0]))} in the data’s"
    shape = [
        ("model", KINDS[fitted.model]),
        ("rows n", number(fitted.n)),
        ("inducing points m", number(Z.shape[0])),
        ("latent dimensions q" if fitted.latent else "inputs q", number(Z.shape[1])),
        ("outputs d", None if fitted.d is None else number(fitted.d)),
        ("jitter", None if fitted.jitter is None else number(fitted.jitter)),
        ("seed", None if fitted.seed is None else str(fitted.seed)),
    ]
    learnt = [
        ("kernel variance σ_f²", number(variance)),
        ("noise precision β", number(beta)),
        ("noise σ", noise),
        ("signal to noise σ_f² β", number(variance * beta)),
        ("stopped because", "it had not: this is a checkpoint" if fitted.stopped == "" else fitted.stopped),
    ]
    halves = ([(name, value) for name, value in rows if value is not None] for rows in (shape, learnt))
    return section("Parameters", grid("two", *map(table, halves)))
