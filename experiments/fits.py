"""What the experiments that learn models have in common: fits that may end at their last iteration, and neighbours."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpigp.errors import InputError
from mpigp.types import Floats

Labels = NDArray[np.int64]
Model = TypeVar("Model", bound=Any)


def fitted(estimator: Model, *data: Any) -> Model:
    """Fit an estimator, and return it. That it did not converge is no warning here: `figures` tells it."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(*data)


def figures(model: Any) -> dict[str, Any]:
    """Return how a fit went: its bound in nats, iterations, evaluations, and whether it converged; and its seconds."""
    trace = model.trace_
    return {
        "bound": model.bound_,
        "iterations": model.n_iter_,
        "evaluations": trace.evaluations[-1],
        "converged": model.n_iter_ < model.max_iter,
        "seconds": trace.seconds[-1],
    }


def nearest(points: Floats, others: Floats | None = None) -> Labels:
    """Return, for each of the points (n, q), the place of the nearest of the others; without these, of the rest."""
    from scipy.spatial import cKDTree

    if others is not None:
        return np.asarray(cKDTree(others).query(points)[1])
    places = cKDTree(points).query(points, k=2)[1]
    itself = places[:, 0] == np.arange(len(points))  # of equal points, itself may come second
    return np.where(itself, places[:, 1], places[:, 0])


def check_counts(study: Any, *options: str) -> None:
    """Refuse options of a study that are not numbers ≥ 1, or lists of them; and a seed or jitter without a meaning."""
    for option in options:
        _check_numbers(study, option, "≥ 1", lambda number: number >= 1)
    if not study.jitter >= 0 or math.isinf(study.jitter):
        raise InputError(f"--jitter: is {study.jitter:g}: give a number ≥ 0")
    for option in ("seed", "seeds"):
        if hasattr(study, option):
            _check_numbers(study, option, "between 0 and 2**31 - 1", lambda number: 0 <= number < 2**31)


def _check_numbers(study: Any, option: str, meant: str, valid: Callable[[int], bool]) -> None:
    value, name = getattr(study, option), f"--{option.replace('_', '-')}"
    values = value if isinstance(value, tuple) else (value,)
    if not values or not all(map(valid, values)):
        raise InputError(f"{name}: is {','.join(map(str, values))}: give a number {meant}")
    if len(set(values)) < len(values):
        raise InputError(f"{name}: holds a number twice: give each once")
