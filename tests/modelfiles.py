"""Model files at given parameters, as a fit of no iterations leaves them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mpi4py import MPI
from problems import REGRESSION, Problem

from mpigp import checkpoint
from mpigp.fitting import Fit, Settings
from mpigp.modelfile import Standardisation
from mpigp.models import Model
from mpigp.objective import Objective
from mpigp.rounds import Evaluator
from mpigp.rows import Rows


def write_model(
    path: Path,
    model: Model,
    problem: Problem,
    jitter: float,
    standardised: dict[str, Standardisation] | None = None,
) -> Path:
    """Write the model of a problem's rows at its parameters; its units become others' where `standardised` says so."""
    mu, S, Y, parameters = problem
    S = None if model.name == REGRESSION.name else np.array(S, order="C")
    rows = Rows(MPI.COMM_SELF, len(Y), np.array(mu, order="C"), S, np.array(Y, order="C"))
    evaluator = Evaluator(MPI.COMM_SELF, model, rows, *parameters.Z.shape)
    fit = Fit(Objective(evaluator, jitter), Settings(max_iter=0), parameters)
    checkpoint.save(str(path), MPI.COMM_SELF, fit, {"seed": 0}, standardised or {}, {})
    return path
