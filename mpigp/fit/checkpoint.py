"""A fit in one file: the model so far, and on disk all that an exact continuation needs, on any number of ranks."""

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from mpigp.chunks import Share
from mpigp.data.hdf5 import h5py_errors
from mpigp.errors import InputError
from mpigp.files import gather, model_file
from mpigp.files.atomic import check_room, check_writable, replacing
from mpigp.files.model_file import ModelFile
from mpigp.files.provenance import timing
from mpigp.fit.loop import Fit, Trace
from mpigp.fit.setup import PreparedFit
from mpigp.gp.bound import largest_bound
from mpigp.gp.parameters import Globals
from mpigp.mpi.communicator import allgather_rows
from mpigp.mpi.distributed_rows import DistributedRows
from mpigp.mpi.evaluator import EvaluationFailed
from mpigp.types import Comm, Floats

OTHER = {"data": "other data", "validation": "other rows to validate by"}  # what differs, where it has no value to tell


def save(path: str, comm: Comm, prepared: PreparedFit, made: Mapping[str, str]) -> None:
    """Write the model at the fit's point, its trace, its checkpoint, and how it was made. Called by all ranks."""
    datasets, attributes = contents(comm, prepared, made)
    fit = prepared.fit
    rows, q, vectors = fit.objective.evaluator.rows, fit.objective.q, fit.optimizer.vectors()
    if rows.S is not None:
        latent = (DistributedRows(comm, rows.n, each) for each in (rows.mu, rows.S))
        datasets |= model_file.section(model_file.LATENT, latent)
    datasets |= model_file.checkpoint_section(
        prepared.identity, fit.numbers(), vectors, lambda segment: DistributedRows(comm, rows.n, segment.reshape(-1, q))
    )
    rows.check_fingerprint(comm, prepared.identity)
    gather.write(path, comm, datasets, attributes)


def contents(comm: Comm, prepared: PreparedFit, made: Mapping[str, str]) -> tuple[dict[str, Any], gather.Attributes]:
    """Return, on rank 0, the datasets and attributes of a model file that do not grow with the rows.

    The fit's point goes into its rows, and is evaluated, for the posterior. Called by all ranks.
    """
    fit = prepared.fit
    objective, evaluator = fit.objective, fit.objective.evaluator
    parameters = evaluate_at_solution(prepared, "the fit cannot be saved")
    timed = timing(comm, evaluator.phases, len(evaluator.rows.Y))
    if timed is None:
        return {}, {}
    assert evaluator.last is not None
    inducing, master = evaluator.last
    posterior = inducing.whitening, master.bound, evaluator.rows.groups
    datasets = model_file.fitted_sections(parameters, prepared.standardized, posterior, fit.trace.series(), timed)
    datasets |= model_file.column_section(prepared.columns)
    known = {"n": evaluator.rows.n, "jitter": objective.jitter, "seed": prepared.identity["seed"]}
    if (certificate := evaluator.certificate(parameters)) is not None:
        known["upper_bound"] = certificate.upper
    if unmoved := prepared.unmoved(parameters):
        known["unmoved"] = unmoved
    attributes = model_file.attributes(evaluator.model, {**known, "stopped": fit.stopped, **made})
    return datasets, {**attributes, **model_file.parameter_attributes(evaluator.model, evaluator.q, prepared.columns)}


@np.errstate(all="ignore")  # of a damaged checkpoint
def evaluate_at_solution(prepared: PreparedFit, failed: str) -> Globals:
    """Return the parameters at the fit's point, which goes into its rows and is evaluated. Collective.

    failed : what an error begins with where the bound has no value there
    """
    objective, point = prepared.fit.objective, prepared.fit.optimizer.point
    parameters = objective.parameters(point)
    objective.place(point)
    try:
        objective.evaluator(parameters, objective.jitter)
    except EvaluationFailed as error:  # a fit does not come here by itself
        raise InputError(f"{failed}: {error}") from error
    return parameters


def load(model: ModelFile, prepared: PreparedFit, share: Share) -> None:
    """Take the fit to where the checkpoint was written; every rank reads its own rows.

    A file without a checkpoint, and one that was made with other data, model or options, are refused.
    """
    written = model.identity()
    if written is None or not model.learned:
        raise InputError(f"{model.name}: holds no checkpoint: `resume` takes a model that an earlier fit wrote")
    for key, value in prepared.identity.items():  # the data last: other options may change what is read of them
        if written.get(key) != value:
            made = OTHER.get(key, f"{key} = {written.get(key)!r}, not {value!r}")
            remedy = "give the same data and options, or start anew without `resume`"
            raise InputError(f"{model.checkpoint}: was made with {made}: {remedy}")
    numbers = model.restore(prepared.fit.optimizer.vectors(), share.start, share.stop)
    with h5py_errors(model.checkpoint):
        prepared.fit.restore(numbers, Trace(**model.trace()))
    check_bound(model, prepared.fit)


def check_bound(model: ModelFile, fit: Fit) -> None:
    """Refuse a checkpoint whose bound no model of the data can have."""
    objective = fit.objective
    largest = largest_bound(objective.evaluator.rows.groups, objective.parameters(fit.optimizer.point).beta)
    if not fit.bound <= largest:
        reach = f"its bound is {fit.bound:.6g} nats, and with its noise none can exceed {largest:.6g}"
        raise InputError(f"{model.checkpoint}: {reach}: start anew without `resume`")


@dataclass(frozen=True)
class FittedModel:
    """A model file in memory, without its checkpoint: the same on every rank."""

    image: bytes  # of an HDF5 file with all that does not grow with the rows
    latent: dict[str, Floats]  # by "mu" and "S", (n, q), whole; empty in regression

    @classmethod
    def of(cls, comm: Comm, prepared: PreparedFit, made: dict[str, str]) -> "FittedModel":
        """Return what a fit has learned; `made` tells how, in attributes of the file. Called by all ranks."""
        datasets, attributes = contents(comm, prepared, made)
        rows = prepared.fit.objective.evaluator.rows
        latent = {} if rows.S is None else {name: allgather_rows(comm, getattr(rows, name)) for name in ("mu", "S")}
        return cls(gather.image(comm, datasets, attributes), latent)

    @classmethod
    def read(cls, model: ModelFile) -> "FittedModel":
        """Return what a model file holds."""
        latent = {}
        if model.kind == "gplvm":
            n = model.sizes["n"] = model.rows()
            model.parameters()  # whose dimensions the latent points have
            latent = dict(zip(("mu", "S"), model.latent(0, n), strict=True))
        return cls(model.image(), latent)

    @contextmanager
    def open(self) -> Iterator[ModelFile]:
        """Open the file in memory to read from."""
        with h5py.File(io.BytesIO(self.image), "r") as file:
            yield ModelFile(file)

    def write(self, path: str | os.PathLike[str], **attributes: str | int) -> None:
        """Write the model file, with these attributes besides its own. Called by one rank."""
        check_writable(path)
        check_room(path, len(self.image) + sum(values.nbytes for values in self.latent.values()) + gather.OVERHEAD)
        with replacing(path) as temporary:
            temporary.write_bytes(self.image)
            with h5py.File(temporary, "r+") as file:
                file.attrs.update(attributes)
                for name, values in zip(model_file.LATENT if self.latent else (), self.latent.values(), strict=True):
                    file[name] = values
