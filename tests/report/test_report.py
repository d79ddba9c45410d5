"""The report: the numbers on its page are those of the files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from matplotlib.image import imread

from mpigp.mpi.timers import PHASES
from mpigp.report.document import number
from mpigp.report.figures import BLOCK, MOST, evenly, thinned
from mpigp.report.fitted import ITERATIONS
from tests.support.inputs import change, replace
from tests.support.reports import CYCLE, Page, read_page, report, write_gplvm, write_metrics, write_regression

SHORT = 1e-5  # numbers are drawn with five digits, so half a unit of the fifth is at most 5e-5 of them


def near(values: object, wanted: object) -> bool:
    return bool(np.allclose(np.array(values, float), wanted, rtol=5 * SHORT, atol=0))


# thinning


@pytest.mark.parametrize("n", [1, 50, MOST])
def test_few_rows_are_all_shown(n: int) -> None:
    assert thinned(n).tolist() == list(range(n))


@pytest.mark.parametrize("n", [MOST + 1, 10**6, 10**6 + 1])
def test_many_rows_are_thinned_evenly(n: int) -> None:
    """One row of each of MOST runs, whose lengths differ by at most one."""
    rows, edges = thinned(n), np.array([run * n // MOST for run in range(MOST + 1)])
    assert np.ptp(np.diff(edges)) <= 1
    assert (edges[:-1] <= rows).all() and (rows < edges[1:]).all()


@pytest.mark.parametrize("cycle", [2, 10, 250])
def test_thinning_misses_no_class_of_rows_in_a_cycle(cycle: int) -> None:
    counts = np.bincount(thinned(10**6) % cycle, minlength=cycle)
    assert counts.min() > 0
    assert counts.max() < 4 * MOST / cycle + 10


def test_iterations_are_thinned_with_both_ends() -> None:
    assert evenly(5, 10).tolist() == [0, 1, 2, 3, 4]
    places = evenly(10**5, 100)
    assert len(places) == 100 and places[0] == 0 and places[-1] == 10**5 - 1
    assert evenly(0, 10).size == 0 and evenly(1, 10).tolist() == [0]


# the GPLVM's page


@pytest.fixture(scope="module")
def gplvm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_gplvm(tmp_path_factory.mktemp("gplvm"), 50)


@pytest.fixture(scope="module")
def gplvm_page(gplvm: tuple[Path, Path]) -> Page:
    model, data = gplvm
    return report(model, "--data", data)


def test_latent_space(gplvm: tuple[Path, Path], gplvm_page: Page) -> None:
    with h5py.File(gplvm[0]) as file:
        mu, S, alpha = file["latent/mu"][()], file["latent/S"][()], file["kernel/alpha"][()]
    drawn = gplvm_page.drawn
    assert drawn["latent"]["rows"] == list(range(50))
    assert near(drawn["latent"]["mu"], mu.T) and near(drawn["latent"]["sd"], np.sqrt(S.T))
    assert near(drawn["alpha"], alpha)
    assert drawn["labels"] == {"names": list("abcde"), "values": [row % CYCLE for row in range(50)]}
    first, second = np.argsort(-alpha)[:2]
    across, up = gplvm_page.source.split('<select id="up">')
    assert f'<option value="{first}" selected>' in across and f'<option value="{second}" selected>' in up
    assert "All 50 rows are drawn." in gplvm_page.text


def test_parameters_and_how_it_was_made(gplvm_page: Page) -> None:
    for words in (
        "Bayesian GPLVM",
        "rows n 50",
        "inducing points m 6",
        "latent dimensions q 3",
        "outputs d 2",
        "kernel variance σ_f² 1.44",
        "noise precision β 25",
        "noise σ 0.2",
        "signal to noise σ_f² β 36",
        "jitter 1e−6",
        "seed 7",
        "stopped because the gradient's norm fell below the tolerance",
        "mpigp fit data.h5 -o 'a model.h5'",
        "python 3.11.9",
        "MPI Open MPI v5.0.11",
        "cpu A CPU of the 1980s",
    ):
        assert words in gplvm_page.text


def test_learning_and_time(gplvm: tuple[Path, Path], gplvm_page: Page) -> None:
    with h5py.File(gplvm[0]) as file:
        trace = {name: item[()] for name, item in file["trace"].items()}
        seconds, rows = file["timing/phases"][()], file["timing/rows"][()]
    learning, timing = gplvm_page.drawn["learning"], gplvm_page.drawn["timing"]
    assert learning["iteration"] == list(range(1, 41))
    assert np.allclose(learning["bound"], trace["bound"], rtol=1e-9, atol=0)
    assert near(learning["gradient_norm"], trace["gradient_norm"]) and near(learning["seconds"], trace["seconds"])
    assert "40 iterations, 41 evaluations, 20 s; the bound ended at 39 nats" in gplvm_page.text
    low, high = learning["frame"]
    below = np.flatnonzero(trace["bound"] < low)
    assert low < high and high > 39 and f"up to {below[-1] + 1}, lie below the frame" in gplvm_page.text
    assert timing["names"] == list(PHASES) and timing["rows"] == rows.tolist() and timing["ranks"] == [0, 1]
    assert near(timing["seconds"], seconds.T)
    work = seconds[:, PHASES.index("statistics")] + seconds[:, PHASES.index("gradients")]
    assert f"Load balance {100 * work.mean() / work.max():.1f} %" in gplvm_page.text
    wait = seconds[:, PHASES.index("wait")]
    assert (
        f"wait {wait.mean():.3g} {wait.min():.3g} {wait.max():.3g} {wait.sum() / seconds.sum():.1%}".replace("%", " %")
        in gplvm_page.text
    )


def test_a_million_rows(tmp_path: Path) -> None:
    model, data = write_gplvm(tmp_path, 10**6, q=2, iterations=3 * ITERATIONS)
    page = report(model, "--data", data)
    assert len(page.source) < 10**6
    assert "A random sample of 4,000 of the 1,000,000 rows is drawn, spread evenly" in page.text
    assert "2,000 of the iterations, evenly spaced" in page.text
    rows = np.array(page.drawn["latent"]["rows"])
    assert rows.tolist() == thinned(10**6).tolist() and rows[-1] > BLOCK  # of more than one block
    assert page.drawn["labels"]["values"] == (rows % CYCLE).tolist()
    with h5py.File(model) as file:
        assert near(page.drawn["latent"]["mu"], file["latent/mu"][()][rows].T)
        assert page.drawn["learning"]["iteration"][-1] == len(file["trace/bound"])


# labels


def with_labels(folder: Path, labels: np.ndarray, *options: object, name: str = "labels", n: int = 50) -> Page:
    model, data = write_gplvm(folder, n)
    replace(data, "labels", None)
    replace(data, name, labels)
    return report(model, "--data", data, *options)


def test_one_hot_labels(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(4, size=50)
    page = with_labels(tmp_path, np.eye(4, dtype=np.uint8)[numbers], "--labels", "kind", name="kind")
    assert page.drawn["labels"] == {"names": list("0123"), "values": numbers.tolist()}


def test_of_many_labels_the_most_frequent_have_colors(tmp_path: Path) -> None:
    numbers = np.repeat(np.arange(20), np.r_[np.ones(10, int), np.full(10, 4)])
    labels = with_labels(tmp_path, 100 * numbers, n=50).drawn["labels"]
    assert sorted(map(int, labels["names"][:10])) == list(range(1000, 2000, 100))
    assert [int(labels["names"][value]) for value in labels["values"]] == (100 * numbers).tolist()


def test_without_labels_there_are_none(tmp_path: Path) -> None:
    model, data = write_gplvm(tmp_path, 50)
    assert "labels" not in report(model).drawn
    replace(data, "labels", None)
    assert "labels" not in report(model, "--data", data).drawn


def test_names_are_text_whatever_is_in_them(tmp_path: Path) -> None:
    model, data = write_gplvm(tmp_path, 50)
    bad = "</script><script>alert(1)</script>"
    with h5py.File(data, "r+") as file:
        file["labels"].attrs["classes"] = [bad] * CYCLE
    with h5py.File(model, "r+") as file:
        file.attrs["command"] = bad
        file.attrs["stopped"] = bad
    named = model.rename(tmp_path / "<b>model&.h5")
    page = report(named, "--data", data)
    assert "alert(1)" not in page.source.replace("\\u003cscript>alert(1)", "").replace("&lt;script&gt;alert(1)", "")
    assert page.drawn["labels"]["names"][0] == bad
    assert "<b>" not in page.source


# regression


def predicted(model: Path, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the variance of the outputs, by the formulas and nothing else."""
    with h5py.File(model) as file:
        x_mean, x_scale, y_mean, y_scale = (file[f"standardize/{name}"][()] for name in
                                            ("x_mean", "x_scale", "y_mean", "y_scale"))  # fmt: skip
        Z = file["Z"][()][file["posterior/order"][()]]
        L, L_B, g = (file[f"posterior/{name}"][()] for name in ("L", "L_B", "g"))
        alpha, variance, beta = file["kernel/alpha"][()], file["kernel/variance"][()], file["beta"][()]
    squares = (alpha * ((X - x_mean) / x_scale - Z[:, None]) ** 2).sum(axis=2)
    whitened = scipy.linalg.solve_triangular(L, np.exp(-0.5 * squares), lower=True)
    twice = scipy.linalg.solve_triangular(L_B, whitened, lower=True)
    y_variance = variance * (1 - (whitened**2).sum(axis=0) + (twice**2).sum(axis=0)) + 1 / beta
    return beta * variance * whitened.T @ g * y_scale + y_mean, y_variance[:, None] * y_scale**2


