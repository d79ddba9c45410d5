"""The Slurm of these tests, started once; the modules that help lie in the folders beside."""

import os
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.slurm.cluster import Cluster, missing, running
from tests.support.launching import start


def give_up(reason: str) -> NoReturn:
    """Skip, saying why; where Slurm must be there, fail."""
    if os.environ.get("MPIGP_SLURM"):
        pytest.fail(f"MPIGP_SLURM is set, and {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := missing():
        give_up(reason)
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def without_pmix(cluster: Cluster) -> str:
    """Why srun does not speak pmix, or nothing: it takes a library that Debian's package does not bring."""
    outcome = start("srun", "--mpi=pmix", "true", environment=cluster.environment())
    return "" if outcome.code == 0 else f"srun does not speak pmix: apt install libpmix-dev: {outcome.stderr}"


@pytest.fixture
def pmix(without_pmix: str) -> None:
    if without_pmix:
        give_up(without_pmix)


@pytest.fixture(scope="session")
def mpich() -> str:
    """The Python of an environment with MPICH: both MPIs put mpiexec into the same place."""
    return os.environ.get("MPIGP_MPICH_PYTHON") or give_up("MPIGP_MPICH_PYTHON names no Python with mpigp and MPICH")
