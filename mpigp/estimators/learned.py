"""A fitted model in memory: the model file that `mpigp fit` would write, without its checkpoint."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import h5py

from mpigp.files import gather
from mpigp.files.atomic import check_room, check_writable, replacing
from mpigp.files.model_file import ModelFile, latent_section
from mpigp.fit import checkpoint
from mpigp.fit.setup import PreparedFit
from mpigp.mpi.communicator import allgather_rows
from mpigp.types import Comm, Floats


@dataclass(frozen=True)
class FittedModel:
    """The same on every rank."""

    image: bytes  # of an HDF5 file with all that does not grow with the rows
    latent: dict[str, Floats]  # by "mu" and "S", (n, q), whole; empty in regression

    @classmethod
    def of(cls, comm: Comm, prepared: PreparedFit, made: dict[str, str]) -> FittedModel:
        """Return what a fit has learned; `made` tells how, in attributes of the file. Called by all ranks."""
        datasets, attributes = checkpoint.contents(comm, prepared, made)
        rows = prepared.fit.objective.evaluator.rows
        local = {} if rows.S is None else {"mu": rows.mu, "S": rows.S}
        latent = {name: allgather_rows(comm, values) for name, values in local.items()}
        return cls(gather.image(comm, datasets, attributes), latent)

    @classmethod
    def read(cls, model: ModelFile) -> FittedModel:
        """Return what a model file holds."""
        latent = {}
        if model.kind == "gplvm":
            n = model.sizes["n"] = int(model.attribute("n"))
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
                for name, values in latent_section(**self.latent).items() if self.latent else ():
                    file[name] = values
