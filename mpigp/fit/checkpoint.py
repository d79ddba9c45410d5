"""A fit on disk: the model so far, and all that an exact continuation needs, on any number of ranks.

One file is both. It is written by rank 0, beside its place, and renamed; the other ranks send their rows.
"""

from __future__ import annotations

import json
from typing import Any

import h5py
import numpy as np

from mpigp import __version__
from mpigp.chunks import Share
from mpigp.data.hdf5 import h5py_errors
from mpigp.errors import InputError
from mpigp.files.atomic import check_room, replacing
from mpigp.files.model_file import VERSION, Standardization, check_version
from mpigp.files.provenance import Timing, timing
from mpigp.files.results import write_rows
from mpigp.fit.loop import Fit, Trace
from mpigp.fit.objective import Objective
from mpigp.fit.setup import PreparedFit
from mpigp.gp.bound import group_of_outputs
from mpigp.kernels.registry import DEFAULT
from mpigp.mpi.communicator import gather_rows
from mpigp.mpi.timers import PHASES
from mpigp.mpi.ulfm import confirm
from mpigp.types import Comm

OVERHEAD = 2**16  # bytes, and more, that HDF5 itself takes


def save(path: str, comm: Comm, prepared: PreparedFit, made: dict[str, str]) -> None:
    """Write the model at the fit's point, its trace, its checkpoint, and how it was made. Called by all ranks."""
    fit, options, standardized = prepared.fit, prepared.identity, prepared.standardized
    timed = evaluate_at_solution(comm, fit)
    objective, optimizer = fit.objective, fit.optimizer
    rows = objective.evaluator.rows
    latent = {} if rows.S is None else {"mu": rows.mu, "S": rows.S}
    if timed is None:
        for values in latent.values():
            list(gather_rows(comm, values, rows.n))
        for block in optimizer.vectors().values():
            for vector in block.local:
                for segment in vector:
                    list(gather_rows(comm, segment.reshape(-1, objective.q), rows.n))
        confirm(comm)
        return
    check_room(path, expected_size(fit) + timed.seconds.nbytes + timed.rows.nbytes)
    with replacing(path) as temporary:
        with h5py.File(temporary, "w") as file:
            write_model(file, fit, options["seed"], standardized, made, timed)
            for name, values in latent.items():
                write_rows(file, f"latent/{name}", comm, values, rows.n)
            file["checkpoint/options"] = json.dumps(options, sort_keys=True)
            for name, value in fit.numbers().items():
                file[f"checkpoint/numbers/{name}"] = value
            for name, block in optimizer.vectors().items():
                file[f"checkpoint/vectors/{name}/shared"] = block.shared
                for index, vector in enumerate(block.local):
                    for place, segment in enumerate(vector):
                        where = f"checkpoint/vectors/{name}/local/{index}/{place}"
                        write_rows(file, where, comm, segment.reshape(-1, objective.q), rows.n)
        confirm(comm)  # before the file takes its place: it was made of messages


def evaluate_at_solution(comm: Comm, fit: Fit) -> Timing | None:
    """Put the fit's point into its rows, and evaluate there, for the posterior; return, on rank 0, the seconds so far.

    Called by all ranks.
    """
    objective, point = fit.objective, fit.optimizer.point
    objective.place(point)
    objective.evaluator(objective.parameters(point), objective.jitter)
    return timing(comm, objective.evaluator.phases, len(objective.evaluator.rows.Y))


