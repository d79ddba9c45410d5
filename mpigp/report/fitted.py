"""What a report tells of a model file: its parameters, its latent space, and how it was learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpigp.data.hdf5 import dataset, h5py_errors, read_all
from mpigp.data.inspect import plain
from mpigp.errors import InputError
from mpigp.files.model_file import read_globals, read_jitter, read_latent, read_model_name, read_standardization
from mpigp.files.provenance import Timing, balance
from mpigp.gp.parameters import Globals
from mpigp.mpi.timers import GROUPS, PHASES
from mpigp.report.thinning import Indices, blocks, evenly, thinned
from mpigp.types import Floats

ITERATIONS = 2000  # that a figure shows at most
SERIES = ("bound", "gradient_norm", "seconds")
REMEDY = "`mpigp fit -o` writes model files"


class Latent(NamedTuple):
    """Some rows of the latent space: their numbers (k,), the means mu (k, q), and the standard deviations sd (k, q)."""

    rows: Indices
    mu: Floats
    sd: Floats


class Iterations(NamedTuple):
    """Some iterations, counted from 1: the bound, the gradient's norm, and the seconds since the start; all (k,)."""

    iteration: Indices
    bound: Floats
    gradient_norm: Floats
    seconds: Floats

    @property
    def frame(self) -> tuple[float, float]:
        """The ends of the bound that a figure shows.

        A start is often so far below that nothing else would be seen: the first twentieth may be left out.
        """
        bound = self.bound[np.isfinite(self.bound)]
        late = bound[len(bound) // 20 :]
        if not len(late):
            return 0.0, 1.0
        shown = late if np.ptp(bound) > 2 * np.ptp(late) else bound
        margin = 0.04 * float(np.ptp(shown)) or 0.1 * abs(float(shown[0])) or 1.0
        return float(shown.min()) - margin, float(shown.max()) + margin


class Fitted(NamedTuple):
    """A model file.

    d, jitter, seed, stopped, timing : None where the file does not tell
    y_scale : (d,), None where outputs were not standardised.   latent : None in regression
    last : `iterations`, and `bound`, `gradient_norm`, `seconds`, `evaluations` at the last; empty where there was none
    made : `command`, and `versions` and `machine` by name, as far as the file has them
    """

    name: str
    model: str
    n: int
    d: int | None
    jitter: float | None
    seed: int | None
    stopped: str | None
    parameters: Globals
    y_scale: Floats | None
    learning: Iterations
    last: dict[str, Any]
    latent: Latent | None
    timing: Timing | None
    made: dict[str, Any]

    @property
    def relevance(self) -> Indices:
        """The dimensions, the most relevant (largest alpha) first."""
        return np.argsort(-self.parameters.alpha, kind="stable")

    @property
    def balance(self) -> float:
        """The mean over the ranks of the seconds spent on rows, as a share of the busiest rank's."""
        assert self.timing is not None
        return balance(self.timing.seconds[:, [PHASES.index(name) for name in GROUPS["compute"]]].sum(axis=1))


def read_fitted(file: h5py.File) -> Fitted:
    """Return what a model file tells, checked."""
    name = file.filename
    if plain(file.attrs.get("format")) != "mpigp-model":
        raise InputError(f"{name}: is not a model file: {REMEDY}")
    model, parameters = read_model_name(file), read_globals(file)
    n, seed, stopped = (plain(file.attrs[key]) if key in file.attrs else None for key in ("n", "seed", "stopped"))
    d = outputs(file)
    if not isinstance(n, int) or n < 1:
        raise InputError(f"{name}: attribute n: is {n!r}: {REMEDY}, with their number of rows")
    y = None if d is None else read_standardization(file, "y", d)
    learning, last = read_learning(file)
    return Fitted(
        name=Path(name).name,
        model=model,
        n=n,
        d=d,
        jitter=read_jitter(file, 0.0) if "jitter" in file.attrs else None,
        seed=seed,
        stopped=stopped,
        parameters=parameters,
        y_scale=None if y is None else y.scale,
        learning=learning,
        last=last,
        latent=read_some_latent(file, n, parameters.Z.shape[1]) if model == "gplvm" else None,
        timing=read_timing(file),
        made=read_made(file),
    )


def outputs(file: h5py.File) -> int | None:
    """Return the number of outputs, as far as a model file tells it."""
    if "posterior/g" in file:
        return int(dataset(file, "posterior/g", 2, REMEDY).shape[1])
    if "standardize/y_mean" in file:
        return len(dataset(file, "standardize/y_mean", 1, REMEDY))
    return None


def read_some_latent(file: h5py.File, n: int, q: int) -> Latent:
    """Return rows of the latent space, thinned."""
    rows = thinned(n)
    mu, S = np.empty((len(rows), q)), np.empty((len(rows), q))
    filled = 0
    for start, stop, places in blocks(n, rows):
        block = read_latent(file, n, q, start, stop)
        for part, values in zip((mu, S), block, strict=True):
            part[filled : filled + len(places)] = values[places]
        filled += len(places)
    return Latent(rows, mu, np.sqrt(S))


def read_learning(file: h5py.File) -> tuple[Iterations, dict[str, Any]]:
    """Return the trace, thinned, and what its last entry says; nothing of either in a file without."""
    series = {}
    for name in SERIES:
        if f"trace/{name}" in file:
            with h5py_errors(f"{file.filename}: /trace/{name}"):
                series[name] = np.asarray(dataset(file, f"trace/{name}", 1, REMEDY)[()], float)
    lengths = {len(values) for values in series.values()}
    if len(lengths) > 1 or len(series) not in (0, len(SERIES)):
        raise InputError(f"{file.filename}: /trace: its parts are not of one length: {REMEDY}")
    count = lengths.pop() if lengths else 0
    if not count:
        return Iterations(np.arange(0), *[np.empty(0)] * 3), {}
    places = evenly(count, ITERATIONS)
    last: dict[str, Any] = {"iterations": count}
    last |= {name: float(values[-1]) for name, values in series.items()}
    if "trace/evaluations" in file and len(file["trace/evaluations"]):
        last["evaluations"] = int(file["trace/evaluations"][-1])
    return Iterations(places + 1, *(series[name][places] for name in SERIES)), last


def read_timing(file: h5py.File) -> Timing | None:
    """Return the seconds and rows of the ranks; None in a file without."""
    if "timing/phases" not in file:
        return None
    seconds = read_all(dataset(file, "timing/phases", 2, REMEDY))
    rows = read_all(dataset(file, "timing/rows", 1, REMEDY)).astype(np.int64)
    names = plain(file["timing/phases"].attrs.get("names"))
    if names != list(PHASES) or seconds.shape != (len(rows), len(PHASES)) or not len(rows):
        raise InputError(f"{file.filename}: /timing: must be of ranks × {', '.join(PHASES)}: {REMEDY}")
    return Timing(seconds, rows)


def read_made(file: h5py.File) -> dict[str, Any]:
    """Return the command, the versions and the machine that made a file, as far as it has them."""
    found = {key: plain(file.attrs[key]) for key in ("command", "versions", "machine") if key in file.attrs}
    for key in found.keys() - {"command"}:
        try:
            found[key] = dict(json.loads(found[key]))
        except (TypeError, ValueError) as error:
            raise InputError(f"{file.filename}: attribute {key}: is not a JSON object: {REMEDY}") from error
    return found
