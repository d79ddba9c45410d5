"""The order of the tests, and which of them may run side by side."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with Slurm's, and end with those marked `last`, which wait for a job that goes on beside all others.

    Of several workers (`-n 2 --dist loadgroup`) one runs all that is in folders, where starts of MPI are what is
    tested: two at a time would make each other late. The others take file by file.
    """
    items.sort(key=lambda item: (item.get_closest_marker("last") is not None, item.path.parent != TESTS / "slurm"))
    for item in items:
        item.add_marker(pytest.mark.xdist_group(item.path.name if item.path.parent == TESTS else "mpi"))
