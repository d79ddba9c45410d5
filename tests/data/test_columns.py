"""Columns by name: found in any order, with others beside them, and refused where one is missing."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.data.columns import ColumnView, column_names, match, note_of, numbered, storable
from mpigp.data.hdf5 import read_rows
from mpigp.errors import InputError

VALUES = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def item(tmp_path: Path) -> h5py.Dataset:
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = VALUES
        yield file["X"]


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        (list("abc"), list("abc")),
        (np.array([b"a", b"\xff", b"c"]), ["a", "�", "c"]),
        (np.array([b"a", b"b\0b", b"c"]), ["a", r"b\x00b", "c"]),
        ([1, 2, 3], ["1", "2", "3"]),
        (None, None),
    ],
)
def test_names_are_an_attribute(item: h5py.Dataset, attribute: object, names: list[str] | None) -> None:
    if attribute is not None:
        item.attrs["columns"] = attribute
    assert column_names(item) == names


@pytest.mark.parametrize("attribute", ["a", ["a", "b"], 3.0])
def test_every_column_has_its_name(item: h5py.Dataset, attribute: object) -> None:
    item.attrs["columns"] = attribute
    with pytest.raises(InputError, match=r"data.h5: /X: attribute columns: has \d names, and the dataset 3 columns"):
        column_names(item)


@pytest.mark.parametrize("names", [None, list("abc")])
def test_without_names_and_in_order_the_dataset_is_taken_as_it_is(item: h5py.Dataset, names: list[str] | None) -> None:
    if names:
        item.attrs["columns"] = names
    for wanted in (None, list("abc")):
        assert match(item, wanted, "the model") is item and note_of(item) == ""


def test_columns_are_found_by_name(item: h5py.Dataset) -> None:
    item.attrs["columns"] = list("abc")
    turned = match(item, ["c", "a", "b"], "the inputs of model.h5")
    assert isinstance(turned, ColumnView) and turned.shape == (4, 3) and len(turned) == 4
    assert np.array_equal(read_rows(turned, 1, 3), VALUES[1:3][:, [2, 0, 1]])
    assert "in another order than the inputs of model.h5, and read by name: c, a, b" in note_of(turned)
    fewer = match(item, ["c", "a"], "the inputs of model.h5")
    assert np.array_equal(read_rows(fewer, 0, 4), VALUES[:, [2, 0]])
    assert note_of(fewer).endswith("c, a; ignored: b") and "\n" not in note_of(fewer)


def test_what_is_missing_or_ambiguous_is_refused(item: h5py.Dataset) -> None:
    item.attrs["columns"] = list("aba")
    with pytest.raises(InputError, match=r"data.h5: /X: lacks d, e, and has a, b, a: the inputs are found by name"):
        match(item, ["d", "a", "e"], "the inputs")
    with pytest.raises(InputError, match="several columns are named a: "):
        match(item, ["b", "a"], "the inputs")
    assert match(item, list("aba"), "the inputs") is item
    item.attrs["columns"] = list("abc")
    with pytest.raises(
        InputError, match=r"data.h5: /X: several of the inputs are named a, and cannot be found by name: "
    ):
        match(item, ["a", "a"], "the inputs")


def test_a_message_is_one_line_of_some_names() -> None:
    names = [f"a\nlong {k}" for k in range(20)]
    assert numbered([3, 4], names) == "3 (a long 3), 4 (a long 4)" and numbered([3, 4], None) == "3, 4"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_names_that_hdf5_cannot_store_are_refused(name: str) -> None:
    assert storable("t.csv", ["a", "é"]) == ["a", "é"]
    with pytest.raises(InputError, match=r"t.csv: the name or label 'a.*' holds characters that are none"):
        storable("t.csv", ["a", name])
