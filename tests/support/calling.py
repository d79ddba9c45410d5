"""mpigp called in this process: command lines that end well, and the files they read and write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpigp.cli import execute


def command(*words: object) -> None:
    """Run a command line of mpigp to a good end."""
    assert execute([str(word) for word in words]) == 0


def write(path: Path, **datasets: Any) -> Path:
    """Write a file of these datasets."""
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return path


def read(path: Path) -> dict[str, np.ndarray]:
    """Return the datasets of a file, those within groups too."""
    found: dict[str, np.ndarray] = {}

    def visit(name: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def answer(name: str, model: Path, *options: object, **datasets: Any) -> dict[str, np.ndarray]:
    """Return what a command that takes a model and a file of new rows writes, for a file of these datasets."""
    new = write(model.with_name("new.h5"), **datasets)
    output = model.with_name("answer.h5")
    command(name, model, new, "-o", output, *options)
    return read(output)


def predict(model: Path, *options: object, **datasets: Any) -> dict[str, np.ndarray]:
    """Return what `mpigp predict` writes for a file of these datasets."""
    return answer("predict", model, *options, **datasets)


def widened(variance: np.ndarray, d: int) -> np.ndarray:
    """Return variances of d outputs, shape (n*, d), from those of either shape."""
    return variance if variance.ndim == 2 else np.repeat(variance[:, None], d, axis=1)