@pytest.mark.parametrize(("n", "q", "d"), [(50, 1, 1), (50, 3, 2), (10**5, 2, 1)])
def test_predictions(n: int, q: int, d: int, tmp_path: Path) -> None:
    model, data = write_regression(tmp_path, n, q, d)
    page = report(model, "--data", data)
    drawn = page.drawn["predictions"]
    rows = np.array(drawn["rows"])
    assert rows.tolist() == thinned(n).tolist()
    with h5py.File(data) as file:
        X, Y = file["X"][()][rows], file["Y"][()][rows]
    mean, y_variance = predicted(model, X)
    y_sd = np.sqrt(y_variance)
    assert near(drawn["truth"], Y.T) and near(drawn["mean"], mean.T)
    assert near(drawn["y_sd"], np.broadcast_to(y_sd, Y.shape).T)
    scaled = (Y - mean) / y_sd
    rmse = np.sqrt(((Y - mean) ** 2).mean(axis=0))
    nlpd = -np.log(np.exp(-0.5 * scaled**2) / np.sqrt(2 * np.pi * y_variance)).mean(axis=0)
    inside = (np.abs(scaled) <= 2).mean(axis=0)
    for output in range(d):
        told = (number(rmse[output], 4), number(nlpd[output], 4), f"{100 * inside[output]:.1f} %")
        assert f"speed {output} {' '.join(told)}" in page.text
    for level, coverage in zip(drawn["levels"], drawn["coverage"], strict=True):
        limit = math.sqrt(2) * float(scipy.special.erfinv(level))
        assert coverage == pytest.approx((np.abs(scaled) <= limit).mean(), rel=5 * SHORT)
    assert (drawn["curve"] is not None) == (q == 1)
    if q == 1:
        grid = np.array(drawn["curve"]["x"])
        assert grid[0] < X.min() and grid[-1] > X.max() and near(drawn["x"], X[:, 0])
        mean, y_variance = predicted(model, grid[:, None])
        assert np.allclose(drawn["curve"]["mean"], mean.T, rtol=1e-3)  # the grid itself has five digits
        assert np.allclose(drawn["curve"]["y_sd"], np.sqrt(y_variance.T), rtol=1e-3)


