"""A fit on disk: the model so far, and all that an exact continuation needs, on any number of ranks, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpigp.chunks import Share
from mpigp.data.hdf5 import h5py_errors
from mpigp.errors import InputError
from mpigp.files import model_file
from mpigp.files.gather import Attributes, Distributed, write
from mpigp.files.model_file import ModelFile
from mpigp.files.provenance import timing
from mpigp.fit.loop import Fit
from mpigp.fit.trace import Trace
from mpigp.gp.standardization import Standardization
from mpigp.types import Comm


def save(
    path: str,
    comm: Comm,
    fit: Fit,
    identity: Mapping[str, Any],
    standardized: Mapping[str, Standardization],
    made: Mapping[str, str],
) -> None:
    """Write the model at the fit's point, its trace, its checkpoint, and how it was made. Called by all ranks."""
    datasets, attributes = contents(comm, fit, identity["seed"], standardized, made)
    rows, optimizer = fit.objective.evaluator.rows, fit.optimizer
    if rows.S is not None:
        datasets |= model_file.latent_section(*(Distributed(values, rows.n) for values in (rows.mu, rows.S)))
    numbers = fit.numbers() | optimizer.numbers()
    datasets |= model_file.checkpoint_section(identity, numbers, optimizer.vectors(), rows.n, fit.objective.q)
    write(path, comm, datasets, attributes)


def contents(
    comm: Comm, fit: Fit, seed: int, standardized: Mapping[str, Standardization], made: Mapping[str, str]
) -> tuple[dict[str, Any], Attributes]:
    """Return, on rank 0, the datasets and attributes of a model file that do not grow with the rows.

    The fit's point goes into its rows, and is evaluated, for the posterior. Called by all ranks.
    """
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
    datasets = model_file.fitted_sections(parameters, standardized, posterior, vars(fit.trace), timed)
    n, stopped = evaluator.rows.n, fit.stopped
    return datasets, model_file.attributes(evaluator.model, n, objective.jitter, seed, stopped, made)


def check(model: ModelFile, identity: Mapping[str, Any]) -> None:
    """Refuse a file without a checkpoint, and one that was made with other data, model or options."""
    found = model.identity()
    if found is None or not model.learned:
        raise InputError(f"{model.name}: holds no checkpoint: --resume takes what an earlier `fit -o` wrote")
    for key in identity:  # the data last: other options may change what is read of them
        if found.get(key) != identity[key]:
            made = f"{key} = {found.get(key)!r}, not {identity[key]!r}" if key != "data" else "other data"
            raise InputError(
                f"{model.checkpoint}: was made with {made}: give the same data and options, or start anew without "
                "--resume"
            )


def load(model: ModelFile, fit: Fit, share: Share) -> None:
    """Take the fit to where the checkpoint was written; every rank reads its own rows."""
    numbers = model.restore(fit.optimizer.vectors(), share.start, share.stop)
    with h5py_errors(model.checkpoint):
        fit.optimizer.restore(numbers)
        fit.restore(Trace(**model.trace()), bool(numbers["held"]), int(numbers["before"]))
