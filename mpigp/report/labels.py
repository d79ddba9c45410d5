"""Labels of rows, which color the latent space."""

from __future__ import annotations

from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from mpigp.data.hdf5 import h5py_errors, plain
from mpigp.errors import InputError
from mpigp.report.figures import COLORS
from mpigp.report.thinning import Indices, pick

SHAPES = "labels are whole numbers (n,), or one-hot (n, k)"


class Labels(NamedTuple):
    """names : of the labels, in their order; where there are more than colors, the most frequent first.

    values : (k,), the place in `names` of each row's label
    """

    names: list[str]
    values: NDArray[np.int64]


def find_labels(file: h5py.File, name: str | None, n: int) -> h5py.Dataset | None:
    """Return the dataset of labels: the one that is named, else `labels` where there is such a one."""
    if name is None and "labels" not in file:
        return None
    name = name or "labels"
    item, where = file.get(name), f"{file.filename}: /{name.strip('/')}"
    if not isinstance(item, h5py.Dataset):
        raise InputError(f"{where}: there is no such dataset: `labels` names that of the labels")
    if item.ndim not in (1, 2) or item.dtype.kind not in "biuf":
        raise InputError(f"{where}: has shape {item.shape} and holds {item.dtype}: {SHAPES}")
    if len(item) != n:
        raise InputError(f"{where}: has {len(item)} labels, the model {n} rows: give the data it was learned from")
    return item


def read_labels(item: h5py.Dataset, rows: Indices) -> Labels:
    """Return the labels of some rows, by the names in the dataset's attribute `classes` where it has one."""
    where = f"{item.file.filename}: {item.name}"
    with h5py_errors(where):
        values = pick(len(item), rows, lambda start, stop: item[start:stop])
    if values.ndim == 2:
        if not (((values == 0) | (values == 1)).all() and (values.sum(axis=1) == 1).all()):
            raise InputError(f"{where}: is not one-hot: {SHAPES}")
        values = values.argmax(axis=1)
    if not np.array_equal(values, np.round(values)):
        raise InputError(f"{where}: holds numbers that are not whole: {SHAPES}")
    distinct, places, counts = np.unique(values.astype(np.int64), return_inverse=True, return_counts=True)
    classes = plain(item.attrs["classes"]) if "classes" in item.attrs else []
    order = np.argsort(-counts, kind="stable") if len(distinct) > len(COLORS) else np.arange(len(distinct))
    names = [str(classes[label]) if 0 <= label < len(classes) else str(label) for label in distinct[order]]
    return Labels(names, np.argsort(order)[places])
