"""Scaling studies: the model finds the costs that it was shown, tables and pages tell the files' numbers, and what is
wrong is refused."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from mpigp.chunks import chunk_count, share
from mpigp.cli import execute
from mpigp.scaling.costs import (
    BOTTLENECKS,
    MAX_RANKS,
    TERMS,
    Layout,
    busiest_rows,
    cross_validate,
    fit,
    forecast,
    layout_of,
)
from mpigp.scaling.interconnects import NETWORKS, Interconnect
from mpigp.scaling.study import read_study
from mpigp.scaling.summary import cells, markdown, summary
from tests.support.calling import command
from tests.support.reports import read_page
from tests.support.studies import BYTES, COSTS, figures, write_point, write_study

COUNTS = [1, 2, 4, 8, 16]
RECORDED = Path(__file__).parents[1] / "recorded" / "scaling"
WITHIN = 0.10  # that a prediction for a count left out of the fit may be off


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MPI in this process left behind is no launcher's."""
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI_", "PMIX_", "SLURM_")):
            monkeypatch.delenv(name)


def report(folder: Path, capsys: pytest.CaptureFixture, *options: object) -> dict:
    capsys.readouterr()
    command("scaling", "report", folder, "--json", *options)
    return json.loads(capsys.readouterr().out.splitlines()[-1])


# the model


@pytest.mark.parametrize("n", [1, 63, 64, 1000, 4097, 33_000, 100_000])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 16, 65, 300])
def test_the_busiest_rank_is_that_of_the_program(n: int, ranks: int) -> None:
    assert busiest_rows(n, ranks, 1) == max(share(n, rank, ranks).rows for rank in range(ranks))


def test_threads_share_whole_chunks() -> None:
    n = 100_000  # 196 chunks of 512 rows, the last of 160
    assert chunk_count(n) == 196
    assert busiest_rows(n, 1, 4) == 49 * 512
    assert busiest_rows(n, 2, 4) == 25 * 512
    assert busiest_rows(n, 200, 2) == 512


def test_a_fit_finds_the_costs(tmp_path: Path) -> None:
    """From exact seconds, on a machine whose cores are shared beyond four ranks."""
    study = read_study(write_study(tmp_path, COUNTS))
    np.testing.assert_allclose(fit(study.points), COSTS, rtol=1e-6)
    assert [layout_of(point).shared for point in study.points] == [False, False, False, True, True]
    errors = cross_validate(study.points)
    assert list(errors) == COUNTS and max(map(abs, errors.values())) < 1e-6


def test_too_few_counts_leave_none_out(tmp_path: Path) -> None:
    assert cross_validate(read_study(write_study(tmp_path, [1, 2])).points) == {}
    assert fit(read_study(write_study(tmp_path / "one", [1])).points).per_row == pytest.approx(COSTS.per_row)


def test_terms_are_what_they_say() -> None:
    layout = Layout(100_000, 8, 1, 8, BYTES)
    terms = COSTS.terms(layout)
    assert tuple(terms) == TERMS
    most = max(share(100_000, rank, 8).rows for rank in range(8))
    assert terms["compute"] == pytest.approx(1e-6 * 100_000 / 8)
    assert terms["compute"] + terms["imbalance"] == pytest.approx(1e-6 * most)
    assert terms["latency"] == pytest.approx(2e-6 * 12 * 3)
    assert terms["bandwidth"] == pytest.approx(2 * 7 / 8 * BYTES * 1e-9)
    shared = COSTS.terms(layout._replace(cores=2))
    assert shared["compute"] == pytest.approx(1e-6 * 100_000 / 2) and shared["imbalance"] == 0
    for name in ("algebra", "latency", "bandwidth"):
        assert shared[name] == pytest.approx(4 * terms[name])
    assert sum(COSTS.terms(Layout(10, 1, 1, 1, BYTES))[name] for name in ("latency", "bandwidth", "imbalance")) == 0


