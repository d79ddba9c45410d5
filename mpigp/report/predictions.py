"""Predictions of a regression for a data file, and their errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import h5py
import numpy as np

from mpigp.data.datasets import DataSets
from mpigp.data.hdf5 import plain, read_rows
from mpigp.gp.posterior import Posterior
from mpigp.report.thinning import Indices, pick, thinned
from mpigp.types import Floats

GRID = 400  # points of a drawn function
LEVELS = np.linspace(0, 1, 21)  # of the intervals whose coverage is counted


class Curve(NamedTuple):
    """A function of one input, drawn: x (g,), mean (g, d), and the standard deviations (g, d) of f and of y."""

    x: Floats
    mean: Floats
    f_sd: Floats
    y_sd: Floats


class Predictions(NamedTuple):
    """Predictions for some rows of a data file.

    name, n : of the file, and how many rows it has
    rows : (k,).   truth, mean, y_sd : (k, d), in the data's units.   x : (k,), the input where there is one, else None
    x_names, y_names : names of the inputs and of the outputs
    rmse, nlpd, inside : (d,), the last the share of rows within two standard deviations
    coverage : (L,), the share of rows within the central interval of each of LEVELS, over all outputs
    curve : None where there is more than one input
    """

    name: str
    n: int
    rows: Indices
    truth: Floats
    mean: Floats
    y_sd: Floats
    x: Floats | None
    x_names: list[str]
    y_names: list[str]
    rmse: Floats
    nlpd: Floats
    inside: Floats
    coverage: Floats
    curve: Curve | None


def predictions(posterior: Posterior, data: DataSets) -> Predictions:
    """Predict rows of a file, thinned, and compare them with its outputs."""
    assert data.X is not None
    rows = thinned(data.n)
    X, truth = (pick(data.n, rows, partial(read_rows, item)) for item in (data.X, data.Y))
    mean, _, y_sd = predict(posterior, X)
    scaled = (truth - mean) / y_sd
    widths = np.array([NormalDist().inv_cdf(0.5 + 0.5 * level) for level in LEVELS[1:-1]])
    curve = None
    if X.shape[1] == 1:
        margin = 0.05 * (X.max() - X.min()) or 1.0
        grid = np.linspace(X.min() - margin, X.max() + margin, GRID)
        curve = Curve(grid, *predict(posterior, grid[:, None]))
    return Predictions(
        name=Path(data.Y.file.filename).name, n=data.n, rows=rows, truth=truth, mean=mean, y_sd=y_sd,
        x=None if curve is None else X[:, 0], x_names=names(data.X), y_names=names(data.Y),
        rmse=np.sqrt(((truth - mean) ** 2).mean(axis=0)),
        nlpd=(0.5 * np.log(2 * np.pi) + np.log(y_sd) + 0.5 * scaled**2).mean(axis=0),
        inside=(np.abs(scaled) <= 2).mean(axis=0),
        coverage=np.array([0.0, *(np.abs(scaled).ravel() <= widths[:, None]).mean(axis=1), 1.0]),
        curve=curve,
    )  # fmt: skip


def predict(posterior: Posterior, X: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean and the standard deviations of f and of y, all (n, d)."""
    mean, *variances = posterior.predict(X)
    f_sd, y_sd = (np.sqrt(v if v.ndim == 2 else v[:, None]) + np.zeros_like(mean) for v in variances)
    return mean, f_sd, y_sd


def names(item: h5py.Dataset) -> list[str]:
    """Return the names of a dataset's columns: its attribute `columns`, or their numbers."""
    count, base = item.shape[1], item.name.strip("/")
    columns = plain(item.attrs["columns"]) if "columns" in item.attrs else []
    if isinstance(columns, list) and len(columns) == count:
        return [str(column) for column in columns]
    return [base] if count == 1 else [f"{base} {column}" for column in range(count)]
