"""Where the MPI cannot survive the death of a rank: the job ends at once, and its checkpoint goes on, bit for bit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.mpi.campaign import SETTINGS, killed, undisturbed
from tests.support.fits import differences, fit
from tests.support.inputs import write_inputs
from tests.support.launching import ROOT, needed_flags, start

MPICH = os.environ.get("MPIGP_MPICH_PYTHON", "")


@pytest.fixture(params=["Open MPI", "MPICH"])
def python(request: pytest.FixtureRequest) -> str:
    """Return a Python whose environment has this MPI."""
    if request.param == "Open MPI":
        return sys.executable
    if not MPICH:
        pytest.skip("MPIGP_MPICH_PYTHON names no Python with the MPICH wheel and mpigp")
    return MPICH


def ranks(python: str) -> list[object]:
    """Return the start of a command line of three ranks by `--ranks`."""
    return [python, *(["-m", "mpigp"] if python == MPICH else [ROOT / "run.py"]), "--ranks", 3]


def go_on(python: str, folder: Path, output: Path) -> None:
    """Resume a fit, and see that it ends with the bits of one that was not disturbed."""
    inputs = write_inputs(folder, "gplvm", 700, 7, 2, 3)
    words = fit(inputs, output, "gplvm", *SETTINGS, "--resume")
    again = start(*ranks(python), *words, cwd=folder)  # away from the sources, which are not compiled for MPICH
    assert again.code == 0, again
    assert differences(undisturbed(), output) == ["@versions"] * (python == MPICH)


def test_plain_mpiexec_ends_at_once(tmp_path: Path, python: str) -> None:
    """What it then says is the launcher's, which names the rank or its signal."""
    needed = needed_flags(3) if python != MPICH else []
    launcher = [Path(python).parent / "mpiexec", *needed, "-n", 3, *ranks(python)[:-2]]
    options = ("--checkpoint-every", 2)
    code, said, output = killed(tmp_path, 3, [1], *options, start=launcher)
    assert code != 0
    assert "signal 9" in said + (tmp_path / "stdout").read_text()
    go_on(python, tmp_path, output)


def test_started_by_ranks_it_says_so_in_one_line_and_has_its_exit_code(tmp_path: Path, python: str) -> None:
    options = ("--checkpoint-every", 2, "--on-failure", "checkpoint")
    code, said, output = killed(tmp_path, 3, [1], *options, start=ranks(python))
    assert code == 75, said
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("iteration ")]
    assert lines == ["mpigp: the job died, because a rank or its launcher was killed: go on with --resume"]
    go_on(python, tmp_path, output)


def test_without_a_checkpoint_it_says_so_too(tmp_path: Path, python: str) -> None:
    code, said, output = killed(tmp_path, 3, [0], "--on-failure", "abort", start=ranks(python))
    assert code == 1
    last = "mpigp: the job died, because a rank or its launcher was killed: start it again"
    assert said.splitlines()[-1] == last, said
    assert not output.exists()


def test_told_to_recover_it_starts_again_by_itself(tmp_path: Path, python: str) -> None:
    """With Open MPI the ranks that are left go on; with MPICH the job does, from its checkpoint."""
    options = ("--checkpoint-every", 2)
    code, said, output = killed(tmp_path, 3, [1], *options, start=ranks(python))
    assert code == 0, said
    assert ("starting it again from its checkpoint" if python == MPICH else "going on with 2") in said
    assert differences(undisturbed(), output) == ["@versions"] * (python == MPICH)
