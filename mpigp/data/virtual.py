"""Virtual datasets, whose rows are in other files: HDF5 reads what is missing there as zeros, so it is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import h5py

from mpigp.errors import InputError

REMEDY = "bring the source back, or copy all rows into one file"


def check_sources(item: h5py.Dataset) -> list[str]:
    """Refuse a virtual dataset of which a source is missing, also through others; return the files of its sources."""
    return sorted(set(_checked(item, set())))


def _checked(item: h5py.Dataset, seen: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the source files of a dataset; `seen` are those that need not be looked at again."""
    if not item.is_virtual or (item.file.filename, item.name) in seen:
        return
    seen.add((item.file.filename, item.name))
    where = f"{item.file.filename}: {item.name}: is a virtual dataset"
    for source in item.virtual_sources():
        if "%b" in source.file_name.replace("%%", "") or "%b" in source.dset_name.replace("%%", ""):
            raise InputError(f"{where} of sources that are named by a pattern: copy all rows into one file")
        name, path = source.dset_name.replace("%%", "%"), _found(item, source.file_name.replace("%%", "%"))
        if path is None:
            raise InputError(f"{where}, and its source {source.file_name} does not exist: {REMEDY}")
        here = os.path.samefile(path, item.file.filename)
        yield path
        try:
            file = item.file if here else h5py.File(path, "r")
        except OSError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{where}, and its source {path} cannot be read: {reason}: {REMEDY}") from error
        try:
            inner = file.get(name)
            if not isinstance(inner, h5py.Dataset):
                raise InputError(f"{where}, and its source {path} has no dataset {name}: {REMEDY}")
            if not _covers(inner, source):
                raise InputError(f"{where}, and its source {path}: {name} has shape {inner.shape}, too small: {REMEDY}")
            yield from _checked(inner, seen)
        finally:
            if not here:
                file.close()


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
