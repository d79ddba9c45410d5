"""Good files of every format that mpigp reads: small, and with all that the formats may hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

ROWS, MODEL = 40, ["--inducing", "4", "--max-iter", "2", "--hold", "1"]
FITS = {
    "regression_model.h5": ["regression.h5", "--model", "regression", *MODEL],
    "matern_model.h5": ["regression.h5", "--model", "regression", "--kernel", "matern52", *MODEL],
    "gplvm_model.h5": ["gplvm.h5", "--model", "gplvm", "--latent", "2", *MODEL],
    "missing_model.h5": ["missing.h5", "--model", "gplvm", "--latent", "2", "--missing", *MODEL],
}


def make(folder: Path, call: Callable[[Path, list[str]], int]) -> None:
    """Write the files; `call` runs a command line of mpigp in a folder."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2))
    Y = np.sin(X @ rng.normal(size=(2, 3))) + 0.1 * rng.normal(size=(ROWS, 3))
    _write_hdf5(folder, X, Y)
    np.save(folder / "table.npy", np.hstack([X, Y]))
    np.savez(folder / "stored.npz", X=X, Y=Y)
    np.savez_compressed(folder / "table.npz", X=X, Y=Y.astype(np.float32), labels=np.arange(ROWS) % 3)
    lines = [",".join(map(str, row)) + f",{'ab'[place % 2]}" for place, row in enumerate(np.hstack([X, Y]).tolist())]
    (folder / "table.csv").write_text("\n".join(["x1,x2,y1,y2,y3,kind", *lines]) + "\n")
    _write_parquet(folder / "table.parquet", X, Y)
    for model, words in FITS.items():
        assert call(folder, ["fit", *words, "-o", model, "--metrics", "metrics.jsonl"]) == 0, model
    assert call(folder, ["predict", "regression_model.h5", "regression.h5", "-o", "result.h5"]) == 0
    assert call(folder, ["evaluate", "gplvm.h5", "--params", "gplvm_model.h5", "-o", "gradients.h5"]) == 0


def _write_hdf5(folder: Path, X: np.ndarray, Y: np.ndarray) -> None:
    """Write data files: contiguous, compressed in chunks, without inputs, and with missing entries."""
    with h5py.File(folder / "regression.h5", "w") as file:
        file["X"], file["Y"] = X, Y
        file["X"].attrs["columns"], file["Y"].attrs["columns"] = ["x1", "x2"], ["y1", "y2", "y3"]
    with h5py.File(folder / "compressed.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(7, 2), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("Y", data=Y.astype(np.float32), maxshape=(None, 3), compression="lzf")
    with h5py.File(folder / "gplvm.h5", "w") as file:
        file["Y"], file["labels"] = Y, np.arange(ROWS) % 3
        file["labels"].attrs["classes"] = ["a", "b", "c"]
    with h5py.File(folder / "missing.h5", "w") as file:
        Y = Y.copy()
        Y[::5, 1], Y[3, 2] = np.nan, np.nan
        file["Y"] = Y


def _write_parquet(path: Path, X: np.ndarray, Y: np.ndarray) -> None:
    import pyarrow
    import pyarrow.parquet

    columns = {f"c{place}": values for place, values in enumerate(np.hstack([X, Y]).T)}
    table = pyarrow.table(columns | {"kind": ["a", "b"] * (ROWS // 2), "count": list(range(ROWS))})
    pyarrow.parquet.write_table(table, path)
