"""The order of the tests, which of them may run side by side, and where their programs put temporary files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with Slurm's, and end with those marked `last`, which wait for a job that goes on beside all others."""
    items.sort(key=lambda item: (item.get_closest_marker("last") is not None, item.path.parent != TESTS / "slurm"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give one of several workers (`-n 2`) the tests of the folders, which kill ranks and count seconds.

    Two of them at a time would make each other late. Those that only compare bits, and all others, go file by file.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            return file.name if file.parent.name == TESTS.name or file.stem.endswith("_bits") else "alone"

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


@pytest.fixture(autouse=True)
def temporary_files_of_each() -> Iterator[None]:
    with temporary_files():
        yield
