"""A fit on disk: the model so far, and all that an exact continuation needs, on any number of ranks, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpigp.chunks import Share
from mpigp.data.hdf5 import h5py_errors
from mpigp.errors import InputError
from mpigp.files import model_file
from mpigp.files.gather import Attributes, write
from mpigp.files.model_file import ModelFile
from mpigp.files.provenance import timing
from mpigp.fit.loop import Fit, Trace
from mpigp.fit.setup import PreparedFit
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.types import Comm


def save(path: str, comm: Comm, prepared: PreparedFit, made: Mapping[str, str]) -> None:
    """Write the model at the fit's point, its trace, its checkpoint, and how it was made. Called by all ranks."""
    datasets, attributes = contents(comm, prepared, made)
    fit = prepared.fit
    rows, q, vectors = fit.objective.evaluator.rows, fit.objective.q, fit.optimizer.vectors()
    if rows.S is not None:
        datasets |= model_file.latent_section(*(DistributedRows(comm, rows.n, each) for each in (rows.mu, rows.S)))
    datasets |= model_file.checkpoint_section(
        prepared.identity, fit.numbers(), vectors, lambda segment: DistributedRows(comm, rows.n, segment.reshape(-1, q))
    )
    write(path, comm, datasets, attributes)


def contents(comm: Comm, prepared: PreparedFit, made: Mapping[str, str]) -> tuple[dict[str, Any], Attributes]:
    """Return, on rank 0, the datasets and attributes of a model file that do not grow with the rows.

    The fit's point goes into its rows, and is evaluated, for the posterior. Called by all ranks.
    """
    fit = prepared.fit
    objective, point = fit.objective, fit.optimizer.point
    evaluator, parameters = objective.evaluator, objective.parameters(point)
    objective.place(point)
    evaluator(parameters, objective.jitter)
    timed = timing(comm, evaluator.phases, len(evaluator.rows.Y))
    if timed is None:
        return {}, {}
    assert evaluator.last is not None
    inducing, master = evaluator.last
    posterior = inducing.whitening, master.bound, evaluator.rows.groups
    datasets = model_file.fitted_sections(parameters, prepared.standardized, posterior, vars(fit.trace), timed)
    known = {"n": evaluator.rows.n, "jitter": objective.jitter, "seed": prepared.identity["seed"]}
    return datasets, model_file.attributes(evaluator.model, {**known, "stopped": fit.stopped, **made})


def check(model: ModelFile, identity: Mapping[str, Any]) -> None:
    """Refuse a file without a checkpoint, and one that was made with other data, model or options."""
    written = model.identity()
    if written is None or not model.learned:
        raise InputError(f"{model.name}: holds no checkpoint: `resume` takes a model that an earlier fit wrote")
    for key, value in identity.items():  # the data last: other options may change what is read of them
        if written.get(key) != value:
            made = f"{key} = {written.get(key)!r}, not {value!r}" if key != "data" else "other data"
            remedy = "give the same data and options, or start anew without `resume`"
            raise InputError(f"{model.checkpoint}: was made with {made}: {remedy}")


def load(model: ModelFile, fit: Fit, share: Share) -> None:
    """Take the fit to where the checkpoint was written; every rank reads its own rows."""
    numbers = model.restore(fit.optimizer.vectors(), share.start, share.stop)
    with h5py_errors(model.checkpoint):
        fit.restore(numbers, Trace(**model.trace()))
