"""The documentation as a site: it builds strictly, its links lead somewhere, and nothing comes from another host."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from mpigp.cli import COMMANDS
from tests.support.launching import ROOT, start

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page loads, where it links to, and which anchors it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    outcome = start(sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder, cwd=ROOT)
    assert outcome.code == 0, outcome.stderr
    return folder


@pytest.fixture(scope="module")
def html(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.glob("*.html"))}


def broken(folder: Path, links: list[str], anchors_of) -> list[str]:
    """Return the links within the site that lead nowhere."""
    found = []
    for link in links:
        path, _, anchor = unquote(link).partition("#")
        if re.match(r"https?:|mailto:", link):
            continue
        target = folder / path if path else None
        there = target is None or target.exists()
        if not there or (anchor and anchor not in anchors_of(target)):
            found.append(link)
    return found


def test_links_and_anchors_lead_somewhere(site: Path, html: dict[Path, Page]) -> None:
    for path, page in html.items():
        if path.name != "404.html":  # its links begin at the site's root
            assert broken(site, page.links, lambda target, page=page: (html[target] if target else page).anchors) == []


def test_nothing_comes_from_another_host(site: Path, html: dict[Path, Page]) -> None:
    for path, page in html.items():
        assert [link for link in page.loads if re.match(r"(https?:)?//", link)] == [], path.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", style.read_text()), style.name


def test_every_command_and_class_has_its_place(site: Path, html: dict[Path, Page]) -> None:
    assert set(COMMANDS) <= html[site / "commands.html"].anchors
    text = (site / "api.html").read_text()
    classes = ("mpigp.SparseGPRegression", "mpigp.BayesianGPLVM", "mpigp.load", "mpigp.kernels.LatentKernel")
    for name in (*classes, "SparseGPRegression.predict", "LatentKernel.psi2_gradient"):
        assert f">{name}<" in text, name
    assert "number of inducing points" in text  # of the docstring


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert broken(ROOT, links, lambda target: set()) == []
