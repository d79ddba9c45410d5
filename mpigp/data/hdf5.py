"""Checked reading of HDF5 files: an InputError says which dataset is missing, has the wrong shape or holds NaN."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from mpigp.data.virtual import check_sources
from mpigp.errors import InputError
from mpigp.types import Floats

BLOCK_BYTES = 2**23
LARGEST = 1e100  # the sum of squares of as many rows as there can be is still a number


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """Open a file to read from."""
    if not os.path.exists(path):
        raise InputError(f"{path}: does not exist: check the path")
    if not os.path.isfile(path):
        raise InputError(f"{path}: is not a file: name an HDF5 file")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: may not be read: check its permissions")
    if not h5py.is_hdf5(path):
        raise InputError(f"{path}: is not an HDF5 file: `mpigp convert` makes one of CSV, NPY, NPZ or Parquet")
    with h5py_errors(str(path)):
        handle = h5py.File(path, "r")
    with handle:
        yield handle


@contextmanager
def h5py_errors(where: str) -> Iterator[None]:
    """Turn the errors that h5py raises on a damaged file into an InputError that names the place."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise InputError(f"{where}: cannot be read: {' '.join(str(error).split())}: is the file whole?") from error


def dataset(file: h5py.File, name: str, ndim: int, remedy: str) -> h5py.Dataset:
    """Return the dataset `name`, which must hold real numbers in `ndim` dimensions."""
    where = f"{file.filename}: /{name.strip('/')}"
    with h5py_errors(where):
        item = file.get(name)
        if isinstance(item, h5py.Dataset):
            item.dtype  # noqa: B018 - h5py decodes it now
    if not isinstance(item, h5py.Dataset):
        raise InputError(f"{where}: there is no such dataset: {remedy}")
    if item.shape is None or item.ndim != ndim:
        shape = "nothing" if item.shape is None else f"{item.ndim} dimensions"
        raise InputError(f"{where}: has {shape}, not {ndim}: {remedy}")
    if item.dtype.kind not in "fiu":
        raise InputError(f"{where}: holds {item.dtype}, not real numbers: store float64 or float32")
    with h5py_errors(where):
        check_sources(item)
    return item


def read_rows(item: h5py.Dataset, start: int, stop: int, missing: bool = False) -> Floats:
    """Return rows [start, stop) as float64, read in blocks; a row with Inf, or with NaN where none may be `missing`, is
    refused by its number."""
    result = np.empty((stop - start, *item.shape[1:]))
    step = max(1, BLOCK_BYTES // max(1, 8 * int(np.prod(item.shape[1:]))))
    for first in range(start, stop, step):
        last = min(stop, first + step)
        block = result[first - start : last - start]
        with h5py_errors(f"{item.file.filename}: {item.name}"):
            block[...] = item[first:last]
        ends = block.min(initial=0.0), block.max(initial=0.0)
        if not missing and ends[0] >= -LARGEST and ends[1] <= LARGEST:  # neither holds where there is NaN
            continue
        finite = (np.abs(block) <= LARGEST) | (missing & np.isnan(block))
        if not finite.all():
            row = first + int(np.flatnonzero(~finite.reshape(last - first, -1).all(axis=1))[0])
            held = f"{'Inf' if missing else 'NaN or Inf'}, or a number beyond {LARGEST:g}"
            where = f"{item.file.filename}: {item.name}: row {row} (counted from 0)"
            raise InputError(f"{where} holds {held}: remove such rows or fill them in")
    return result


def read_all(item: h5py.Dataset) -> Floats:
    """Return a small dataset as float64; NaN and Inf are refused."""
    with h5py_errors(f"{item.file.filename}: {item.name}"):
        values = np.asarray(item[()], np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"{item.file.filename}: {item.name}: holds NaN or Inf: it must be finite")
    return values


def plain(value: Any) -> Any:
    """An HDF5 value as Python's own numbers, text and lists."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value if isinstance(value, int | float | str) else str(value)
