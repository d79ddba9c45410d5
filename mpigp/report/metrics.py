"""The shares of a run's time at each iteration, from the file of metrics of a fit."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpigp.errors import InputError
from mpigp.files.model_file import ModelFile
from mpigp.report.fitted import ITERATIONS
from mpigp.report.thinning import Indices, evenly

SHARES = ("compute", "wait", "messages")


class Metrics(NamedTuple):
    """Some iterations (k,), and the shares (k, 3) of the time of rank 0 until then in each of SHARES."""

    iteration: Indices
    shares: NDArray[np.float64]


def read_metrics(path: str, model: ModelFile) -> Metrics:
    """Return the records of a file, refused where their bounds are not those of the model's trace."""
    bounds = model.trace().get("bound", [])
    iterations, shares = [], []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                iteration = int(record["iteration"])
                if iteration > len(bounds):
                    break  # behind the model's checkpoint
                if iteration < 1 or record["bound"] != bounds[iteration - 1]:
                    raise InputError(
                        f"{path}: iteration {iteration}: is not of the run that made {model.name}: give the "
                        "metrics of its run"
                    )
                iterations.append(iteration)
                shares.append([float(record[name]) for name in SHARES])
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}: check the path of `metrics`") from error
    except InputError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: line {len(iterations) + 1}: is no record of the metrics of a fit") from error
    if not iterations:
        raise InputError(f"{path}: holds no iteration of {model.name}: give the `metrics` of its run")
    places = evenly(len(iterations), ITERATIONS)
    return Metrics(np.array(iterations)[places], np.array(shares)[places])
