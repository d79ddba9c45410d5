"""What a rank learns from its environment, and the line in which it says that it failed."""

from __future__ import annotations

import pytest

from mpigp.errors import InputError
from mpigp.mpi.communicator import check_connected
from mpigp.mpi.processes import default_threads, described, launched_rank


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, 0),
        ({"OMPI_COMM_WORLD_RANK": "3"}, 3),
        ({"PMI_RANK": "2"}, 2),
        ({"SLURM_PROCID": "5"}, 5),
        ({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "3"}, 3),  # mpiexec within a batch script
        ({"SLURM_PROCID": "0", "PMI_RANK": "1"}, 1),
        ({"PMI_RANK": ""}, 0),
    ],
)
def test_the_launcher_tells_the_rank(environment: dict[str, str], rank: int) -> None:
    assert launched_rank(environment) == rank


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, 1),
        ({"SLURM_CPUS_PER_TASK": "6"}, 6),
        ({"SLURM_CPUS_PER_TASK": "0"}, 1),
        ({"SLURM_CPUS_PER_TASK": "x"}, 1),
    ],
)
def test_slurm_tells_the_threads(environment: dict[str, str], threads: int) -> None:
    assert default_threads(environment) == threads


@pytest.mark.parametrize(
    ("size", "environment"),
    [
        (1, {}),
        (1, {"SLURM_NTASKS": "1"}),
        (4, {"SLURM_NTASKS": "4"}),
        (1, {"SLURM_NTASKS": "4", "OMPI_COMM_WORLD_SIZE": "1"}),  # mpiexec -n 1 within a larger allocation
        (1, {"SLURM_NTASKS": "4", "PMI_SIZE": "1"}),
        (1, {"SLURM_NTASKS": ""}),
    ],
)
def test_ranks_that_are_connected(size: int, environment: dict[str, str]) -> None:
    check_connected(size, environment)


@pytest.mark.parametrize("more", [{}, {"SLURM_PROCID": "2"}, {"PMI_SIZE": "4"}])
def test_ranks_that_are_not(more: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"SLURM_NTASKS is 4, but MPI connected 1 rank: .*--mpi=pmix"):
        check_connected(1, {"SLURM_NTASKS": "4", **more})


def test_an_error_is_described_in_one_line_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPIGP_TRACEBACK", raising=False)
    try:
        raise ValueError("two\n  lines")
    except ValueError as error:
        line = described(error, error.__traceback__)
        place = error.__traceback__.tb_lineno
    assert line == f"ValueError: two lines ({__file__}:{place})"
