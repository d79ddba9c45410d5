"""Parameters in an HDF5 file: /Z, /beta, /kernel/variance, /kernel/alpha, and /latent/mu, /latent/S of a GPLVM."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import h5py
import numpy as np

from mpigp.data.hdf5 import dataset, read_all, read_rows
from mpigp.data.streams import Columns
from mpigp.errors import InputError
from mpigp.gp.parameters import Globals
from mpigp.gp.statistics import MODELS, Model, model_of
from mpigp.kernels.registry import DEFAULT
from mpigp.types import Floats

Held = TypeVar("Held", Floats, Columns)

VERSION = 1  # of the model files that are written, and the newest that is read
REMEDY = (
    "a parameter file has /Z (m, q), /beta, /kernel/variance, /kernel/alpha (q,), and for a GPLVM "
    "/latent/mu and /latent/S (n, q)"
)


class Standardization(NamedTuple):
    """What takes columns from the data's units to the model's: (value − mean) / scale."""

    mean: Floats
    scale: Floats

    def apply(self, values: Held) -> Held:
        """Standardise rows (., columns) in place."""
        rows: Any = values
        rows -= self.mean
        rows /= self.scale
        return values


def check_version(file: h5py.File) -> None:
    """Refuse a file of a later version of this program."""
    version = file.attrs.get("version", VERSION)
    if np.ndim(version) or not isinstance(version, (int, np.integer)) or version > VERSION:
        raise InputError(
            f"{file.filename}: attribute version: is {version!s}: this mpigp reads files up to version {VERSION}: "
            "install a newer mpigp"
        )


def read_model_name(file: h5py.File) -> str:
    """Return the name of the model, as the file's attribute has it."""
    check_version(file)
    name = _text(file, "model", "")
    if name not in MODELS:
        raise InputError(f"{file.filename}: attribute model: is {name!r}: set it to one of {', '.join(MODELS)}")
    return name


def read_model(file: h5py.File) -> Model:
    """Return the model that the file's attributes name, with its kernel."""
    name = read_model_name(file)
    try:
        return model_of(name, _text(file, "kernel", DEFAULT))
    except InputError as error:
        raise InputError(f"{file.filename}: attribute kernel: {error}") from error


def _text(file: h5py.File, name: str, default: str) -> str:
    """Return an attribute that is text."""
    value = file.attrs.get(name, default)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def read_jitter(file: h5py.File, default: float) -> float:
    """Return the jitter that the file's attribute holds, or the default."""
    value = file.attrs.get("jitter", default)
    if np.ndim(value) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise InputError(f"{file.filename}: attribute jitter: is {value!r}: make it one number ≥ 0")
    return float(value)


def read_globals(file: h5py.File) -> Globals:
    """Return the global parameters, checked."""
    Z = read_all(dataset(file, "Z", 2, REMEDY))
    if Z.shape[0] == 0 or Z.shape[1] == 0:
        raise InputError(
            f"{file.filename}: /Z: has shape {Z.shape}: there must be at least one inducing point and one dimension"
        )
    alpha = read_all(dataset(file, "kernel/alpha", 1, REMEDY))
    if alpha.shape != (Z.shape[1],):
        raise InputError(
            f"{file.filename}: /kernel/alpha: has {len(alpha)} entries, /Z {Z.shape[1]} columns: they must agree"
        )
    if (alpha < 0).any():
        raise InputError(f"{file.filename}: /kernel/alpha: entry {int(np.argmax(alpha < 0))} is negative: make it ≥ 0")
    positive = {}
    for name in ("kernel/variance", "beta"):
        positive[name] = float(read_all(dataset(file, name, 0, REMEDY)))
        if not positive[name] > 0:
            raise InputError(f"{file.filename}: /{name}: is {positive[name]:g}: make it > 0")
    return Globals(Z, positive["kernel/variance"], alpha, positive["beta"])


def read_latent(file: h5py.File, n: int, q: int, start: int, stop: int) -> tuple[Floats, Floats]:
    """Return rows [start, stop) of mu and S, of n rows and q columns."""
    check_version(file)
    found = {}
    for name in ("latent/mu", "latent/S"):
        item = dataset(file, name, 2, REMEDY)
        if item.shape != (n, q):
            raise InputError(
                f"{file.filename}: /{name}: has shape {item.shape}: with these data and /Z it must be {(n, q)}"
            )
        found[name] = read_rows(item, start, stop)
    S = found["latent/S"]
    if not (S > 0).all():
        row = start + int(np.flatnonzero((S <= 0).any(axis=1))[0])
        raise InputError(f"{file.filename}: /latent/S: row {row} (counted from 0) holds a value ≤ 0: variances are > 0")
    return found["latent/mu"], S


def read_standardization(file: h5py.File, column: str, width: int) -> Standardization | None:
    """Return how the columns `x` or `y` were standardised; None where they were not."""
    if not any(f"standardize/{column}_{part}" in file for part in ("mean", "scale")):
        return None
    parts = {}
    for part in ("mean", "scale"):
        name = f"standardize/{column}_{part}"
        parts[part] = read_all(dataset(file, name, 1, "write both mean and scale, or neither"))
        if parts[part].shape != (width,):
            raise InputError(f"{file.filename}: /{name}: has {len(parts[part])} entries: the data have {width} columns")
    if not (parts["scale"] > 0).all():
        raise InputError(f"{file.filename}: /standardize/{column}_scale: holds a value ≤ 0: scales are > 0")
    return Standardization(parts["mean"], parts["scale"])
