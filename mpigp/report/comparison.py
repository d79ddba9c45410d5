"""What a data file adds to a report: the labels of a GPLVM's rows, or the predictions of a regression."""

from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpigp.data.datasets import DataSets
from mpigp.data.hdf5 import check_storage, h5py_errors, plain, read_rows
from mpigp.errors import InputError
from mpigp.gp.posterior import Posterior
from mpigp.report.figures import COLORS, Indices, pick, thinned
from mpigp.types import Floats

SHAPES = "labels are whole numbers (n,), or one-hot (n, k)"
GRID = 400  # points of a drawn function
LEVELS = np.linspace(0, 1, 21)  # of the intervals whose coverage is counted


class Labels(NamedTuple):
    """names : of the labels, in their order; where there are more than colors, the most frequent first.

    values : (k,), the place in `names` of each row's label
    """

    names: list[str]
    values: Indices


def read_labels(file: h5py.File, name: str | None, rows: Indices, n: int) -> Labels | None:
    """Return the labels of some of n rows, by the names in the dataset's attribute `classes` where it has one; without
    a name the dataset is `labels`, where there is such a one."""
    if name is None and "labels" not in file:
        return None
    name = name or "labels"
    where = f"{file.filename}: /{name.strip('/')}"
    with h5py_errors(where):
        return labels_of(file.get(name), where, rows, n)


def labels_of(item: Any, where: str, rows: Indices, n: int) -> Labels:
    """Return the labels of some of n rows of a dataset, checked."""
    if not isinstance(item, h5py.Dataset):
        raise InputError(f"{where}: there is no such dataset: `labels` names that of the labels")
    if item.ndim not in (1, 2) or item.dtype.kind not in "biuf":
        raise InputError(f"{where}: has shape {item.shape} and holds {item.dtype}: {SHAPES}")
    if len(item) != n:
        raise InputError(f"{where}: has {len(item)} labels, the model {n} rows: give the data it was learned from")
    check_storage(item)
    values = pick(n, rows, lambda start, stop: item[start:stop])
    if values.ndim == 2:
        if not (((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all()):
            raise InputError(f"{where}: is not one-hot: {SHAPES}")
        values = values.argmax(axis=1)
    if not np.array_equal(values, np.round(values)) or (np.abs(values) > 2**53).any():
        raise InputError(f"{where}: holds numbers that are not whole: {SHAPES}")
    distinct, places, counts = np.unique(values.astype(np.int64), return_inverse=True, return_counts=True)
    classes = plain(item.attrs["classes"]) if "classes" in item.attrs else []
    order = np.argsort(-counts, kind="stable") if len(distinct) > len(COLORS) else np.arange(len(distinct))
    names = [str(classes[label]) if 0 <= label < len(classes) else str(label) for label in distinct[order]]
    return Labels(names, np.argsort(order)[places])


class Predictions(NamedTuple):
    """Predictions for some rows of a data file.

    name, n : of the file, and how many rows it has
    rows : (k,).   truth, mean, y_sd : (k, d), in the data's units.   x : (k,), the input where there is one, else None
    x_names, y_names : names of the inputs and of the outputs
    rmse, nlpd, inside : (d,), the last the share of rows within two standard deviations
    coverage : (L,), the share of rows within the central interval of each of LEVELS, over all outputs
    curve : the function of one input, drawn: x (g,), and mean, f_sd, y_sd (g, d); None where there are more inputs
    components : by name the mean and standard deviation (g, d) of each term of a composed kernel at the curve's x
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
    curve: dict[str, Floats] | None
    components: dict[str, tuple[Floats, Floats]]


def predictions(posterior: Posterior, data: DataSets) -> Predictions:
    """Predict rows of a file, thinned, and compare them with its outputs."""
    assert data.X is not None
    rows = thinned(data.n)
    X, truth = (pick(data.n, rows, partial(read_rows, item)) for item in (data.X, data.Y))
    mean, _, y_sd = predict(posterior, X)
    scaled = (truth - mean) / y_sd
    widths = np.array([NormalDist().inv_cdf(0.5 + 0.5 * level) for level in LEVELS[1:-1]])
    curve, components = None, {}
    if X.shape[1] == 1:
        margin = 0.05 * (X.max() - X.min()) or 1.0
        grid = np.linspace(X.min() - margin, X.max() + margin, GRID)
        curve = dict(zip(("x", "mean", "f_sd", "y_sd"), (grid, *predict(posterior, grid[:, None])), strict=True))
        components = components_of(posterior, grid[:, None])
    return Predictions(
        name=Path(data.Y.file.filename).name, n=data.n, rows=rows, truth=truth, mean=mean, y_sd=y_sd,
        x=None if curve is None else X[:, 0], x_names=names(data, "x"), y_names=names(data, "y"),
        rmse=np.sqrt(((truth - mean) ** 2).mean(axis=0)),
        nlpd=(0.5 * np.log(2 * np.pi) + np.log(y_sd) + 0.5 * scaled**2).mean(axis=0),
        inside=(np.abs(scaled) <= 2).mean(axis=0),
        coverage=np.array([0.0, *(np.abs(scaled).ravel() <= widths[:, None]).mean(axis=1), 1.0]),
        curve=curve, components=components,
    )  # fmt: skip


def components_of(posterior: Posterior, X: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Return by name the mean and standard deviation (n, d) of each term of a composed kernel that has several."""
    if not posterior.backend.composed or " + " not in posterior.kernel:
        return {}
    return {name: (each.mean, np.sqrt(each.variance.reshape(len(X), -1)) + np.zeros_like(each.mean))
            for name, each in posterior.components(X).items()}  # fmt: skip


def predict(posterior: Posterior, X: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean and the standard deviations of f and of y, all (n, d)."""
    mean, *variances = posterior.predict(X)
    f_sd, y_sd = (np.sqrt(v if v.ndim == 2 else v[:, None]) + np.zeros_like(mean) for v in variances)
    return mean, f_sd, y_sd


def names(data: DataSets, which: str) -> list[str]:
    """Return the names of the columns of X ("x") or Y ("y"), or their numbers."""
    item = data.X if which == "x" else data.Y
    assert item is not None
    count, base = item.shape[1], item.name.strip("/")
    return data.columns.get(which) or ([base] if count == 1 else [f"{base} {column}" for column in range(count)])
