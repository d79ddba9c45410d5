"""Fits on three hosts, of which one loses a rank, all its processes, or its link: exit code 0, and the same bits."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from tests.hosts.rig import Rig, missing
from tests.mpi.campaign import HOST_PHASES, SETTINGS, Case, Run, one
from tests.support.fits import differences, fit
from tests.support.inputs import write_inputs
from tests.support.launching import end_session, run

pytestmark = pytest.mark.skipif(bool(missing()) and os.environ.get("MPIGP_HOSTS") != "required", reason=missing())
RANKS = 6


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    hosts = Rig(3)
    yield hosts
    hosts.down()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("hosts")
    inputs, undisturbed = write_inputs(folder, "gplvm", 700, 7, 2, 3), folder / "undisturbed.h5"
    assert run(None, *fit(inputs, undisturbed, "gplvm", *SETTINGS)).code == 0
    return Case(inputs, "gplvm", undisturbed, folder)


def test_undisturbed(rig: Rig, case: Case) -> None:
    """A job that ends says so, and leaves nothing."""
    each = Run(case.inputs, case.model, case.folder, RANKS, rig=rig)
    each.held.go()
    try:
        assert each.end() == 0, each.said
    finally:
        end_session(each.process.pid)
    assert differences(case.undisturbed, each.output) == []
    assert not list(case.folder.glob(".*"))


@pytest.mark.parametrize("phase", HOST_PHASES)
def test_a_host_that_fails(phase: str, rig: Rig, case: Case) -> None:
    """Open MPI's mpiexec ends with 0 when a host dies, and never when a link is cut."""
    result = one(case, phase, RANKS, random.Random(5), rig)
    assert (result.fault, result.kills) == ("", 1), result
    assert result.restarts == 0 if phase == "host rank" else result.restarts >= 1, result
