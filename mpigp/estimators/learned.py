"""A learned model in memory: the model file that `mpigp fit` would write, without its checkpoint."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import h5py

from mpigp.files.atomic import check_room, check_writable, replacing
from mpigp.files.model_file import read_globals, read_latent
from mpigp.fit.checkpoint import OVERHEAD, evaluate_at_solution, write_model
from mpigp.fit.setup import PreparedFit
from mpigp.mpi.communicator import allgather_rows
from mpigp.types import Comm, Floats


@dataclass(frozen=True)
class FittedModel:
    """The same on every rank.

    image : the bytes of an HDF5 file with all that does not grow with the rows
    latent : by "mu" and "S", (n, q), whole; empty in regression
    """

    image: bytes
    latent: dict[str, Floats]

    @classmethod
    def of(cls, comm: Comm, learning: PreparedFit, made: dict[str, str]) -> FittedModel:
        """Return what a fit has learned; `made` tells how, in attributes of the file. Called by all ranks."""
        fit = learning.fit
        timed = evaluate_at_solution(comm, fit)
        image = io.BytesIO()
        if timed is not None:
            with h5py.File(image, "w") as file:
                write_model(file, fit, learning.identity["seed"], learning.standardized, made, timed)
        rows = fit.objective.evaluator.rows
        local = {} if rows.S is None else {"mu": rows.mu, "S": rows.S}
        latent = {name: allgather_rows(comm, values) for name, values in local.items()}
        return cls(comm.bcast(image.getvalue()), latent)

    @classmethod
    def read(cls, file: h5py.File) -> FittedModel:
        """Return what a model file holds."""
        latent = {}
        if "latent" in file:
            n, q = int(file.attrs["n"]), read_globals(file).Z.shape[1]
            latent = dict(zip(("mu", "S"), read_latent(file, n, q, 0, n), strict=True))
        image = io.BytesIO()
        with h5py.File(image, "w") as copy:
            copy.attrs.update(file.attrs)
            for name in file.keys() - {"latent", "checkpoint"}:
                file.copy(name, copy)
        return cls(image.getvalue(), latent)

    @contextmanager
    def open(self) -> Iterator[h5py.File]:
        """Open the file in memory to read from."""
        with h5py.File(io.BytesIO(self.image), "r") as file:
            yield file

    def write(self, path: str | os.PathLike[str], **attributes: str | int) -> None:
        """Write the model file, with these attributes besides its own. Called by one rank."""
        check_writable(path)
        check_room(path, len(self.image) + sum(values.nbytes for values in self.latent.values()) + OVERHEAD)
        with replacing(path) as temporary:
            temporary.write_bytes(self.image)
            with h5py.File(temporary, "r+") as file:
                file.attrs.update(attributes)
                for name, values in self.latent.items():
                    file[f"latent/{name}"] = values