def write_model(
    file: h5py.File, fit: Fit, seed: int, standardized: dict[str, Standardization], made: dict[str, str], timed: Timing
) -> None:
    """Write the model where the fit has arrived, but for its latent points; its trace, and how it was made.

    Called by rank 0.
    """
    objective = fit.objective
    parameters = objective.parameters(fit.optimizer.point)
    file.attrs.update(
        format="mpigp-model", version=VERSION, model=objective.evaluator.model.name, n=objective.evaluator.rows.n,
        jitter=objective.jitter, seed=seed, mpigp=__version__, stopped=fit.stopped, **made,
    )  # fmt: skip
    kernel = objective.evaluator.model.loops.name
    if kernel != DEFAULT:
        file.attrs["kernel"] = kernel
    file["Z"], file["beta"] = parameters.Z, parameters.beta
    file["kernel/variance"], file["kernel/alpha"] = parameters.variance, parameters.alpha
    for column, each in standardized.items():
        file[f"standardize/{column}_mean"], file[f"standardize/{column}_scale"] = each.mean, each.scale
    write_posterior(file, objective)
    for name, series in vars(fit.trace).items():
        file[f"trace/{name}"] = np.array(series, int if name == "evaluations" else float)
    file["timing/phases"], file["timing/rows"] = timed
    file["timing/phases"].attrs["names"] = PHASES


def expected_size(fit: Fit) -> int:
    """Return about how many bytes the file of a fit takes."""
    objective = fit.objective
    rows = objective.evaluator.rows
    numbers = 0 if rows.S is None else 2 * rows.n * objective.q
    for block in fit.optimizer.vectors().values():
        numbers += block.shared.size + block.local.shape[0] * block.local.shape[1] * rows.n * objective.q
    numbers += objective.m * (2 * objective.m + objective.q + rows.Y.shape[1]) + 4 * len(fit.trace)
    return 8 * numbers + OVERHEAD


def write_posterior(file: h5py.File, objective: Objective) -> None:
    """Write what predictions need, for the inducing points in this order and the kernel k of unit variance.

    With s = β σ_f²: mean = s kᵀ L⁻ᵀ g and variance = σ_f² (1 − ‖L⁻¹k‖² + ‖L_B⁻¹ L⁻¹k‖²) of the function.
    """
    assert objective.evaluator.last is not None
    inducing, master = objective.evaluator.last
    file["posterior/order"] = inducing.whitening.order
    groups = objective.evaluator.rows.groups
    L_B = master.bound.L_B
    file["posterior/L"], file["posterior/L_B"] = inducing.whitening.L, L_B if len(groups) > 1 else L_B[0]
    file["posterior/g"] = np.ascontiguousarray(master.bound.g)
    if len(groups) > 1:
        file["posterior/group"] = group_of_outputs(groups)


def check(file: h5py.File, options: dict[str, Any]) -> None:
    """Refuse a checkpoint that is none, or that was made with other data, model or options."""
    name = file.filename
    check_version(file)
    if "checkpoint/options" not in file:
        raise InputError(f"{name}: holds no checkpoint: `resume` takes a model that an earlier fit wrote")
    with h5py_errors(f"{name}: /checkpoint"):
        found = {"kernel": DEFAULT} | json.loads(file["checkpoint/options"].asstr()[()])
    for key in options:  # the data last: other options may change what is read of them
        if found.get(key) != options[key]:
            made = f"{key} = {found.get(key)!r}, not {options[key]!r}" if key != "data" else "other data"
            raise InputError(
                f"{name}: /checkpoint: was made with {made}: give the same data and options, or start anew without "
                "`resume`"
            )


def load(file: h5py.File, fit: Fit, share: Share) -> None:
    """Take the fit to where the checkpoint was written; every rank reads its own rows."""
    with h5py_errors(f"{file.filename}: /checkpoint"):
        numbers = {name: item[()] for name, item in file["checkpoint/numbers"].items()}
        for name, block in fit.optimizer.vectors().items():
            group = file[f"checkpoint/vectors/{name}"]
            block.shared[...] = group["shared"][()]
            for index, vector in enumerate(block.local):
                for place, segment in enumerate(vector):
                    segment[...] = group[f"local/{index}/{place}"][share.start : share.stop].ravel()
        series = {name: item[()].tolist() for name, item in file["trace"].items()}
        fit.restore(numbers, Trace(**series))