def test_regression_without_data(tmp_path: Path) -> None:
    model, _ = write_regression(tmp_path, 50, 2)
    page = report(model)
    assert "predictions" not in page.drawn and len(page.drawn["alpha"]) == 2
    assert "Sparse GP regression" in page.text and "inputs q 2" in page.text


def test_other_names_of_datasets(tmp_path: Path) -> None:
    model, data = write_regression(tmp_path, 50, 1)
    with h5py.File(data, "r+") as file:
        file.move("X", "place")
        file.move("Y", "height")
    assert "speed 0" in report(model, "--data", data, "--x", "place", "--y", "height").text


# files that lack something


def test_a_file_of_an_older_version(tmp_path: Path) -> None:
    model, _ = write_gplvm(tmp_path, 50)
    with h5py.File(model, "r+") as file:
        del file["timing"], file["posterior"]
        for name in ("command", "versions", "machine", "stopped", "seed", "jitter"):
            del file.attrs[name]
    page = report(model)
    assert "timing" not in page.drawn and "The file holds no times" in page.text and "does not tell" in page.text
    assert "seed" not in page.text and "None" not in page.text and "nan" not in page.text


def test_a_checkpoint_without_iterations_and_with_one_dimension(tmp_path: Path) -> None:
    model, _ = write_gplvm(tmp_path, 50, q=1, iterations=0)
    with h5py.File(model, "r+") as file:
        file.attrs["stopped"] = ""
    page = report(model)
    assert "The file holds no iterations" in page.text and "this is a checkpoint" in page.text
    assert "<select" not in page.source


