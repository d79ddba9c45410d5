"""The report's page in a real browser: Chromium, without a network, driven by its own driver."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.report.test_report import write_metrics
from tests.support.reports import CYCLE, Page, report, write_gplvm, write_regression

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars",
         "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic")  # fmt: skip
LAPTOP, PHONE = (1280, 800), (390, 844)
SECONDS = 30  # that a page may take to load
MILLION = 10**6


class Tab:
    """A page in the browser, and what the browser has to say of it."""

    def __init__(self, driver: object) -> None:
        self.driver = driver

    def open(self, page: Page, size: tuple[int, int] = LAPTOP) -> None:
        self.tell("Emulation.setDeviceMetricsOverride",
                  width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.requests(), self.errors()  # of the page before
        self.driver.get(page.path.as_uri())
        self.run("document.fonts.ready")

    def tell(self, command: str, **words: object) -> dict:
        return self.driver.execute_cdp_cmd(command, words)

    def run(self, script: str, *words: object) -> object:
        return self.driver.execute_script(f"return ({script})", *words)

    def errors(self) -> list[str]:
        """What the console was told since last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for since last asked."""
        told = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [each["params"]["request"]["url"] for each in told if each["method"] == "Network.requestWillBeSent"]

    def box(self, selector: str) -> dict[str, float]:
        """The place of an element, scrolled into view."""
        return self.run(
            "(e => { e.scrollIntoView({block: 'center'}); return e.getBoundingClientRect().toJSON(); })"
            "(document.querySelector(arguments[0]))", selector,
        )  # fmt: skip

    def hover(self, x: float, y: float) -> str:
        """Move the mouse there; return the words that show."""
        for way in (1, 0):  # a move, and not a jump from nowhere
            self.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x + way, y=y + way)
        return self.run("(e => e.checkVisibility() ? e.textContent : '')(document.querySelector('#tip'))")

    def pixels(self, figure: str) -> str:
        """What is drawn on a figure's canvas."""
        return self.run("document.querySelector(arguments[0] + ' canvas').toDataURL()", f"#{figure}")

    def texts(self, figure: str) -> list[str]:
        """The texts of a figure's axes."""
        return self.run(
            "[...document.querySelectorAll(arguments[0] + ' svg text')].map(e => e.textContent)", f"#{figure}"
        )

    def choose(self, name: str, value: int) -> None:
        script = ("(e => { e.value = arguments[1]; e.dispatchEvent(new Event('change')); })"
                  "(document.querySelector(arguments[0]))")  # fmt: skip
        self.run(script, f"#{name}", str(value))


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    missing = [name for name, found in (("chromium", BROWSER), ("chromedriver", DRIVER)) if not found]
    if missing and not os.environ.get("MPIGP_BROWSER"):
        pytest.skip(f"there is no {' and no '.join(missing)}: apt-get install chromium chromium-driver")
    assert not missing, f"MPIGP_BROWSER is set, and there is no {' and no '.join(missing)}"
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, ChromeService(DRIVER))
    try:
        driver.set_page_load_timeout(SECONDS)
        driver.set_script_timeout(SECONDS)
        yield Tab(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="module", params=[50, MILLION], ids=["50 rows", "a million rows"])
def gplvm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    model, data = write_gplvm(tmp_path_factory.mktemp("gplvm"), request.param)
    metrics = model.with_name("metrics.jsonl")
    write_metrics(metrics, model)
    return report(model, "--data", data, "--metrics", metrics)


