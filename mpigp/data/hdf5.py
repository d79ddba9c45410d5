"""Checked reading of HDF5 files: an InputError says which dataset is missing, has the wrong shape or holds NaN."""

import math
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import h5py
import numpy as np

from mpigp.data.declared import check_declared
from mpigp.errors import InputError
from mpigp.types import Floats

BLOCK_BYTES = 2**23
DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError,
          SystemError)  # fmt: skip
"""What h5py raises on a damaged file, and what comes of values of other types than they should have."""
SCANNED, HEAP = 2**20, b"GCOL\1\0\0\0"  # bytes, and the signature of a global heap
BOUNDED = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}  # by their ratio
COPY = "copy all rows into one file"
BRING = f"bring the source back, or {COPY}"
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
        properties, stored = item.id.get_create_plist(), item.file.id.get_filesize()
        filters = [properties.get_filter(each)[0] for each in range(properties.get_nfilters())]
        deflated = filters.count(h5py.h5z.FILTER_DEFLATE)
        if not BOUNDED.issuperset(filters):  # others may make anything of a byte, but not more than a chunk
            stored, deflated = item.id.get_num_chunks() * math.prod(item.chunks) * item.dtype.itemsize, 0
        check_declared(where, (item.size or 0) * item.dtype.itemsize, stored, deflated)


def check_sources(item: h5py.Dataset) -> list[str]:
    """Refuse a virtual dataset of which rows or a source are missing, also through others: HDF5 reads zeros there;
    return the files of its sources."""
    return sorted(set(_checked(item, set())))


def _checked(item: h5py.Dataset, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the source files of a dataset; `seen` are those that need not be looked at again."""
    if not item.is_virtual or (item.file.filename, item.name) in seen:
        return
    seen.add((item.file.filename, item.name))
    where, sources = f"{item.file.filename}: {item.name}: is a virtual dataset", item.virtual_sources()
    if any("%b" in name.replace("%%", "") for source in sources for name in (source.file_name, source.dset_name)):
        raise InputError(f"{where} of sources that are named by a pattern: {COPY}")
    if not _complete(item.shape, [source.vspace for source in sources]):
        raise InputError(f"{where}, and some of its rows or columns have no source: give all a source, or {COPY}")
    for source in sources:
        name, path = source.dset_name.replace("%%", "%"), _found(item, source.file_name.replace("%%", "%"))
        if path is None:
            raise InputError(f"{where}, and its source {source.file_name} does not exist: {BRING}")
        yield path
        with ExitStack() as opened:
            try:
                here = os.path.samefile(path, item.file.filename)
                inner = (item.file if here else opened.enter_context(reading(path))).get(name)
                if isinstance(inner, h5py.Dataset):
                    check_storage(inner)
            except InputError as error:
                raise InputError(f"{where}, and its source {error}") from error
            if not isinstance(inner, h5py.Dataset):
                raise InputError(f"{where}, and its source {path} has no dataset {name}: {BRING}")
            if not _covers(inner, source):
                raise InputError(f"{where}, and its source {path}: {name} has shape {inner.shape}, too small: {BRING}")
            yield from _checked(inner, seen)


def _complete(shape: tuple[int, ...], spaces: list[h5py.h5s.SpaceID]) -> bool:
    """Return whether the selections of `spaces` cover all of a shape; those without an end, up to its own."""
    covered = h5py.h5s.create_simple(shape)
    covered.select_none()
    ones = (1,) * len(shape), (1,) * len(shape)
    for space in spaces:
        if space.get_select_type() == h5py.h5s.SEL_ALL:
            return True
        if space.get_select_type() == h5py.h5s.SEL_NONE:
            continue
        if space.is_regular_hyperslab():
            slabs = [space.get_regular_hyperslab()]
        else:
            slabs = [(first, *ones, last - first + 1) for first, last in space.get_select_hyper_blocklist()]
        for slab in slabs:
            start, stride, count, block = (np.array(each, object) for each in slab)
            block, count = np.minimum(block, shape - start), np.minimum(count, -(-(shape - start) // stride))
            covered.select_hyperslab(tuple(start), tuple(count), tuple(stride), tuple(block), h5py.h5s.SELECT_OR)
    covered.select_hyperslab((0,) * len(shape), shape, op=h5py.h5s.SELECT_AND)
    return covered.get_select_npoints() == math.prod(shape)


def _covers(inner: h5py.Dataset, source: Any) -> bool:
    """Return whether a source has all that is taken of it."""
    try:
        if source.src_space.get_select_type() == h5py.h5s.SEL_ALL:
            return inner.size >= source.vspace.get_select_npoints()
        _, last = source.src_space.get_select_bounds()
    except RuntimeError:  # as much is taken as there is
        return True
    return len(last) == inner.ndim and all(end < size for end, size in zip(last, inner.shape, strict=True))


def _found(item: h5py.Dataset, name: str) -> str | None:
    """Return the path of a source file, where HDF5 looks for it; None where there is none."""
    own = item.file.filename
    if name == ".":
        return own
    beside = os.path.dirname(own)
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", beside)
    folders = [prefix, beside, "", os.path.dirname(os.path.realpath(own))]
    paths = [os.path.join(folder, name) for folder in folders]
    if os.path.isabs(name):
        paths += [os.path.join(folder, os.path.basename(name)) for folder in folders]
    return next((path for path in paths if os.path.isfile(path)), None)


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
            row = getattr(item, "row_number", int)(row)  # of a view of some rows, that in the file
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
        return plain(value.decode(errors="replace"))
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode().replace("\0", "\\x00")  # else it cannot be printed
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    return value if isinstance(value, int | float) else str(value)
