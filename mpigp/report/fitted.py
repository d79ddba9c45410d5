"""The contents of a model file that a report shows: parameters, latent space, and the course of the fit."""

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpigp.errors import InputError
from mpigp.files.model_file import FORMAT, ModelFile
from mpigp.files.provenance import Timing, balance
from mpigp.gp.parameters import Globals
from mpigp.kernels.composition import named_values
from mpigp.kernels.registry import backend_of, is_external
from mpigp.mpi.timers import GROUPS, PHASES
from mpigp.report.figures import Indices, evenly, pick, thinned
from mpigp.types import Floats

ITERATIONS = 2000  # that a figure shows at most
SHARES = ("compute", "wait", "messages")
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
        """The ends of the bound that a figure shows; a start so far below that it hides all else may be left out."""
        bound = self.bound[np.isfinite(self.bound)]
        late = bound[len(bound) // 20 :]
        if not len(late):
            return 0.0, 1.0
        shown = late if np.ptp(bound) > 2 * np.ptp(late) else bound
        margin = 0.04 * float(np.ptp(shown)) or 0.1 * abs(float(shown[0])) or 1.0
        return float(shown.min()) - margin, float(shown.max()) + margin


class ValidationScores(NamedTuple):
    """Some iterations, counted from 1, at which rows that the fit did not learn from were predicted: the root mean
    square error, and the mean negative log density of a row; all (k,)."""

    iteration: Indices
    rmse: Floats
    nlpd: Floats


class Fitted(NamedTuple):
    """A model file.

    d, jitter, seed, stopped, upper_bound, timing : None where the file does not tell
    unmoved : inputs whose ARD weights are where they began
    y_scale : (d,), None where outputs were not standardized.   latent : None in regression
    validation : None where no iteration was scored
    last : `iterations`, and `bound`, `gradient_norm`, `seconds`, `evaluations` at the last; empty where there was none
    columns : by "x" and "y", the names of the columns, where they have some
    kernel, kernel_parameters : its name, and where it is composed its parameters by name
    weights : (q,), the ARD weight of each input: of a composed kernel, the sum of those of its parts that depend on
        distances, or of all where there are none
    made : `command`, and `versions` and `machine` by name, as far as the file has them
    """

    name: str
    model: str
    bound: str
    n: int
    d: int | None
    jitter: float | None
    seed: int | None
    stopped: str | None
    upper_bound: float | None
    unmoved: list[int]
    parameters: Globals
    y_scale: Floats | None
    learning: Iterations
    validation: ValidationScores | None
    last: dict[str, Any]
    latent: Latent | None
    timing: Timing | None
    made: dict[str, Any]
    columns: dict[str, list[str]]
    kernel: str
    kernel_parameters: dict[str, float]
    weights: Floats

    @property
    def balance(self) -> float:
        """The mean over the ranks of the seconds spent on rows, as a share of the busiest rank's."""
        assert self.timing is not None
        return balance(self.timing.seconds[:, [PHASES.index(name) for name in GROUPS["compute"]]].sum(axis=1))


def read_fitted(model: ModelFile) -> Fitted:
    """Return the contents of a model file, checked; some of the rows of its latent space, and of its iterations."""
    if model.attribute("format") != FORMAT:
        raise InputError(f"{model.name}: is not a model file: {REMEDY}")
    kind, parameters, d, n = model.kind, model.parameters(), model.outputs(), model.rows()
    model.sizes["n"] = n
    y = None if d is None else model.standardization("y")
    trace, stopped = model.trace(), model.attribute("stopped")
    upper, unmoved = model.attribute("upper_bound"), model.attribute("unmoved", [])
    count = len(trace.get("bound", []))
    places = evenly(count, ITERATIONS)
    series = (np.array(trace.get(name, []), float)[places] for name in Iterations._fields[1:])
    unscored = {name: values for name, values in trace.items() if not name.startswith("validation")}
    last = {"iterations": count} | {name: values[-1] for name, values in unscored.items()} if count else {}
    latent = None
    if kind == "gplvm":
        model.latent(0, 0)  # there are n rows
        rows = thinned(n)
        mu, S = np.hsplit(pick(n, rows, lambda start, stop: np.hstack(model.latent(start, stop))), 2)
        latent = Latent(rows, mu, np.sqrt(S))
    return Fitted(
        name=Path(model.name).name, model=kind, bound=model.bound, n=n, d=d,
        jitter=None if model.attribute("jitter") is None else model.jitter(0.0),
        seed=model.attribute("seed"), stopped=None if stopped is None else str(stopped),
        upper_bound=upper if isinstance(upper, float) and math.isfinite(upper) else None,
        unmoved=[q for q in range(parameters.Z.shape[1]) if isinstance(unmoved, list) and q in unmoved],
        parameters=parameters, y_scale=None if y is None else y.scale, learning=Iterations(places + 1, *series),
        validation=read_validation(trace), last=last,
        latent=latent, timing=model.timing(), made=model.provenance(), columns=model.columns(),
        **read_kernel(model, parameters),
    )  # fmt: skip


def read_kernel(model: ModelFile, parameters: Globals) -> dict[str, Any]:
    """Return the kernel's name, its parameters by name, and the weight of each input."""
    name, q = model.kernel_name(), parameters.Z.shape[1]
    named = [] if is_external(name) else backend_of(name).named_parameters(q)
    weights = parameters.alpha if not named else np.zeros(q)
    relevant = [(each, value) for each, value in zip(named, parameters.alpha, strict=False) if each.name == "alpha"]
    distances = [pair for pair in relevant if pair[0].kind not in ("linear", "periodic")]
    for each, value in distances or relevant:
        weights[each.column] += value
    values = named_values(named, parameters.alpha, model.columns().get("x"))
    return {"kernel": name, "kernel_parameters": values, "weights": weights}


def read_validation(trace: dict[str, Any]) -> ValidationScores | None:
    """Return the scores of a trace; of many, some."""
    rmse, nlpd = (np.array(trace.get(f"validation_{name}", []), float) for name in ("rmse", "nlpd"))
    scored = np.flatnonzero(np.isfinite(rmse) & np.isfinite(nlpd))
    shown = scored[evenly(len(scored), ITERATIONS)]
    return ValidationScores(shown + 1, rmse[shown], nlpd[shown]) if len(shown) else None


def read_metrics(path: str, model: ModelFile) -> dict[str, Any]:
    """Return some records of a fit's file of metrics, refused where its bounds are not those of the model's trace:
    `iteration` (k,), and `shares` (3, k) of the time of rank 0 until then in each of SHARES, their `names`."""
    bounds = model.trace().get("bound", [])
    iterations, shares = [], []
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path}: is not a file: check the path of `metrics`")
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                iteration = int(record["iteration"])
                if iteration > len(bounds):
                    break  # behind the model's checkpoint
                if iteration < 1 or record["bound"] != bounds[iteration - 1]:
                    other = f"is not of the run that made {model.name}: give the metrics of its run"
                    raise InputError(f"{path}: iteration {iteration}: {other}")
                iterations.append(iteration)
                shares.append([float(record[name]) for name in SHARES])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}: check the path of `metrics`") from error
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: line {len(iterations) + 1}: is no record of the metrics of a fit") from error
    if not iterations:
        raise InputError(f"{path}: holds no iteration of {model.name}: give the `metrics` of its run")
    places = evenly(len(iterations), ITERATIONS)
    return {"names": SHARES, "iteration": np.array(iterations)[places], "shares": np.array(shares)[places].T}
