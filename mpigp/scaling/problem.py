"""What a scaling study times: the sizes of an evaluation, and its data and parameters as files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mpigp.data import synth
from mpigp.data.datasets import find
from mpigp.data.hdf5 import read_rows, reading
from mpigp.files.blocks import write_blocks
from mpigp.files.model_file import LATENT, parameters_section
from mpigp.gp.parameters import Globals

NOISE = 0.1
JITTER = 1e-6


@dataclass(frozen=True)
class Problem:
    """One evaluation of a `model` with n rows, m inducing points, q inputs or latent dimensions, and d outputs."""

    model: str
    n: int
    m: int
    q: int
    d: int


def write_data(path: Path, problem: Problem) -> None:
    """Write synthetic rows: X (n, q), and Y (n, d), smooth functions of X with noise."""
    function = synth.random_function(0, problem.q, problem.d)
    make = partial(synth.regression_block, function, 0, noise=NOISE)
    write_blocks(path, problem.n, make, np.dtype(float), {})


def write_parameters(path: Path, data: Path, problem: Problem, names: tuple[str, str] = ("X", "Y")) -> None:
    """Write parameters at which these data can be evaluated, inducing points among the inputs; a GPLVM's latent points
    are random. The seconds of an evaluation hardly depend on their values."""
    rng, latent = synth.generator(0, 2), problem.model == "gplvm"
    with reading(data) as source, h5py.File(path, "w") as file:
        sets = find(source, names[1], None if latent else names[0])
        places = np.sort(rng.choice(problem.n, problem.m, replace=False)).tolist()
        if sets.X is None:
            Z = rng.standard_normal((problem.m, problem.q))
        else:
            Z = np.concatenate([read_rows(sets.X, place, place + 1) for place in places])
        spread = Z.var(axis=0)
        file.attrs.update(model=problem.model, jitter=JITTER)
        alpha = 1.0 / (problem.q * np.where(spread > 0, spread, 1.0))
        for name, value in parameters_section(Globals(Z, 1.0, alpha, NOISE**-2)).items():
            file[name] = value
        if latent:
            mu, S = (file.create_dataset(name, (problem.n, problem.q), float) for name in LATENT)
            for start in range(0, problem.n, synth.BLOCK):
                stop = min(start + synth.BLOCK, problem.n)
                mu[start:stop] = rng.standard_normal((stop - start, problem.q))
                S[start:stop] = 0.1


def find_problem(data: Path, model: str, m: int, q: int, names: tuple[str, str]) -> Problem:
    """Return the problem of evaluating a data file; q is that of its inputs, where it has some that count."""
    with reading(data) as file:
        sets = find(file, names[1], names[0] if model == "regression" else None)
        shape: tuple[Any, ...] = sets.Y.shape
        return Problem(model, shape[0], m, q if sets.X is None else sets.X.shape[1], shape[1])
