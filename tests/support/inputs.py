"""Small data and parameter files, as a user of either model would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

MODELS = ("regression", "gplvm")


class Inputs(NamedTuple):
    """The two files that `evaluate` reads."""

    data: Path
    params: Path

    @property
    def arguments(self) -> list[object]:
        """The arguments of `mpigp evaluate`."""
        return [self.data, "--params", self.params]


def write_inputs(folder: Path, model: str, n: int, m: int, q: int, d: int, **layout: Any) -> Inputs:
    """Write a data file of n rows and parameters that fit it; `layout` goes to the datasets (dtype, chunks, ...).

    The first inputs or latent means lie near the inducing points and the last far away, so all sums have many sizes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    inputs = Inputs(folder / "data.h5", folder / "params.h5")
    rng = np.random.default_rng([n, m, q, d])
    X = rng.normal(size=(n, q)) * np.linspace(0.5, 2.0, n)[:, None]
    Y = np.sin(X @ rng.normal(size=(q, d))) + 0.1 * rng.normal(size=(n, d))
    with h5py.File(inputs.data, "w") as file:
        file.create_dataset("Y", data=Y, **layout)
        if model == "regression":
            file.create_dataset("X", data=X, **layout)
    with h5py.File(inputs.params, "w") as file:
        file.attrs["model"] = model
        file["Z"] = rng.normal(size=(m, q))
        file["beta"] = 25.0
        file["kernel/variance"] = 1.3
        file["kernel/alpha"] = rng.uniform(0.3, 2.0, size=q)
        if model == "gplvm":
            file["latent/mu"] = X + 0.1 * rng.normal(size=(n, q))
            file["latent/S"] = rng.uniform(0.01, 0.5, size=(n, q))
    return inputs


def replace(path: Path, name: str, values: Any, **layout: Any) -> None:
    """Put other values in the place of a dataset; None takes the dataset away."""
    with h5py.File(path, "r+") as file:
        if name in file:
            del file[name]
        if values is not None:
            file.create_dataset(name, data=values, **layout)


def change(path: Path, name: str, place: Any, value: float) -> None:
    """Overwrite some numbers of a dataset."""
    with h5py.File(path, "r+") as file:
        file[name][place] = value


def middle_of_chunk(path: Path, name: str, number: int) -> int:
    """Return where, in the file, half of a chunk's data are behind."""
    with h5py.File(path) as file:
        chunk = file[name].id.get_chunk_info(number)
        return chunk.byte_offset + chunk.size // 2


def damage(path: Path, place: int) -> None:
    """Turn a byte of the file round."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0xFF]))
