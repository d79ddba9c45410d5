"""How a file was made, whatever the command was."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
from mpi4py import MPI

from mpigp.files.provenance import LONGEST, provenance


@pytest.mark.parametrize("command", ["mpigp fit data.h5", "mpigp fit β.h5", "mpigp fit \udcff.h5", "x" * 100_000])
def test_any_command_fits_an_attribute(command: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.attrs.update(provenance(MPI.COMM_SELF, 1, command))
    with h5py.File(tmp_path / "file.h5") as file:
        assert file.attrs["command"] == command.replace("\udcff", "?")[:LONGEST]
