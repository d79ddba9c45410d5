"""Learn a GPLVM of handwritten digits, and fill in missing pixels of others.

    python -m benchmarks.digits DATA [--ranks R] [--max-iter N] [--missing 0.3 0.5] [-o digits.json]

DATA has the training digits /Y and the test digits /Ytest. Pixels are missing at random. Beside `mpigp reconstruct`
stand the mean of each pixel and probabilistic PCA, with as many latent dimensions as the GPLVM and with those that do
best at filling in training digits that were held out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from benchmarks.support import ppca, study
from benchmarks.support.launch import mpigp
from benchmarks.support.study import Record

SIZES = (5, 10, 20, 40, 80, 160, 250)  # latent dimensions of PCA to choose from
HELD_OUT = 0.1  # of the training digits, to choose them on


class Digits(NamedTuple):
    """Images (n, pixels), to learn from and to test on."""

    Y: np.ndarray
    Y_test: np.ndarray


def main() -> None:
    """Learn, reconstruct, print the table, write the file; exit code 1 if a run failed."""
    study.run(measure, table, _arguments())


def read(data: Path) -> Digits:
    """Return the digits of a file."""
    with h5py.File(data) as file:
        return Digits(file["Y"][()].astype(float), file["Ytest"][()].astype(float))


def measure(folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the figures of the fit and of the reconstructions."""
    digits = read(arguments.data)
    data, model = folder / "data.h5", folder / "model.h5"
    write(data, digits.Y)
    words = ["--model", "gplvm", "--latent", arguments.latent, "--inducing", arguments.inducing]
    words += ["--max-iter", arguments.max_iter, "--standardize", "center", "--seed", arguments.seed, "-o", model]
    fitted = mpigp("fit", data, "--overwrite", *words, timeout=arguments.timeout, ranks=arguments.ranks)
    rng = np.random.default_rng(arguments.seed)
    return {
        "latent": arguments.latent,
        "inducing": arguments.inducing,
        "fit": {key: fitted[key] for key in ("bound", "iterations", "evaluations", "seconds", "stopped", "ranks")},
        "missing": [
            {"share": share, **filled_in(digits, share, rng, folder, arguments)} for share in arguments.missing
        ],
    }


def filled_in(
    digits: Digits, share: float, rng: np.random.Generator, folder: Path, arguments: argparse.Namespace
) -> Record:
    """Return the root mean square errors at a share of the test digits' pixels, ours and others'."""
    hidden = rng.random(digits.Y_test.shape) < share
    given = np.where(hidden, np.nan, digits.Y_test)
    new, output = folder / "new.h5", folder / "full.h5"
    write(new, given)
    ours = mpigp(
        "reconstruct", folder / "model.h5", new, "-o", output, timeout=arguments.timeout, ranks=arguments.ranks
    )
    with h5py.File(output) as file:
        mean = file["mean"][()]

    held = rng.random(len(digits.Y)) < HELD_OUT
    held_given = np.where(rng.random((held.sum(), digits.Y.shape[1])) < share, np.nan, digits.Y[held])
    tried = ppca.choose(digits.Y[~held], held_given, digits.Y[held], SIZES)
    best = min(tried, key=tried.__getitem__)
    found = {
        "column mean": np.broadcast_to(digits.Y.mean(axis=0), given.shape),
        f"PPCA, q = {arguments.latent}": ppca.reconstruct(ppca.learn(digits.Y, arguments.latent), given),
        f"PPCA, q = {best} (the best)": ppca.reconstruct(ppca.learn(digits.Y, best), given),
        f"GPLVM, q = {arguments.latent}": mean,
    }
    return {
        "rmse": {name: ppca.rmse(full, digits.Y_test, hidden) for name, full in found.items()},
        "held_out_rmse": tried,
        "seconds": ours["seconds"],
    }


def write(path: Path, Y: np.ndarray) -> None:
    """Write a data file."""
    with h5py.File(path, "w") as file:
        file["Y"] = Y


def table(results: Record) -> Iterator[str]:
    """Yield the lines of the table."""
    fit, first = results["fit"], results["missing"][0]
    yield (
        f"a GPLVM (q = {results['latent']}, m = {results['inducing']}) of {fit['iterations']} iterations,"
        f" {fit['seconds']:.1f} s on {fit['ranks']} ranks, bound {fit['bound']:.1f}: {fit['stopped']}"
    )
    yield f"{'RMSE at missing pixels':32}" + "".join(f"{case['share']:>10.0%}" for case in results["missing"])
    for place in range(len(first["rmse"])):  # the best q may differ from case to case
        cases = [list(case["rmse"].items())[place] for case in results["missing"]]
        names = list(dict.fromkeys(name for name, _ in cases))
        yield f"    {' / '.join(names):28}" + "".join(f"{value:10.4f}" for _, value in cases)
    yield f"    {'(seconds to reconstruct)':28}" + "".join(f"{case['seconds']:10.2f}" for case in results["missing"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.digits", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("data", type=Path, help="HDF5 file of digits")
    add("--latent", type=int, default=10, help="latent dimensions (default 10)")
    add("--inducing", type=int, default=100, help="inducing points (default 100)")
    add("--max-iter", type=int, default=300, help="iterations at most (default 300)")
    add("--missing", type=float, nargs="+", default=[0.3, 0.5], help="shares of the pixels (default 0.3 0.5)")
    add("--ranks", type=int, default=2, help="MPI ranks (default 2)")
    add("--seed", type=int, default=0, help="of the fit and of what is missing (default 0)")
    add("--timeout", type=float, default=3600.0, help="seconds that one run may take (default 3600)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
