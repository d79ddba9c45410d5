"""What the page's script draws: columns of numbers of few digits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpigp.mpi.timers import PHASES
from mpigp.report.contents import Report
from mpigp.report.metrics import SHARES
from mpigp.report.predictions import Predictions
from mpigp.report.thinning import evenly

DIGITS = 5
BOUND_DIGITS = 10  # its last changes are small beside itself
RANKS = 200  # that a figure shows at most
OUTPUTS = 12  # whose predictions a figure can show


def drawn(report: Report) -> dict[str, Any]:
    """Return what is drawn, by figure."""
    fitted, labels, predictions, metrics = report
    learning = {name: rounded(values) for name, values in fitted.learning._asdict().items()}
    learning |= {"bound": rounded(fitted.learning.bound, BOUND_DIGITS), "frame": rounded(list(fitted.learning.frame))}
    found: dict[str, Any] = {"alpha": rounded(fitted.parameters.alpha), "learning": learning}
    if fitted.latent is not None:
        rows, mu, sd = fitted.latent
        found["latent"] = {"rows": rounded(rows), "mu": rounded(mu.T), "sd": rounded(sd.T)}
    if labels is not None:
        found["labels"] = {"names": labels.names, "values": rounded(labels.values)}
    if predictions is not None:
        found["predictions"] = predicted(predictions)
    if fitted.timing is not None:
        ranks = evenly(len(fitted.timing.rows), RANKS)
        seconds, rows = fitted.timing
        found["timing"] = {"names": PHASES, "ranks": rounded(ranks), "seconds": rounded(seconds[ranks]),
                           "rows": rounded(rows[ranks])}  # fmt: skip
    if metrics is not None:
        iteration, shares = metrics
        found["metrics"] = {"names": SHARES, "iteration": rounded(iteration), "shares": rounded(shares.T)}
    return found


def predicted(predictions: Predictions) -> dict[str, Any]:
    """Return what is drawn of predictions: the first outputs."""
    found: dict[str, Any] = {name: rounded(getattr(predictions, name)) for name in ("rows", "x", "levels", "coverage")}
    found |= {name: rounded(getattr(predictions, name).T[:OUTPUTS]) for name in ("truth", "mean", "y_sd")}
    found |= {"x_names": predictions.x_names, "y_names": predictions.y_names[:OUTPUTS], "curve": None}
    if predictions.curve is not None:
        x, *rest = predictions.curve
        names = predictions.curve._fields[1:]
        found["curve"] = {"x": rounded(x)}
        found["curve"] |= {name: rounded(values.T[:OUTPUTS]) for name, values in zip(names, rest, strict=True)}
    return found


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Return arrays as lists of numbers of some digits, whole ones as they are; what is not finite becomes None."""
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list):
        return [rounded(value, digits) for value in values]
    if not isinstance(values, float):
        return values
    if not math.isfinite(values):
        return None
    short = float(f"{values:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short
