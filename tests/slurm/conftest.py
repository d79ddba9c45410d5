"""The Slurm of these tests, started once; the modules that help lie in the folders beside."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "mpi"), str(Path(__file__).parent)]

from cluster import Cluster, missing, running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := missing():
        if os.environ.get("MPIGP_SLURM") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def mpich() -> str:
    """The Python of an environment with MPICH: both MPIs put mpiexec into the same place."""
    python = os.environ.get("MPIGP_MPICH_PYTHON")
    if not python:
        if os.environ.get("MPIGP_SLURM") == "required":
            pytest.fail("MPIGP_MPICH_PYTHON is not set")
        pytest.skip("MPIGP_MPICH_PYTHON names no Python with mpigp and MPICH")
    return python
