"""Checked reading of HDF5 files: an InputError says which dataset is missing, has the wrong shape or holds NaN."""

import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np

from mpigp.data.declared import check_declared
from mpigp.data.virtual import check_sources
from mpigp.errors import InputError
from mpigp.types import Floats

BLOCK_BYTES = 2**23
DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError,
          SystemError)  # fmt: skip
"""What h5py raises on a damaged file, and what comes of values of other types than they should have."""
SCANNED, HEAP = 2**20, b"GCOL\1\0\0\0"  # bytes, and the signature of a global heap
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
        check_heaps(path)
        handle = h5py.File(path, "r")
    with handle:
        refuse_other_files(handle)
        yield handle


def check_heaps(path: str | os.PathLike[str]) -> None:
    """Refuse a file in which HDF5 would read text for ever: it takes an entry of zeros in a heap for free space of no
    length. Heaps are looked for at the beginning and the end of a large file."""
    with open(path, "rb") as file:
        for start in {0, max(0, os.fstat(file.fileno()).st_size - SCANNED)}:
            file.seek(start)
            content = file.read(SCANNED)
            heap = content.find(HEAP)
            while heap >= 0:
                end = min(heap + int.from_bytes(content[heap + 8 : heap + 16], "little"), len(content))
                entry, length = heap + 16, 16
                while entry + 16 <= end and length:
                    used, size = struct.unpack_from("<H6xQ", content, entry)
                    length = 16 + size + -size % 8 if used else size
                    entry += length
                if not length:
                    raise InputError(f"{path}: is damaged: HDF5 would not come to an end at byte {start + entry}")
                heap = content.find(HEAP, entry)


def refuse_other_files(file: h5py.File) -> None:
    """Refuse a file that has links to other files, which HDF5 would open, whatever they are."""

    def other(name: bytes, link: Any) -> bytes | None:
        return None if link.type in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT) else name

    with h5py_errors(file.filename):
        found = file.id.links.visit(other, info=True)
    if found is not None:
        where = f"{file.filename}: /{plain(found)}"
        raise InputError(f"{where}: is a link to another file: copy the dataset here, or name the other file")


@contextmanager
def h5py_errors(where: str) -> Iterator[None]:
    """Turn the errors that h5py raises on a damaged file into an InputError that names the place."""
    try:
        yield
    except InputError:
        raise
    except DAMAGE as error:
        reason = plain(" ".join(str(error).split())) or type(error).__name__
        raise InputError(f"{where}: cannot be read: {reason}: is the file whole?") from error


def dataset(file: h5py.File, name: str, ndim: int, remedy: str) -> h5py.Dataset:
    """Return the dataset `name`, which must hold real numbers in `ndim` dimensions."""
    where = f"{file.filename}: /{name.strip('/')}"
    with h5py_errors(where):
        item = file.get(name)
        if isinstance(item, h5py.Dataset):
            check_storage(item)
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


def check_storage(item: h5py.Dataset) -> None:
    """Refuse a dataset that lies in other files, or whose declared size its file cannot hold."""
    where = f"{item.file.filename}: {plain(item.name)}"
    if item.external:
        raise InputError(f"{where}: its numbers lie in another file: copy the dataset, for example with h5repack")
    if not item.is_virtual:
        filtered = item.id.get_create_plist().get_nfilters() > 0
        check_declared(where, (item.size or 0) * item.dtype.itemsize, item.file.id.get_filesize(), filtered)


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
    return require_finite(f"{item.file.filename}: {item.name}", values)


def require_finite(where: str, values: Floats) -> Floats:
    """Return the values of a place in a file; NaN and Inf are refused."""
    if not np.isfinite(values).all():
        raise InputError(f"{where}: holds NaN or Inf: it must be finite")
    return values


def plain(value: Any) -> Any:
    """An HDF5 value as Python's own numbers, text and lists."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # some text cannot be printed
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value if isinstance(value, int | float) else str(value)
