"""The order of the tests, which of them may run side by side, and where their programs put temporary files."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.register_assert_rewrite("tests.support")

# Slurm's jobs go on beside all others, and what takes long comes first, so that no worker is late at the end.
ORDER = ("slurm", "mpi", "hosts", "fuzz", "docs", "launch", "experiments", "estimators", "commands", "report",
         "scaling")  # fmt: skip
# These run on the worker that waits for Slurm.
BESIDE_SLURM = ("test_recovery.py", "test_deaths.py", "test_fit_resume.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """End with those marked `last`, which wait for a job that goes on beside all others."""

    def key(item: pytest.Item) -> tuple[bool, int, bool]:
        folder = item.path.parent.name
        place = ORDER.index(folder) if folder in ORDER else len(ORDER)
        return item.get_closest_marker("last") is not None, place, item.path.name not in BESIDE_SLURM

    items.sort(key=key)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use all cores, and where Slurm is, a worker more, since that waits; for a file that is named, none."""
    from tests.slurm.cluster import missing

    return 0 if any(".py" in word for word in config.args) else len(os.sched_getaffinity(0)) + (not missing())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Share out the tests file by file, and page by page; one worker has those of Slurm, and goes on while jobs run."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            if file.parent.name == "slurm" or file.name in BESIDE_SLURM:
                return "slurm"
            return nodeid if file.name == "test_pages.py" else str(file)

    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # the order of above, not by the number of tests in a file
    return Scheduling(config, log)


@contextmanager
def temporary_files() -> Iterator[None]:
    """Have a new folder for them: what a killed mpiexec leaves there fails one of the same process number."""
    with (
        TemporaryDirectory(prefix="mpigp-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(autouse=True, scope="session")
def temporary_files_of_all() -> Iterator[None]:
    with temporary_files():
        yield


@pytest.fixture(autouse=True, scope="session")
def shared_cores() -> Iterator[None]:
    """Have the ranks of Open MPI share the cores with tests beside: those that wait are idle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMPI_MCA_mpi_yield_when_idle", "1")
        yield


@pytest.fixture(autouse=True)
def temporary_files_of_each() -> Iterator[None]:
    with temporary_files():
        yield


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that must end with exit code 2 and one line; return the line."""
    from mpigp.cli import execute
    from tests.support.refusals import only_line

    def run(*words: object) -> str:
        capfd.readouterr()
        assert execute([str(word) for word in words]) == 2
        return only_line(capfd.readouterr().err)

    return run
