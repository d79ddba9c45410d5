"""The page of a scaling study in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.report.test_browser import LAPTOP, PHONE, Tab, check_page, tab
from tests.support.calling import command
from tests.support.reports import Page, read_page
from tests.support.studies import write_study

__all__ = ["tab"]  # a fixture

FIGURES = ("speedup", "efficiency", "shares", "balance", "forecast-speedup", "forecast-efficiency", "terms")
COUNTS = [1, 2, 3, 4, 6, 8, 16]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("study"), COUNTS)


@pytest.fixture(scope="module")
def page(study: Path) -> Page:
    command("scaling", "report", study, "-o", study / "page.html")
    return read_page(study / "page.html")


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_page(size: tuple[int, int], tab: Tab, page: Page) -> None:
    check_page(tab, page, FIGURES, size)


def test_figures_agree_with_the_files(tab: Tab, page: Page, study: Path) -> None:
    """What is drawn is read back from the browser: heights of bars, places of dots, words under the mouse."""
    tab.open(page)
    runs = [json.loads(path.read_text())["runs"][0] for path in sorted(study.glob("*.json"))]
    dots = tab.run(
        "[...document.querySelectorAll('#efficiency circle:not(.spot)')].map(e => Number(e.getAttribute('cy')))"
    )
    rules = tab.run(
        "[...document.querySelectorAll('#efficiency svg text')].filter(e => e.getAttribute('text-anchor') === 'end')"
        ".map(e => [Number(e.textContent), Number(e.getAttribute('y')) - 4])"
    )
    (low, bottom), (high, top) = rules[0], rules[-1]
    drawn = [low + (bottom - dot) / (bottom - top) * (high - low) for dot in dots]
    wanted = [runs[0]["seconds"] / run["seconds"] / run["ranks"] for run in runs]
    assert drawn == pytest.approx(wanted, abs=2e-3)
    compute = tab.run(
        "[...document.querySelectorAll('#shares rect[data-name=compute]')].map(e => Number(e.dataset.share))"
    )
    each = [{name: sum(seconds) for name, seconds in run["by_rank"]["seconds"].items()} for run in runs]
    assert compute == pytest.approx(
        [(one["statistics"] + one["gradients"]) / sum(one.values()) for one in each], rel=1e-4
    )
    for figure, words in (("speedup", "s per evaluation"), ("balance", "seconds on rows"), ("terms", "master")):
        box = tab.box(f"#{figure} svg")
        assert words in tab.hover(box["left"] + 0.6 * box["width"], box["top"] + 0.5 * box["height"])
    assert tab.errors() == []
