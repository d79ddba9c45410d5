"""The tour: what it says it did, it did."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.fits import differences
from tests.support.launching import ROOT, Outcome, run, start
from tests.support.pages import Block, blocks, disagreement

LIMIT = 600  # seconds: many times what it takes, so that only a hang meets it
WITHOUT_RECOVERY = """
import mpigp.commands.demo, mpigp.cli
mpigp.commands.demo.mpi_version = lambda mpiexec: "HYDRA build details"
mpigp.cli.main(["demo", "new/tour", "--rows", "300", "--json"])
"""


@pytest.fixture(scope="module")
def toured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    place = tmp_path_factory.mktemp("tour")
    return place / "demo", run(None, "demo", "--rows", 300, "--json", cwd=place, timeout=LIMIT)


def test_it_ends_well_and_names_its_report(toured: tuple[Path, Outcome]) -> None:
    folder, outcome = toured
    assert outcome.code == 0, outcome
    assert (folder / "report.html").is_file()
    assert "The report is demo/report.html" in outcome.stdout


def test_it_says_what_its_page_shows(toured: tuple[Path, Outcome]) -> None:
    (shown,) = [
        text.text
        for block, text in pairwise(blocks(ROOT / "docs" / "start.md"))
        if block == Block("sh ci", "mpigp demo", block.line)
    ]
    said = toured[1].stdout.rpartition("\n{")[0]  # but for the JSON
    assert disagreement(shown, said) == ""


def test_a_rank_was_killed_and_the_job_outlived_it(toured: tuple[Path, Outcome]) -> None:
    _, outcome = toured
    figures = outcome.figures
    assert 100 <= figures["killed_at"] < 500
    assert f"Rank 1 was killed after iteration {figures['killed_at']}" in outcome.stdout
    if figures["ranks_left"] == 1:
        assert "mpigp: rank 1 was lost: going on with 1" in outcome.ours
        assert "the other went on alone" in outcome.stdout
    else:  # the last line of defence: now and then the MPI ends the whole job all the same
        assert any("the job died: starting it again" in line for line in outcome.ours), outcome
        assert "the whole job died of it, and was started again" in outcome.stdout


def test_the_bits_are_those_of_the_fit_in_which_nobody_died(toured: tuple[Path, Outcome]) -> None:
    folder, outcome = toured
    assert outcome.figures["same_bits"] is True
    assert "Both models have the same bits." in outcome.stdout
    assert differences(folder / "undisturbed.h5", folder / "model.h5") == []


def test_where_the_mpi_cannot_nobody_is_killed_and_it_says_so(tmp_path: Path) -> None:
    outcome = start(sys.executable, "-c", WITHOUT_RECOVERY, cwd=tmp_path, timeout=LIMIT)
    assert outcome.code == 0, outcome
    assert "so none is killed" in outcome.stdout
    assert "No rank was killed." in outcome.stdout
    assert (outcome.figures["killed_at"], outcome.figures["ranks_left"]) == (None, 2)


@pytest.mark.parametrize(("words", "said"), [(("--rows", 29), "give a number ≥ 30"), (("f/x",), "choose another")])
def test_bad_usage_is_refused(words: tuple, said: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    outcome = run(None, "demo", *words, cwd=tmp_path)
    assert (outcome.code, len(outcome.ours)) == (2, 1)
    assert said in outcome.ours[0]
    assert not (tmp_path / "demo" / "oilflow.h5").exists()
