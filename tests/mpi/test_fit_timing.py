"""How a model file was made: who had which rows, where the seconds went, on what machine, by which command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest

import mpigp
from mpigp.chunks import share
from mpigp.mpi.timers import PHASES
from tests.support.fits import fit
from tests.support.inputs import MODELS, change, write_inputs
from tests.support.launching import several

N, RANKS = 277, 3
LATE = 1e9  # seconds, which no phase of a continuation takes


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fit on three ranks, its continuation on two, and one from options in a file."""
    folder = tmp_path_factory.mktemp(request.param)
    inputs = write_inputs(folder, request.param, N, 7, 2, 3)
    first, second, third = folder / "a model.h5", folder / "resumed.h5", folder / "configured.h5"
    (folder / "options.toml").write_text("hold = 2\n")
    command = fit(inputs, first, request.param, "--tolerance", 0)
    configured = fit(inputs, third, request.param, "--max-iter", 3, "--config", folder / "options.toml")
    for outcomes in several(folder / "told", RANKS, [[*command, "--max-iter", 10], configured]):
        assert [outcome.code for outcome in outcomes] == [0] * RANKS, outcomes
    second.write_bytes(first.read_bytes())
    change(second, "timing/phases", ..., LATE)
    command = [*command, "--max-iter", 12, "--resume", "-o", second]
    for outcomes in several(folder / "told again", 2, [command]):
        assert [outcome.code for outcome in outcomes] == [0] * 2, outcomes
    return {"first": first, "resumed": second, "configured": third, "data": inputs.data}


def test_rows_and_seconds_of_every_rank(model: dict[str, Path]) -> None:
    with h5py.File(model["first"]) as file:
        seconds, rows = file["timing/phases"][()], file["timing/rows"][()]
        assert tuple(file["timing/phases"].attrs["names"]) == PHASES
    assert rows.tolist() == [share(N, rank, RANKS).rows for rank in range(RANKS)]
    assert seconds.shape == (RANKS, len(PHASES))
    assert (seconds[:, [PHASES.index("statistics"), PHASES.index("gradients")]] > 0).all()


def test_a_continuation_counts_its_own_seconds(model: dict[str, Path]) -> None:
    """Those of the file that it goes on from are not among them."""
    with h5py.File(model["resumed"]) as resumed:
        assert len(resumed["trace/bound"]) == 12
        assert resumed["timing/phases"].shape[0] == len(resumed["timing/rows"]) == 2
        assert resumed["timing/phases"][()].max() < LATE


def test_command_versions_and_machine(model: dict[str, Path]) -> None:
    with h5py.File(model["first"]) as file:
        words, versions, machine = (file.attrs[name] for name in ("command", "versions", "machine"))
    words, versions, machine = shlex.split(words), json.loads(versions), json.loads(machine)
    assert words[:5] == ["mpigp", "fit", str(model["data"]), "-o", str(model["first"])]
    assert versions["mpigp"] == mpigp.__version__ and versions["numpy"] == np.__version__
    assert versions.keys() == {"mpigp", "python", "numpy", "scipy", "h5py", "mpi4py", "MPI"}
    assert (machine["ranks"], machine["threads"], machine["hosts"]) == (RANKS, 1, 1)
    assert machine["cpu"]


def test_options_of_a_configuration_file_are_in_the_command(model: dict[str, Path]) -> None:
    with h5py.File(model["configured"]) as file:
        assert "--hold=2" in shlex.split(file.attrs["command"])