def test_numbers_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    model, _ = write_gplvm(tmp_path, 50)
    change(model, "trace/gradient_norm", 3, math.inf)
    change(model, "trace/bound", 0, -math.inf)
    learning = report(model).drawn["learning"]
    assert learning["gradient_norm"][3] is None and learning["bound"][0] is None
    assert all(map(math.isfinite, learning["frame"]))


def test_many_ranks(tmp_path: Path) -> None:
    model, _ = write_gplvm(tmp_path, 1000, ranks=1000)
    page = report(model)
    assert len(page.drawn["timing"]["ranks"]) == 200 and page.drawn["timing"]["ranks"][-1] == 999
    assert "200 of 1,000 ranks, evenly spaced" in page.text


# metrics


def test_metrics(gplvm: tuple[Path, Path], tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.jsonl", gplvm[0], first=11)
    found = report(gplvm[0], "--metrics", tmp_path / "metrics.jsonl", output="metrics.html").drawn["metrics"]
    assert found["iteration"] == list(range(11, 41))
    assert found["names"] == ["compute", "wait", "messages"] and found["shares"][1] == [0.3] * 30


# pictures


def test_pictures(gplvm: tuple[Path, Path], tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.jsonl", gplvm[0])
    report(gplvm[0], "--data", gplvm[1], "--metrics", tmp_path / "metrics.jsonl", "--png", tmp_path, output="png.html")
    names = {path.stem for path in tmp_path.glob("*.png")}
    assert names == {"latent", "ard", "learning", "timing", "metrics"}
    for q in (1, 2):
        folder = tmp_path / str(q)
        model, data = write_regression(folder, 50, q)
        report(model, "--data", data, "--png", folder)
        assert {path.stem for path in folder.glob("*.png")} == {
            "ard",
            "predictions",
            "calibration",
            "learning",
            "timing",
        }
    for path in tmp_path.rglob("*.png"):
        picture = imread(path)
        assert min(picture.shape[:2]) > 200 and picture[:, :, :3].std() > 0.02, path
    assert list(tmp_path.rglob(".*.part")) == []


def test_an_output_is_replaced_and_figures_are_told(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    model, data = write_gplvm(tmp_path, 50)
    (tmp_path / "report.html").write_text("old")
    report(model, "--data", data, "--json")
    figures = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert figures["written"] == [str(tmp_path / "report.html")]
    with h5py.File(model) as file:
        assert figures["bound"] == file["trace/bound"][-1]
    assert (figures["model"], figures["n"], figures["rows_drawn"]) == ("gplvm", 50, 50)
    assert "Latent space" in read_page(tmp_path / "report.html").text
    assert {path.name for path in tmp_path.iterdir()} == {"model.h5", "data.h5", "report.html"}
