"""Time the embedding of new rows in a GPLVM on one core, against GPy's `infer_newX` from the same parameters.

    python -m benchmarks.embed --python PATH [--rows N] [--peer-rows K] [-o embed.json]

A GPLVM (q = 10, m = 30) is learnt from simulated oil flow, and N further rows are embedded. GPy embeds the first K of
them, all together and one by one; its seconds are taken N / K times. Ours and GPy alternate, and a round makes a ratio
of each way. GPy's own objective judges both embeddings of these rows, and so does the error of the outputs there.
Seconds are those of computing alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from benchmarks.support import problems, study
from benchmarks.support.launch import ROOT, figures, mpigp
from benchmarks.support.problems import Arrays
from benchmarks.support.study import Record, figure, spread

LATENT, INDUCING = 10, 30
FILES = ("data.h5", "model.h5", "new.h5", "latent.h5")
ASKED = 50.0  # times faster than the peer


def main() -> None:
    """Learn, embed, print the table, write the file; exit code 1 if a run failed."""
    arguments = _arguments()
    os.sched_setaffinity(0, {arguments.core})
    study.run(measure, table, arguments)


def measure(folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the figures of ours and of both ways of the peer."""
    data, model, new, _ = (folder / name for name in FILES)
    timeout = arguments.timeout
    mpigp("synth", "oilflow", "--rows", arguments.training, "--seed", 0, "-o", data, timeout=timeout)
    mpigp("synth", "oilflow", "--rows", arguments.rows, "--seed", 1, "-o", new, timeout=timeout)
    words = ("--model", "gplvm", "--latent", LATENT, "--inducing", INDUCING, "--max-iter", arguments.max_iter)
    fitted = mpigp("fit", data, "-o", model, "--overwrite", *words, timeout=timeout)
    rounds = [one_round(folder, arguments) for _ in range(arguments.rounds)]
    ways = {
        way: {
            **rounds[0]["peer"][way],
            "seconds": spread(each["peer"][way]["seconds"] for each in rounds),
            "extrapolated": spread(extrapolated(each, way, arguments) for each in rounds),
            "ratio": spread(extrapolated(each, way, arguments) / each["seconds"] for each in rounds),
        }
        for way in rounds[0]["peer"]
    }
    return {
        "core": arguments.core,
        "rows": arguments.rows,
        "peer_rows": arguments.peer_rows,
        "fit": {key: fitted[key] for key in ("bound", "iterations", "seconds")},
        "seconds": spread(each["seconds"] for each in rounds),
        "peer": ways,
        "rounds": rounds,
    }


def one_round(folder: Path, arguments: argparse.Namespace) -> Record:
    """Return the seconds of ours, and the figures of both ways of the peer."""
    data, model, new, latent = (folder / name for name in FILES)
    ours = mpigp("embed", model, new, "-o", latent, timeout=arguments.timeout)
    with h5py.File(latent) as file:
        mu, S = (file[f"latent/{name}"][: arguments.peer_rows] for name in ("mu", "S"))
    given = {
        **problems.read_parameters(model),
        "Y": standardized(model, data),
        "Y_new": standardized(model, new)[: arguments.peer_rows],
        "other_mu": mu,
        "other_S": S,
    }
    ways = {"together": arguments.peer_rows, "one by one": 1}
    peer = {way: theirs(given, together, folder, arguments) for way, together in ways.items()}
    return {"seconds": ours["seconds"], "peer": peer}


def extrapolated(one: Record, way: str, arguments: argparse.Namespace) -> float:
    """Return the peer's seconds in a round, for as many rows as ours."""
    return one["peer"][way]["seconds"] * arguments.rows / arguments.peer_rows


def standardized(model: Path, data: Path) -> np.ndarray:
    """Return Y of a data file in the units of the model."""
    with h5py.File(model) as file, h5py.File(data) as rows:
        return (rows["Y"][()] - file["standardize/y_mean"][()]) / file["standardize/y_scale"][()]


def theirs(arrays: Arrays, together: int, folder: Path, arguments: argparse.Namespace) -> Record:
    """Return GPy's seconds for its rows, so many together, and the quality of its embedding and of ours."""
    file = problems.write_npz("gplvm", arrays, folder)
    words = [str(file), "--jitter", str(arrays["jitter"]), "--together", str(together)]
    return figures([arguments.python, str(ROOT / "benchmarks" / "peers" / "peer_embed.py"), *words], arguments.timeout)


def table(results: Record) -> Iterator[str]:
    """Yield the lines of the table."""
    fit = results["fit"]
    yield f"a GPLVM of {fit['iterations']} iterations, bound {fit['bound']:.1f}; {results['rows']} rows to embed"
    yield f"    ours                    {range_of(results['seconds'])} s"
    for way, peer in results["peer"].items():
        yield f"    GPy {peer['version']}, {way:12}{range_of(peer['extrapolated'])} s, from {results['peer_rows']} rows"
        yield f"{'':24}{figure(peer['ratio'], ASKED)} times ours"
    yield f"{'of the ' + str(results['peer_rows']) + ' rows':28}{'bound per row':>14}{'RMSE':>10}"
    first = next(iter(results["peer"].values()))
    rows = {"ours": first["other"]} | {f"GPy, {way}": peer["own"] for way, peer in results["peer"].items()}
    for name, quality in rows.items():
        yield f"    {name:24}{quality['bound']:14.4f}{quality['rmse']:10.5f}"


def range_of(values: dict[str, float]) -> str:
    """Return a median with its range."""
    return f"{values['median']:8.4g} ({values['least']:.4g} to {values['greatest']:.4g})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embed", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--python", required=True, help="the Python that has GPy")
    add("--rows", type=int, default=10_000, help="rows to embed (default 10000)")
    add("--peer-rows", type=int, default=50, help="rows that GPy embeds (default 50)")
    add("--training", type=int, default=1000, help="rows to learn from (default 1000)")
    add("--max-iter", type=int, default=300, help="iterations of learning at most (default 300)")
    add("--rounds", type=int, default=3, help="times that everything is embedded (default 3)")
    add("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    add("--timeout", type=float, default=1800.0, help="seconds that one run may take (default 1800)")
    add("-o", "--output", type=Path, help="JSON file to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
