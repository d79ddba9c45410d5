"""What an HDF5 file holds, as plain Python values."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpigp.data.hdf5 import check_sources, check_storage, h5py_errors, plain, reading
from mpigp.files import model_file

BLOCK = 2**20  # numbers in memory at a time


def describe(path: Path, summary: bool = True) -> dict[str, Any]:
    """The kind of a file, its rows, attributes and datasets, and if `summary` is true a summary of their numbers."""
    with reading(path) as file, h5py_errors(str(path)):
        items: list[h5py.Dataset] = []
        file.visititems(lambda _, item: items.append(item) if isinstance(item, h5py.Dataset) else None)
        kind = kind_of(file)
        result: dict[str, Any] = {"file": str(path), "kind": kind, "rows": row_count(file)}
        result |= {"parameters": model_file.summary(file)} if kind == "model" else {}
        datasets = {str(plain(item.name)): dataset_of(item, summary) for item in items}
        return result | {"attributes": plain_attributes(file), "datasets": datasets}


def plain_attributes(item: h5py.HLObject) -> dict[str, Any]:
    """The attributes of a file or dataset."""
    return {name: plain(value) for name, value in item.attrs.items()}


def kind_of(file: h5py.File) -> str:
    """`model`, `gradients`, `result` (of predict, reconstruct or embed), `data`, or `other`."""
    if plain(file.attrs.get("format")) == model_file.FORMAT:
        return "model"
    if "gradient" in file and "bound" in file:
        return "gradients"
    if model_file.MU in file or ("mean" in file and "variance" in file):
        return "result"
    return "data" if "Y" in file or "X" in file else "other"


def row_count(file: h5py.File) -> int | None:
    """Rows of the data that a file holds or was made of, None where it does not tell."""
    if isinstance(n := plain(file.attrs.get("n")), int):
        return n
    for name in ("Y", "X", "mean", model_file.MU):
        if isinstance(file.get(name), h5py.Dataset) and file[name].ndim:
            return len(file[name])
    return None


def dataset_of(dataset: h5py.Dataset, summary: bool) -> dict[str, Any]:
    """Shape, type and attributes of a dataset; its value where it is one, else a summary of its numbers."""
    check_storage(dataset)
    result: dict[str, Any] = {"shape": list(dataset.shape or ()), "dtype": str(dataset.dtype)}
    if dataset.attrs:
        result["attributes"] = plain_attributes(dataset)
    if dataset.shape == ():
        result["value"] = plain(dataset[()])
    elif summary and dataset.size and dataset.dtype.kind in "biuf":
        result |= summarize(dataset)
    return result


def summarize(dataset: h5py.Dataset) -> dict[str, Any]:
    """Minimum, mean and maximum of the finite numbers, None without any; and how many are NaN and how many infinite."""
    check_sources(dataset)
    rows = max(BLOCK // max(dataset.size // len(dataset), 1), 1)
    low, high, total, finite, nan = np.inf, -np.inf, 0.0, 0, 0
    for first in range(0, len(dataset), rows):
        block = dataset[first : first + rows].astype(np.float64)
        good = block[np.isfinite(block)]
        nan += int(np.isnan(block).sum())
        finite += good.size
        total += float(good.sum())
        low, high = float(good.min(initial=low)), float(good.max(initial=high))
    ends = {"min": low, "mean": total / finite, "max": high} if finite else dict.fromkeys(("min", "mean", "max"))
    return {**ends, "nan": nan, "infinite": dataset.size - finite - nan}
