"""Model files of other versions."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

from mpigp.errors import InputError
from mpigp.files.model_file import VERSION, check_version, read_model
from tests.support.modelfiles import write_model
from tests.support.problems import REGRESSION, make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a model file."""
    return write_model(tmp_path / "model.h5", REGRESSION, make(50, 3, 2, 1), 1e-6)


def test_its_own_version_is_read(path: Path) -> None:
    with h5py.File(path) as file:
        assert file.attrs["version"] == VERSION
        assert read_model(file).name == "regression"


def test_a_file_without_a_version_is_anybodys(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file.attrs["version"]
        check_version(file)


@pytest.mark.parametrize("version", [VERSION + 1, "two", [1, 1]])
def test_other_versions_are_refused_in_one_line(path: Path, version: object) -> None:
    with h5py.File(path, "a") as file:
        file.attrs["version"] = version
        with pytest.raises(InputError, match=r"model.h5: attribute version: .* install a newer mpigp") as caught:
            read_model(file)
    assert "\n" not in str(caught.value)