def test_predictions_of_a_real_study(capsys: pytest.CaptureFixture) -> None:
    """A study that was measured: each count is foretold from the others, also beyond and below them."""
    study = read_study(RECORDED)
    assert [point.ranks for point in study.points] == COUNTS
    errors = report(RECORDED, capsys)["forecast"]["errors"]
    assert sorted(map(int, errors)) == COUNTS
    for ranks, error in errors.items():
        others = [point for point in study.points if point.ranks != int(ranks)]
        (left,) = (point for point in study.points if point.ranks == int(ranks))
        assert error == pytest.approx(fit(others).seconds(layout_of(left)) / left.seconds - 1)
        assert abs(error) < WITHIN, ranks


def test_a_real_study_of_two_ranks_is_efficient() -> None:
    lines = summary(read_study(RECORDED))
    two = next(line for line in lines if line.ranks == 2)
    assert not two.shared and two.efficiency >= 0.92
    assert {(line.messages, line.bytes) for line in lines} == {(4, BYTES)}


@pytest.mark.parametrize("kind", ["strong", "weak"])
def test_the_forecast_is_the_costs_on_another_interconnect(kind: str, tmp_path: Path) -> None:
    study = read_study(write_study(tmp_path, COUNTS, kind))
    network = Interconnect("given", 5e-6, 1e9, "given")
    found, costs = forecast(study, network), COSTS._replace(latency=5e-6, per_byte=1e-9)
    assert found.ranks[0] == 1 and found.ranks[-1] == MAX_RANKS == 4096

    def efficiency(ranks: int) -> float:
        n = 100_000 * (ranks if kind == "weak" else 1)
        one, many = (costs.seconds(Layout(rows, p, 1, p, BYTES)) for rows, p in ((100_000, 1), (n, ranks)))
        return one / many / (ranks if kind == "strong" else 1)

    np.testing.assert_allclose(found.efficiency, [efficiency(ranks) for ranks in found.ranks], rtol=1e-6)
    np.testing.assert_allclose(found.speedup, np.array(found.efficiency) * found.ranks)
    if kind == "weak":
        assert found.half is None and min(found.efficiency) > 0.5
    else:
        assert found.half is not None and efficiency(found.half) < 0.5
        assert all(efficiency(ranks) >= 0.5 for ranks in range(1, found.half))


@pytest.mark.parametrize("term", BOTTLENECKS)
def test_the_bottleneck_is_the_term_that_is_made_large(term: str, tmp_path: Path) -> None:
    slow = {"algebra": {"algebra": 0.1}, "master": {"master": 0.1}}.get(term, {})
    costs = COSTS._replace(algebra=1e-7, master=1e-7) if not slow else COSTS._replace(**slow)
    network = {"latency": Interconnect("", 1e-2, 1e12, ""), "bandwidth": Interconnect("", 1e-9, 1e6, "")}
    for ranks in (1, 2, 4):
        write_point(tmp_path, "strong", figures(Layout(100_000, ranks, 1, ranks, BYTES), costs))
    found = forecast(read_study(tmp_path), network.get(term, Interconnect("", 1e-9, 1e12, "")))
    assert found.bottleneck == term
    assert BOTTLENECKS[term] in found.conclusion


# the table and the page


def test_a_summary_is_of_the_files(tmp_path: Path) -> None:
    write_study(tmp_path, COUNTS)
    lines = summary(read_study(tmp_path))
    for line in lines:
        run = json.loads((tmp_path / f"strong-{line.ranks:05d}.json").read_text())["runs"][0]
        assert (line.seconds, line.messages, line.bytes) == (run["seconds"], run["messages"], run["bytes"])
        assert line.memory == max(run["by_rank"]["memory"]) and line.nodes == min(line.ranks, 2)
        assert line.speedup == pytest.approx(lines[0].seconds / line.seconds)
        assert line.efficiency == pytest.approx(line.speedup / line.ranks)
        assert sum(line.shares.values()) == pytest.approx(1)
        rows = [share(100_000, rank, line.ranks).rows for rank in range(line.ranks)]
        assert line.balance == 1 and line.balance_of_rows == pytest.approx(np.mean(rows) / max(rows))
    weak = summary(read_study(write_study(tmp_path / "weak", [2, 4], "weak")))
    assert weak[0].speedup == 2 and weak[0].efficiency == 1
    assert weak[1].efficiency == pytest.approx(weak[0].seconds / weak[1].seconds)
    first, _ = markdown(lines).split("\n\n")
    assert len(first.splitlines()) == 2 + len(lines)
    assert all(line.count("|") == len(cells(lines[0])) + 1 for line in first.splitlines())


