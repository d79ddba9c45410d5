"""All that a report shows."""

from __future__ import annotations

from typing import NamedTuple

from mpigp.report.fitted import Fitted
from mpigp.report.labels import Labels
from mpigp.report.metrics import Metrics
from mpigp.report.predictions import Predictions


class Report(NamedTuple):
    """A model, and what it was put beside; what is None is left out."""

    fitted: Fitted
    labels: Labels | None = None
    predictions: Predictions | None = None
    metrics: Metrics | None = None
