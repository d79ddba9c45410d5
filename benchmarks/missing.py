"""Learn a GPLVM of data with missing entries, and fill them in.

    python -m benchmarks.missing DATA [--missing 0.1] [--latent Q] [--inducing M] [--max-iter N] [-o missing.json]

Entries of /Y are missing at random. Beside `mpigp fit --missing` and `reconstruct` stand the mean of each column and
probabilistic PCA, with the latent dimensions that do best at entries held out of those observed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from benchmarks.digits import write
from benchmarks.support import ppca, study
from benchmarks.support.launch import mpigp
from benchmarks.support.study import Record

HELD_OUT = 0.1  # of the observed entries, to choose PCA's dimensions on


def main() -> None:
    """Learn, fill in, print the table, write the file; exit code 1 if a run failed."""
    study.run(measure, table, _arguments())


def measure(folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the figures of the fit, and the root mean square errors, ours and others'."""
    with h5py.File(arguments.data) as file:
        Y = file["Y"][()].astype(float)
    rng = np.random.default_rng(arguments.seed)
    hidden = rng.random(Y.shape) < arguments.missing
    given = np.where(hidden, np.nan, Y)
    tried = ppca.choose(*held_out(given, rng), range(1, Y.shape[1]))
    best = min(tried, key=tried.__getitem__)
    mean, run = ours(given, folder, arguments)
    found = {
        "column mean": np.broadcast_to(np.nanmean(given, axis=0), Y.shape),
        f"PPCA, q = {best} (the best)": ppca.reconstruct(ppca.learn(given, best), given),
        f"GPLVM, q = {arguments.latent}": mean,
    }
    return {
        "missing": int(hidden.sum()),
        "entries": Y.size,
        "run": run,
        "held_out_rmse": tried,
        "rmse": {name: ppca.rmse(full, Y, hidden) for name, full in found.items()},
    }


def table(results: Record) -> Iterator[str]:
    """Yield the lines of the table."""
    run = results["run"]
    yield (
        f"{results['missing']} of {results['entries']} entries missing; {run['iterations']} iterations,"
        f" {run['seconds']:.1f} s on {run['ranks']} ranks, bound {run['bound']:.1f}: {run['stopped']}"
    )
    yield "RMSE at them"
    for name, error in results["rmse"].items():
        yield f"    {name:28}{error:10.5f}"


def held_out(given: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `ppca.choose` takes: rows with more missing, twice, and the rows as they are given."""
    fewer = np.where(rng.random(given.shape) < HELD_OUT, np.nan, given)
    return fewer, fewer, given


def ours(given: np.ndarray, folder: Path, arguments: argparse.Namespace) -> tuple[np.ndarray, Record]:
    """Return the outputs (n, d) that `fit --missing` and `reconstruct` give, and the figures of the fit."""
    data, model, output = (folder / name for name in ("data.h5", "model.h5", "full.h5"))
    write(data, given)
    words = ["--missing", "--model", "gplvm", "--latent", arguments.latent, "--inducing", arguments.inducing]
    words += ["--max-iter", arguments.max_iter, "--standardize", "center", "--seed", arguments.seed, "-o", model]
    run = mpigp("fit", data, "--overwrite", *words, timeout=arguments.timeout, ranks=arguments.ranks)
    mpigp("reconstruct", model, data, "-o", output, timeout=arguments.timeout, ranks=arguments.ranks)
    with h5py.File(output) as file:
        return file["mean"][()], run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.missing", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("data", type=Path, help="HDF5 file with /Y")
    add("--missing", type=float, default=0.1, help="share of the entries (default 0.1)")
    add("--latent", type=int, default=10, help="latent dimensions (default 10)")
    add("--inducing", type=int, default=30, help="inducing points (default 30)")
    add("--max-iter", type=int, default=1000, help="iterations at most (default 1000)")
    add("--ranks", type=int, default=2, help="MPI ranks (default 2)")
    add("--seed", type=int, default=0, help="of the fit and of what is missing (default 0)")
    add("--timeout", type=float, default=1800.0, help="seconds that one run may take (default 1800)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
