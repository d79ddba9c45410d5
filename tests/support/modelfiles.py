"""Model files at given parameters, as a fit of no iterations leaves them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from mpi4py import MPI

from mpigp.fit import checkpoint
from mpigp.fit.loop import Fit, Settings
from mpigp.fit.objective import Objective
from mpigp.fit.setup import PreparedFit
from mpigp.gp.parameters import Standardization
from mpigp.gp.statistics import Model
from mpigp.mpi.evaluator import Evaluator
from mpigp.mpi.rows import Rows
from tests.support.problems import REGRESSION, Problem


def write_model(
    path: Path,
    model: Model,
    problem: Problem,
    jitter: float,
    standardized: dict[str, Standardization] | None = None,
) -> Path:
    """Write the model of a problem's rows at its parameters; its units become others' where `standardised` says so."""
    mu, S, Y, parameters = problem
    S = None if model.name == REGRESSION.name else np.array(S, order="C")
    rows = Rows(MPI.COMM_SELF, len(Y), np.array(mu, order="C"), S, np.array(Y, order="C"))
    evaluator = Evaluator(MPI.COMM_SELF, model, rows, *parameters.Z.shape)
    fit = Fit(Objective(evaluator, jitter), Settings(max_iter=0), parameters)
    checkpoint.save(str(path), MPI.COMM_SELF, PreparedFit(fit, standardized or {}, {}, {"seed": 0}), {})
    return path
