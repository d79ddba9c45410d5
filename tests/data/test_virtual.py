"""Virtual datasets: HDF5 reads zeros where a source is missing, and mpigp refuses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from mpigp.data.hdf5 import check_sources, dataset, read_rows
from mpigp.errors import InputError
from tests.support.calling import command, read, write

ROWS, PARTS = 30, ("a.h5", "b.h5")


def virtual(path: Path, sources: list[tuple[str, str]], name: str = "Y") -> None:
    """Write a virtual dataset of two columns, of as many rows of each source, by file and name, one after another."""
    layout = h5py.VirtualLayout((ROWS * len(sources), 2), "f8")
    for place, (file, inner) in enumerate(sources):
        source = h5py.VirtualSource(file, inner, (ROWS, 2))
        layout[place * ROWS : (place + 1) * ROWS] = source[:ROWS] if place % 2 else source
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset(name, layout)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of a virtual dataset, of two files and, through another virtual one, of a third."""
    rng = np.random.default_rng(0)
    (tmp_path / "parts").mkdir()
    for name in (*PARTS, "parts/c.h5"):
        write(tmp_path / name, rows=rng.normal(size=(ROWS, 2)))
    virtual(tmp_path / "inner.h5", [("parts/c.h5", "rows")], "inner")
    virtual(tmp_path / "data.h5", [*((name, "rows") for name in PARTS), ("inner.h5", "inner")])
    return tmp_path / "data.h5"


def test_all_sources_are_read_and_named(data: Path) -> None:
    expected = np.concatenate([read(data.parent / name)["rows"] for name in (*PARTS, "parts/c.h5")])
    with h5py.File(data) as file:
        item = dataset(file, "Y", 2, "")
        assert np.array_equal(read_rows(item, 0, len(item)), expected)
        names = (*PARTS, "inner.h5", "parts/c.h5")
        assert check_sources(item) == sorted(str(data.parent / name) for name in names)


def smaller(path: Path) -> None:
    write(path, rows=np.ones((ROWS - 1, 2)))


def renamed(path: Path) -> None:
    write(path, others=np.ones((ROWS, 2)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:600])


@pytest.mark.parametrize(
    ("name", "spoil", "said"),
    [
        ("b.h5", Path.unlink, "source b.h5 does not exist"),
        ("inner.h5", Path.unlink, "source inner.h5 does not exist"),
        ("parts/c.h5", Path.unlink, "source parts/c.h5 does not exist"),
        ("a.h5", smaller, "rows has shape (29, 2), too small"),
        ("b.h5", smaller, "rows has shape (29, 2), too small"),
        ("a.h5", renamed, "has no dataset rows"),
        ("a.h5", cut, "cannot be read"),
    ],
)
def test_a_source_that_is_missing_is_refused(
    data: Path, name: str, spoil: Callable[[Path], None], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(data.parent / name)
    model = data.with_name("model.h5")
    words = ["fit", data, "-o", model, "--model", "gplvm", "--latent", 1, "--inducing", 3, "--max-iter", 1]
    for each in (words, ["info", data]):
        assert execute([str(word) for word in each]) == 2
        printed = capfd.readouterr()
        (line,) = printed.err.splitlines()
        assert said in line and "is a virtual dataset" in line and printed.out == ""
    assert not model.exists()
    command("info", data, "--no-summary")


def test_a_dataset_of_itself_and_of_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "data.h5"
    virtual(path, [(".", "Y")])
    properties, one = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.create_simple((ROWS, 2))
    many = h5py.h5s.create_simple((ROWS, 2), (h5py.h5s.UNLIMITED, 2))
    many.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (ROWS, 2), (ROWS, 2))
    properties.set_virtual(many, b"part-%b.h5", b"rows", one)
    with h5py.File(path, "a") as file:
        h5py.h5d.create(file.id, b"pattern", h5py.h5t.NATIVE_DOUBLE, many, properties)
    with h5py.File(path) as file:
        assert check_sources(file["Y"]) == [str(path)]
        with pytest.raises(InputError, match="named by a pattern"):
            check_sources(file["pattern"])


def mapped(path: Path, *places: slice, size: int = 10) -> str:
    """Write a virtual dataset of which only these rows have a source; return what refuses it, or nothing."""
    write(path.with_name("a.h5"), rows=np.ones((size, 2)))
    layout = h5py.VirtualLayout((size, 2), "f8")
    for place in places:
        layout[place] = h5py.VirtualSource("a.h5", "rows", (size, 2))[place]
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("Y", layout)
    with h5py.File(path) as file:
        try:
            check_sources(file["Y"])
        except InputError as error:
            return str(error)
    return ""


def test_rows_without_a_source_are_refused(tmp_path: Path) -> None:
    path, said = tmp_path / "data.h5", "Y: is a virtual dataset, and some of its rows or columns have no source"
    for places in ([], [slice(5)], [slice(6), slice(5)], [slice(4), slice(5, 10)], [slice(0, 10, 2)]):
        assert said in mapped(path, *places), places
    for places in ([slice(5), slice(5, 10)], [slice(7), slice(4, 10)], [slice(0, 10, 2), slice(1, 10, 2)], [slice(10)]):
        assert mapped(path, *places) == "", places


def test_a_dataset_that_grows_with_its_source(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("rows", data=np.ones((10, 2)), maxshape=(None, 2))
    source = h5py.VirtualSource("a.h5", "rows", (10, 2), maxshape=(None, 2))
    for first, complete in ((0, True), (3, False)):
        layout, end = h5py.VirtualLayout((10, 2), "f8", maxshape=(None, 2)), h5py.h5s.UNLIMITED
        layout[first:end] = source[first:end]
        with h5py.File(tmp_path / "data.h5", "w") as file:
            file.create_virtual_dataset("Y", layout)
        with h5py.File(tmp_path / "data.h5") as file:
            if complete:
                assert check_sources(file["Y"]) == [str(tmp_path / "a.h5")]
            else:
                with pytest.raises(InputError, match="some of its rows or columns have no source"):
                    check_sources(file["Y"])


def test_a_source_may_not_read_other_files(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(data.with_name("other.h5"), rows=np.ones((ROWS, 2)))
    data.with_name("numbers").write_bytes(bytes(ROWS * 2 * 8))
    for said in ("a.h5: /rows: its numbers lie in another file", "a.h5: /rows: is a link to another file"):
        with h5py.File(data.with_name("a.h5"), "w") as file:
            if "numbers" in said:
                file.create_dataset("rows", (ROWS, 2), "f8", external=[("numbers", 0, ROWS * 16)])
            else:
                file["rows"] = h5py.ExternalLink("other.h5", "rows")
        assert execute(["info", str(data)]) == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert said in line and "data.h5: /Y: is a virtual dataset, and its source " in line
