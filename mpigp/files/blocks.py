"""A data file written block by block, of which one at a time is in memory."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from mpigp.errors import InputError
from mpigp.files.atomic import replacing


def write_blocks(
    path: Path,
    rows: int,
    make: Callable[[int], dict[str, NDArray]],
    dtype: np.dtype,
    attributes: Mapping[str, Mapping[str, Any]],
) -> dict[str, tuple[int, ...]]:
    """Write the first `rows` rows of the blocks `make(0)`, `make(1)`, ...; return the shapes of the datasets.

    A block has arrays of as many rows by the names of their datasets, which are contiguous: the rows of a rank are one
    stretch of the file. Floating-point numbers are stored as `dtype`. `attributes` are by dataset; "/" is the file.
    """
    block = make(0)
    step = len(next(iter(block.values())))
    dtypes = {name: dtype if array.dtype.kind == "f" else array.dtype for name, array in block.items()}
    needed = rows * sum(array[0].size * dtypes[name].itemsize for name, array in block.items())
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        sizes = f"{rows} rows need {needed / 1e9:.3g} GB and {free / 1e9:.3g} GB are free there"
        raise InputError(f"{path}: {sizes}: choose fewer rows, `dtype` float32 or another disk")
    progress = tqdm(total=rows, unit="row", unit_scale=True, disable=None)
    with replacing(path) as part, h5py.File(part, "w") as file, progress:
        for name, array in block.items():
            file.create_dataset(name, shape=(rows, *array.shape[1:]), dtype=dtypes[name])
        for name, pairs in attributes.items():
            file[name].attrs.update(pairs)
        for number, start in enumerate(range(0, rows, step)):
            block = make(number) if number else block
            stop = min(start + step, rows)
            for name, array in block.items():
                file[name][start:stop] = array[: stop - start]
            progress.update(stop - start)
        return {name: file[name].shape for name in block}