def test_several_runs_make_a_median(tmp_path: Path) -> None:
    path = write_study(tmp_path, [1]) / "strong-00001.json"
    record = json.loads(path.read_text())
    slower = {**record["runs"][0], "all_seconds": [9.0, 9.0], "seconds": 9.0}
    path.write_text(json.dumps({**record, "runs": [*record["runs"], slower, slower, slower, slower]}))
    (point,) = read_study(tmp_path).points
    assert point.seconds == 9.0 and point.run == slower and len(point.all_seconds) == 11
    path.write_text(json.dumps({**record, "runs": [*record["runs"], slower, record["runs"][0]]}))
    (point,) = read_study(tmp_path).points  # one run of three was disturbed
    assert point.seconds == record["runs"][0]["seconds"] and point.run == record["runs"][0]


def test_the_page_and_the_pictures(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = write_study(tmp_path / "study", COUNTS)
    pages, pictures = tmp_path / "page.html", tmp_path / "pictures"
    pictures.mkdir()
    told = report(folder, capsys, "-o", pages, "--png", pictures, "--interconnect", "slingshot")
    page = read_page(pages)
    measured = page.drawn["measured"]
    for name in ("ranks", "seconds", "speedup", "efficiency", "balance", "balance_of_rows"):
        np.testing.assert_allclose(measured[name], [line[name] for line in told["measured"]], rtol=1e-4)
    for name, values in measured["shares"].items():
        np.testing.assert_allclose(values, [line["shares"][name] for line in told["measured"]], rtol=1e-4)
    for name in ("ranks", "speedup", "efficiency"):
        np.testing.assert_allclose(page.drawn["forecast"][name], told["forecast"][name], rtol=1e-4)
    for name in TERMS:
        np.testing.assert_allclose(page.drawn["forecast"]["terms"][name], told["forecast"]["terms"][name], rtol=1e-4)
    assert told["forecast"]["interconnect"]["latency"] == NETWORKS["slingshot"].latency
    for words in (
        "Strong scaling",
        "On slingshot",
        "A CPU <of> the 1980s",
        "mpigp scaling strong",
        "2 shared",
        "4 shared",
    ):
        assert (words in page.text) == (words != "2 shared"), words
    assert "http:" not in page.source.replace("http://www.w3.org", "") and "https:" not in page.source
    names = {"scaling", "shares", "balance", "forecast", "terms"}
    assert {path.stem for path in pictures.iterdir()} == names
    assert all(imread(path).std() > 0.01 for path in pictures.iterdir())


def test_a_probe_or_numbers_stand_for_a_network(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = write_study(tmp_path / "study", COUNTS)
    (tmp_path / "probe.json").write_text(json.dumps({"latency": 3e-6, "bandwidth": 2e9}))
    for options in (["--interconnect", tmp_path / "probe.json"], ["--latency", 3e-6, "--bandwidth", 2e9]):
        network = report(folder, capsys, *options)["forecast"]["interconnect"]
        assert (network["latency"], network["bandwidth"]) == (3e-6, 2e9)


# refusals


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strong", "-o", "{new}"], "required: --ranks: mpigp scaling strong --help"),
        (["strong", "--ranks", "1,2"], "required: -o"),
        (["strong", "--ranks", "0,2", "-o", "{new}"], "--ranks"),
        (["strong", "--ranks", "two", "-o", "{new}"], "--ranks"),
        (["strong", "--ranks", "1", "-o", "{new}", "--latent", 3], "--latent"),
        (["strong", "--ranks", "1", "-o", "{new}", "--model", "gplvm", "--inputs", 3], "--inputs"),
        (["strong", "--ranks", "1", "-o", "{new}", "--outputs", 0], "--outputs"),
        (["strong", "--ranks", "1", "-o", "{new}", "--rows", 50], "--inducing"),
        (["strong", "--ranks", "1", "-o", "{new}", "--timeout", 0], "--timeout"),
        (["strong", "--ranks", "1", "-o", "{new}", "--png", "x"], "--png: mpigp scaling strong --help"),
        (["strong", "{new}/none.h5", "--ranks", "1", "-o", "{new}"], "none.h5: does not exist"),
        (["strong", "{new}/none.h5", "--ranks", "1", "-o", "{new}", "--rows", 10], "--rows"),
        (["weak", "{new}/none.h5", "--ranks", "1", "-o", "{new}"], "DATA"),
        (["strong", "--ranks", "1", "-o", "{new}", "--x", "A"], "--x and --y"),
        (["strong", "--ranks", "1", "-o", "{study}", "--rows", 2000], "strong-00002.json: is of another study"),
        (["weak", "--ranks", "1", "-o", "{study}"], "is of another study"),
        (["strong", "--ranks", "1", "-o", "{study}/strong-00001.json"], "cannot be made"),
        (["report"], "required: DIR"),
        (["report", "{new}"], "is no folder"),
        (["report", "{empty}"], "holds no runs"),
        (["report", "{study}", "--rows", 3], "--rows 3: mpigp scaling report --help"),
        (["report", "{study}", "-o", "{new}/page.html"], "does not exist"),
        (["report", "{study}", "--png", "{new}"], "is no folder"),
        (["report", "{study}", "--interconnect", "string"], "--interconnect: string is neither"),
        (["report", "{study}", "--interconnect", "{study}/strong-00001.json"], "is no file of `mpigp scaling probe`"),
        (["report", "{study}", "--latency", 1e-6], "--latency and --bandwidth"),
        (["report", "{study}", "--latency", 1e-6, "--bandwidth", 0], "bandwidth > 0"),
        (["report", "{study}", "--latency", 1, "--bandwidth", 1, "--interconnect", "slingshot"], "leave one out"),
        (["report", "{mixed}"], "is of another study"),
        (["report", "{broken}"], "is no file of a scaling study"),
        (["probe"], "needs at least 2 ranks"),
        (["probe", "{new}"], "unrecognized arguments: "),
    ],
)  # fmt: skip
def test_refusals(words: list, said: str, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    folders = {name: tmp_path / name for name in ("study", "mixed", "broken", "empty", "new")}
    write_study(folders["study"], [1, 2])
    write_study(folders["mixed"], [1])
    write_study(folders["mixed"], [2], rows=5000)
    (write_study(folders["broken"], [1]) / "strong-00002.json").write_text('{"format": "mpigp-scaling"}')
    folders["empty"].mkdir()
    assert execute(["scaling", *(str(word).format(**folders) for word in words)]) == 2
    out, error = capfd.readouterr()
    assert out == "" and error.startswith("mpigp: ") and error.count("\n") == 1
    assert said in error


def test_under_a_launcher_a_study_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert execute(["scaling", "strong", "--ranks", "1", "-o", str(tmp_path)]) == 2


# Slurm


def test_a_job_for_each_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """With a stand-in for sbatch that notes its arguments; each job's command line is a study of one count."""
    sbatch, notes, folder = tmp_path / "sbatch", tmp_path / "notes", tmp_path / "a study"
    sbatch.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" END >> {notes}\necho "$(wc -l < {notes});cluster"\n')
    sbatch.chmod(sbatch.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command("scaling", "strong", "--ranks", "4,1", "-o", folder, "--slurm=--partition=short --time=5", "--rows", 999,
            "--threads", 2, "--json")  # fmt: skip
    jobs = notes.read_text().split("END\n")[:-1]
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["jobs"]
    assert list(told) == ["1", "4"] and all(number.isdigit() for number in told.values())
    for ranks, job in zip((1, 4), jobs, strict=True):
        words = job.splitlines()
        for word in ("--parsable", f"--ntasks={ranks}", "--cpus-per-task=2", "--partition=short", "--time=5"):
            assert word in words
        inside = shlex.split(words[-1].removeprefix("--wrap=exec "))
        assert inside[1:5] == ["-m", "mpigp", "scaling", "strong"]
        for option, value in {"--ranks": ranks, "--rows": 999, "--threads": 2, "-o": folder}.items():
            assert inside[inside.index(option) + 1] == str(value)
        assert "--slurm" not in inside
    sbatch.write_text("#!/bin/sh\necho 'sbatch: error: no such partition' >&2\nexit 1\n")
    assert execute(["scaling", "strong", "--ranks", "1", "-o", str(folder), "--slurm"]) == 2
    assert "no such partition" in capsys.readouterr().err
