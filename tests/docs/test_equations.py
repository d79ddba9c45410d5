"""The equation map: every equation of the tutorial, and only functions and tests that exist."""

from __future__ import annotations

import importlib
import re
from typing import NamedTuple

import pytest

from tests.support.launching import ROOT

TUTORIAL = ROOT.parent / "shared" / "seed" / "tutorial.tex"  # beside the repository; not everywhere
PAGE = (ROOT / "docs" / "equations.md").read_text()
COUNT = int(re.search(r"(\d+) in all", PAGE).group(1))  # type: ignore[union-attr]


class Row(NamedTuple):
    """A row of a table: the equations or the section, the functions, and the tests."""

    where: str
    functions: list[str]
    tests: list[str]


def rows() -> list[Row]:
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| (\d|§)", line)]
    return [Row(where, re.findall(r"`(.+?)`", done), re.findall(r"`(.+?)`", tests)) for where, _, done, tests in cells]


def numbers(where: str) -> range:
    first, _, last = re.match(r"(\d+(?:–\d+)?)", where).group(1).partition("–")  # type: ignore[union-attr]
    return range(int(first), int(last or first) + 1)


def test_no_equation_is_left_out_or_named_twice() -> None:
    found = [number for row in rows() if row.where[0].isdigit() for number in numbers(row.where)]
    assert found == list(range(1, COUNT + 1))


@pytest.mark.skipif(not TUTORIAL.exists(), reason="the tutorial's source is not beside the repository")
def test_the_tutorial_has_so_many() -> None:
    """LaTeX numbers every line of an align environment."""
    aligned = re.findall(r"\\begin\{align\}(.*?)\\end\{align\}", TUTORIAL.read_text(), re.DOTALL)
    assert sum(len(re.findall(r"\\\\", each)) + 1 for each in aligned) == COUNT


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.where)
def test_what_is_named_exists(row: Row) -> None:
    assert row.tests
    for name in row.functions:
        parts = name.split(".")
        for cut in range(len(parts), 0, -1):
            try:
                item = importlib.import_module(".".join(parts[:cut]))
                break
            except ModuleNotFoundError:
                continue
        for part in parts[cut:]:
            item = getattr(item, part)
    for test in row.tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test


def test_mistakes_are_marked() -> None:
    """The equations with a dagger are those of the errata."""
    marked = {number for row in rows() if "†" in row.where for number in numbers(row.where)}
    errata = (ROOT / "docs" / "errata.md").read_text().partition("## The proof")[0]
    named = {int(each) for cell in re.findall(r"eq\. ([\d, ]+)", errata) for each in re.findall(r"\d+", cell)}
    assert named and named <= marked
    assert all(named & set(numbers(row.where)) for row in rows() if "†" in row.where)
