"""A GPLVM of data with missing entries: as exact as without, and the same where nothing is missing."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.calling import answer, command, read, write
from tests.support.inputs import write_inputs

N, M, Q, D = 150, 8, 2, 5
LEARN = ["--model", "gplvm", "--latent", Q, "--inducing", M, "--hold", 5]


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    """Outputs (n, d) of a smooth function with a little noise."""
    return read(write_inputs(tmp_path_factory.mktemp("inputs"), "gplvm", N, M, Q, D).data)["Y"]


@pytest.fixture(scope="module")
def masked(complete: np.ndarray) -> np.ndarray:
    """The same with one entry in five missing, and all of one row; one column is complete."""
    hidden = np.random.default_rng(31).random(complete.shape) < 0.2
    hidden[:, 2] = False
    hidden[17] = True
    return np.where(hidden, np.nan, complete)


def fitted(folder: Path, Y: np.ndarray, *options: object) -> Path:
    """Return the model of these outputs."""
    folder.mkdir(parents=True, exist_ok=True)
    command("fit", write(folder / "data.h5", Y=Y), "-o", folder / "model.h5", *LEARN, *options)
    return folder / "model.h5"


@pytest.mark.parametrize("standardize", ["scale", "none"])
def test_where_nothing_is_missing_the_option_changes_no_bit(
    standardize: str, complete: np.ndarray, tmp_path: Path
) -> None:
    settings = ["--max-iter", 20, "--standardize", standardize]
    plain = read(fitted(tmp_path / "plain", complete, *settings))
    option = read(fitted(tmp_path / "option", complete, *settings, "--missing"))
    same = {name for name in plain if not name.startswith(("trace/seconds", "timing/", "checkpoint/options"))}
    assert same <= option.keys()
    assert [name for name in same if plain[name].tobytes() != option[name].tobytes()] == []


def divergence(mu: np.ndarray, S: np.ndarray) -> float:
    """Return KL(q‖p) of rows of q(x)."""
    return float(0.5 * (S + mu**2 - 1 - np.log(S)).sum())


def with_attributes(params: Path, model: Path) -> None:
    """Give a file of parameters the model and jitter of a model file."""
    with h5py.File(model) as file, h5py.File(params, "r+") as other:
        for name in ("model", "jitter"):
            other.attrs[name] = file.attrs[name]


@pytest.mark.parametrize("optimizer", ["lbfgs", "scg", "gd"])
def test_the_bound_is_the_sum_of_what_each_output_has(optimizer: str, masked: np.ndarray, tmp_path: Path) -> None:
    """F + KL of all rows is, output by output, that of a GPLVM of the rows it is seen in: `evaluate` at the same
    parameters gives it. To 1e-9 relative: sums in another order, and one factorisation of I + βC for each output."""
    options = ["--max-iter", 10, "--standardize", "none", "--optimizer", optimizer]
    model = read(fitted(tmp_path, masked, *options, "--missing"))
    mu, S = model["latent/mu"], model["latent/S"]
    total = -divergence(mu, S)
    for column in masked.T:
        seen = ~np.isnan(column)
        data = write(tmp_path / "column.h5", Y=column[seen, None])
        names = ("Z", "beta", "kernel/variance", "kernel/alpha")
        part = {name: model[name] for name in names} | {"latent/mu": mu[seen], "latent/S": S[seen]}
        params = write(tmp_path / "params.h5", **part)
        with_attributes(params, tmp_path / "model.h5")
        command("evaluate", data, "--params", params, "-o", tmp_path / "gradient.h5")
        total += float(read(tmp_path / "gradient.h5")["bound"]) + divergence(mu[seen], S[seen])
    assert model["trace/bound"][-1] == pytest.approx(total, rel=1e-9)


def test_columns_are_standardised_by_what_is_seen(masked: np.ndarray, tmp_path: Path) -> None:
    """To rounding."""
    model = read(fitted(tmp_path, masked, "--max-iter", 0, "--missing"))
    assert np.allclose(model["standardize/y_mean"], np.nanmean(masked, axis=0), rtol=1e-12)
    assert np.allclose(model["standardize/y_scale"], np.nanstd(masked, axis=0), rtol=1e-12)


def test_missing_entries_are_learnt_from_the_others(complete: np.ndarray, masked: np.ndarray, tmp_path: Path) -> None:
    """Clearly better than by the columns' means, and q(x) of the row that was never seen ends as the prior: only KL
    pulls at it, with a curvature of 1 that the optimiser meets long before the others' are met."""
    path = fitted(tmp_path, masked, "--missing", "--max-iter", 200)
    model = read(path)
    assert np.abs(model["latent/mu"][17]).max() < 0.01
    assert np.abs(model["latent/S"][17] - 1).max() < 0.01
    found = answer("reconstruct", path, Y=masked)["mean"]
    missing = np.isnan(masked)
    missing[17] = False
    errors = [np.sqrt(np.mean((each - complete)[missing] ** 2)) for each in (found, np.nanmean(masked, axis=0))]
    assert errors[0] < 2 / 3 * errors[1]