@pytest.fixture(scope="module", params=[(50, 1), (50, 2), (MILLION, 2)], ids=["a line", "50 rows", "a million rows"])
def regression(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    n, q = request.param
    model, data = write_regression(tmp_path_factory.mktemp("regression"), n, q, d=2)
    return report(model, "--data", data)


GPLVM = ("latent", "ard", "bound-iterations", "bound-seconds", "gradient", "timing", "metrics")
REGRESSION = ("predictions", "calibration", "ard", "bound-iterations", "bound-seconds", "gradient", "timing")


def check_page(tab: Tab, page: Page, figures: tuple[str, ...], size: tuple[int, int]) -> None:
    """No errors, no requests but for the page; every figure has a sensible size and lies within the window."""
    tab.open(page, size)
    assert tab.errors() == []
    assert [url for url in tab.requests() if not url.startswith("data:")] == [page.path.as_uri()]
    width, _ = size
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert sorted(tab.run("[...document.querySelectorAll('figure')].map(e => e.id)")) == sorted(figures)
    for figure in figures:
        box = tab.box(f"#{figure} svg")
        assert box["left"] >= 0 and box["right"] <= width, figure
        assert box["width"] > (250 if width > 800 else 0.8 * width) and 80 < box["height"] < 700, figure
        marks = f"#{figure} svg g :is(path, rect), #{figure} canvas"
        assert tab.run("document.querySelectorAll(arguments[0]).length", marks) > 0, figure
        # Texts lie within the drawing, and numbers along an axis do not run into one another.
        boxes = tab.run("[...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect().toJSON())",
                        f"#{figure} svg text")  # fmt: skip
        assert all(box["left"] - 1 <= each["left"] and each["right"] <= box["right"] + 1 for each in boxes), figure
        lowest = max(each["top"] for each in boxes[:-2])
        along = sorted((each["left"], each["right"]) for each in boxes if abs(each["top"] - lowest) < 1)
        assert all(right < left for (_, right), (left, _) in pairwise(along)), (figure, along)
    tiles = tab.run("[...document.querySelectorAll('.tiles dd')].filter(e => e.scrollWidth > e.clientWidth).length")
    assert tiles == 0


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_gplvm_page(size: tuple[int, int], tab: Tab, gplvm: Page) -> None:
    check_page(tab, gplvm, GPLVM, size)


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_regression_page(size: tuple[int, int], tab: Tab, regression: Page) -> None:
    check_page(tab, regression, REGRESSION, size)


def test_text_has_the_right_figures(tab: Tab, gplvm: Page) -> None:
    tab.open(gplvm)
    text = " ".join(tab.run("document.body.innerText").split())
    n = len(gplvm.drawn["latent"]["rows"])
    for words in ("noise precision β 25", "seed 7", "bound ended at 39 nats", "mpigp fit data.h5 -o 'a model.h5'"):
        assert words in text
    assert ("All 50 rows are drawn" if n == 50 else "4,000 of the 1,000,000 rows") in text
    assert tab.run("[...document.querySelectorAll('#latent .legend button')].map(e => e.textContent)") == list("abcde")


def test_hovering_shows_the_row(tab: Tab, gplvm: Page) -> None:
    """The mouse goes to where some rows must be, worked out from their numbers and the axes' own labels."""
    tab.open(gplvm)
    tab.run("(e => { e.click(); })(document.querySelector('#unsure'))")
    latent, labels = gplvm.drawn["latent"], gplvm.drawn["labels"]
    across, up = np.argsort(-np.array(gplvm.drawn["alpha"]))[:2]
    mu = np.array([latent["mu"][across], latent["mu"][up]])
    far = [int(place) for axis in mu for place in (axis.argmin(), axis.argmax())]  # alone, or nearly
    for place in far:
        tab.box("#latent svg")
        x, y = where(tab, *mu[:, place])
        words = tab.hover(x, y).split("\n")
        row = int(words[0].removeprefix("row ").replace(",", ""))
        found = latent["rows"].index(row)
        assert np.hypot(*(np.subtract(where(tab, *mu[:, found]), (x, y)))) < 2
        assert words[1] == f"label {labels['names'][labels['values'][found]]}"
        assert labels["names"][labels["values"][found]] == "abcde"[row % CYCLE]
        for dimension, line in zip((across, up), words[2:], strict=True):
            assert line.startswith(f"dimension {dimension}: ")
            value, spread = line.replace("−", "-").split(": ")[1].split(" ± ")
            assert float(value) == pytest.approx(latent["mu"][dimension][found], rel=1e-4)
            assert float(spread) == pytest.approx(latent["sd"][dimension][found], rel=0.1)
    assert tab.hover(2, 2) == ""


def where(tab: Tab, x: float, y: float, figure: str = "latent") -> tuple[float, float]:
    """Where in the window a point of a figure lies, by the numbers along its axes."""
    ticks = tab.run(
        "[...document.querySelectorAll(arguments[0])].filter(e => !e.classList.contains('title'))"
        ".map(e => [e.getAttribute('text-anchor'), e.textContent, e.getBoundingClientRect().toJSON()])",
        f"#{figure} svg text",
    )
    places = []
    for anchor, low, high, value in (("middle", "left", "right", x), ("end", "top", "bottom", y)):
        known = [(float(text.replace("−", "-").replace(",", "")), (box[low] + box[high]) / 2)
                 for kind, text, box in ticks if kind == anchor]  # fmt: skip
        slope, start = np.polyfit(*zip(*known, strict=True), 1)
        places.append(float(slope * value + start))
    return places[0], places[1]


def test_another_pair_of_dimensions_is_drawn(tab: Tab, gplvm: Page) -> None:
    tab.open(gplvm)
    before, titles = tab.pixels("latent"), tab.texts("latent")
    first, second, third = (int(k) for k in np.argsort(-np.array(gplvm.drawn["alpha"])))
    assert titles[-2:] == [f"dimension {first}", f"dimension {second}"]
    tab.choose("up", third)
    assert tab.pixels("latent") != before
    assert tab.texts("latent")[-2:] == [f"dimension {first}", f"dimension {third}"]
    chosen = "[...document.querySelectorAll('#ard rect.bar')].map((e, k) => e.classList.contains('chosen') ? k : -1)"
    assert sorted(k for k in tab.run(chosen) if k >= 0) == sorted([first, third])
    tab.choose("up", second)
    assert tab.pixels("latent") == before


def test_uncertainty_and_labels_can_be_taken_away(tab: Tab, gplvm: Page) -> None:
    tab.open(gplvm)
    pictures = [tab.pixels("latent")]
    tab.run("document.querySelector('#unsure').click()")
    pictures.append(tab.pixels("latent"))
    tab.run("document.querySelector('#latent .legend button').click()")
    pictures.append(tab.pixels("latent"))
    assert len(set(pictures)) == 3
    pressed = tab.run("[...document.querySelectorAll('#latent .legend button')].map(e => e.ariaPressed)")
    assert pressed == ["true", "false", "false", "false", "false"]
    tab.run("document.querySelector('#latent .legend button').click()")  # none is left: all are back
    assert tab.pixels("latent") == pictures[1]
    assert tab.errors() == []


def test_predictions_hover_and_change(tab: Tab, regression: Page) -> None:
    tab.open(regression)
    drawn = regression.drawn["predictions"]
    before = tab.pixels("predictions")
    for output in (0, 1):
        if output:
            tab.choose("output", output)
            assert tab.pixels("predictions") != before
        xs, ys = (drawn["x"], drawn["truth"][output]) if drawn["x"] else (drawn["truth"][output], drawn["mean"][output])
        tab.box("#predictions svg")
        x, y = where(tab, xs[int(np.argmax(ys))], max(ys), "predictions")
        words = tab.hover(x, y).split("\n")
        place = drawn["rows"].index(int(words[0].removeprefix("row ").replace(",", "")))
        assert np.hypot(*np.subtract(where(tab, xs[place], ys[place], "predictions"), (x, y))) < 2
        assert float(words[-2].removeprefix("true ").replace("−", "-")) == pytest.approx(drawn["truth"][output][place])
    assert tab.errors() == []


def test_other_figures_tell_their_numbers(tab: Tab, gplvm: Page) -> None:
    tab.open(gplvm)
    told = {}
    for figure in GPLVM[1:]:
        box = tab.box(f"#{figure} svg")
        told[figure] = tab.hover(box["left"] + 0.6 * box["width"], box["top"] + 0.5 * box["height"])
    assert told["ard"].startswith("dimension ") and "α = " in told["ard"]
    for figure in ("bound-iterations", "bound-seconds", "gradient"):
        assert told[figure].startswith("iteration ")
    script = "[...document.querySelectorAll('#timing svg text[text-anchor=end]')].map(e => e.textContent)"
    assert tab.run(script) == ["0", "1"]  # each rank has its number
    assert told["timing"].startswith("rank 1, ") and told["metrics"].startswith("until iteration ")


def test_dark_scheme_and_print(tab: Tab, gplvm: Page) -> None:
    tab.open(gplvm)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.run(ground)
    tab.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    try:
        assert tab.run(ground) != light
        paper = tab.tell("Page.printToPDF", printBackground=True)["data"]
        tab.tell("Emulation.setEmulatedMedia", media="print")
        assert tab.run(ground) == light
    finally:
        tab.tell("Emulation.setEmulatedMedia", media="", features=[])
    assert len(paper) > 10_000
    assert tab.run("document.documentElement.className") == ""  # as it was before it was printed
    assert tab.errors() == []


def test_a_page_of_an_old_file(tab: Tab, tmp_path: Path) -> None:
    model, _ = write_gplvm(tmp_path, 50, q=1, iterations=0)
    with h5py.File(model, "r+") as file:
        del file["timing"], file["trace"], file.attrs["command"]
    check_page(tab, report(model), ("latent", "ard"), LAPTOP)
