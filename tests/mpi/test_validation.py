"""Rows to validate by on several ranks: the same bits of model and scores, however the rows are held, whoever dies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpigp.chunks import chunk_count
from tests.mpi.campaign import ITERATIONS, SETTINGS, Run
from tests.support.calling import read
from tests.support.fits import OPTIMIZERS, Case, Made, differences, fit, made
from tests.support.inputs import Inputs, change, write_inputs
from tests.support.launching import end_session, run, several
from tests.support.refusals import assert_refused

N, M, Q, D = 400, 7, 2, 3
FRACTION = 0.3  # five chunks remain, and two are held out: fewer than ranks
DECOMPOSITIONS = [(2, 1), (3, 1), (5, 1), (2, 2)]  # ranks, threads
SHORT = ("--max-iter", 23, "--hold", 6, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 3)
TINY = 1  # bytes: a block of streamed rows is one chunk
FIGURES = ("bound", "iterations", "stopped", "validation_rows", "validation_rmse", "validation_nlpd")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "regression", N, M, Q, D)


@pytest.fixture(scope="module")
def cases(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    other = write_inputs(tmp_path_factory.mktemp("other"), "regression", 150, M, Q, D).data
    options: dict[str, list[object]] = {name: ["--validate", FRACTION, "--optimizer", name] for name in OPTIMIZERS}
    options["file"] = ["--validate", other, "--validate-every", 4]
    options["patience"] = ["--validate", other, "--validate-every", 2, "--patience", 1, "--max-iter", 200]
    return [Case(name, fit(inputs, Path(), "regression", *SHORT, *more, m=M)) for name, more in options.items()]


@pytest.fixture(scope="module")
def alone(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Made:
    return made(cases, tmp_path_factory.mktemp("alone"), 1, 1)


def test_there_are_fewer_chunks_than_ranks() -> None:
    held = round(FRACTION * N)
    assert (chunk_count(N - held), chunk_count(held)) == (5, 2)


def test_the_fits_were_scored(cases: list[Case], alone: Made) -> None:
    """Equal files would prove nothing without scores."""
    for case in cases:
        nlpd = read(alone.folder / f"{case.name}.h5")["trace/validation_nlpd"]
        scored = nlpd[~np.isnan(nlpd)]
        assert len(scored) >= 3 and len(set(scored)) == len(scored) and scored[-1] == nlpd[-1]
    assert alone.figures["patience"]["stopped"].startswith("the NLPD of the validation rows")


@pytest.mark.parametrize(("ranks", "threads"), DECOMPOSITIONS)
def test_models_and_scores_have_the_same_bits(
    ranks: int, threads: int, cases: list[Case], alone: Made, tmp_path: Path
) -> None:
    figures = made(cases, tmp_path, ranks, threads).figures
    for case in cases:
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name
        assert [figures[case.name][key] for key in FIGURES] == [alone.figures[case.name][key] for key in FIGURES]


@pytest.mark.parametrize("ranks", [1, 3])
def test_streamed_rows_have_the_same_bits(ranks: int, cases: list[Case], alone: Made, tmp_path: Path) -> None:
    commands = [
        [*case.arguments, "-o", tmp_path / f"{case.name}.h5", "--rows-in-memory", "stream", "--json"] for case in cases
    ]
    for case, outcomes in zip(cases, several(tmp_path / "told", ranks, commands, block_bytes=TINY), strict=True):
        assert [outcome.code for outcome in outcomes] == [0] * ranks, (case.name, outcomes)
        assert outcomes[0].figures["rows_in_memory"] is False
        assert differences(alone.folder / f"{case.name}.h5", tmp_path / f"{case.name}.h5") == [], case.name


@pytest.mark.parametrize("name", ["lbfgs", "scg", "file", "patience"])
def test_a_resumed_fit_ends_as_if_never_stopped(name: str, cases: list[Case], alone: Made, tmp_path: Path) -> None:
    """Stopped where no score is due, which has one then, and continued on other ranks."""
    (case,) = (each for each in cases if each.name == name)
    words = [*case.arguments, "-o", tmp_path / "model.h5"]
    for ranks, more in ((2, ["--max-iter", 11]), (3, ["--resume"])):
        ((first, *_),) = several(tmp_path / f"told{ranks}", ranks, [[*words, *more]])
        assert first.code == 0, first
        left = read(tmp_path / "model.h5")["trace/validation_nlpd"]
        assert np.isfinite(left[-1])
    assert differences(alone.folder / f"{name}.h5", tmp_path / "model.h5") == []


@pytest.mark.parametrize("victims", [[1], [0, 2]], ids=["one", "the master and another"])
def test_the_others_go_on_to_the_same_bits(victims: list[int], inputs: Inputs, tmp_path: Path) -> None:
    options = ("--validate", FRACTION, "--validate-every", 3, "--patience", ITERATIONS)
    alone = tmp_path / "alone.h5"
    assert run(None, *fit(inputs, alone, "regression", *SETTINGS, *options)).code == 0
    each = Run(inputs, "regression", tmp_path, 4, *options)
    try:
        each.wait(lambda: each.iterations() >= 10)
        assert each.kill(victims) == len(victims), each.said
        each.held.go()
        assert each.end() == 0, each.said
    finally:
        end_session(each.process.pid)
    assert "lost: going on with" in each.said
    assert differences(alone, each.output) == []


def test_a_row_that_only_one_rank_reads_is_refused_by_all(inputs: Inputs, tmp_path: Path) -> None:
    held = write_inputs(tmp_path, "regression", 300, M, Q, D).data
    change(held, "Y", (290, 1), np.nan)
    output = tmp_path / "model.h5"
    commands = [
        fit(inputs, output, "regression", "--validate", held, "--rows-in-memory", how) for how in ("all", "stream")
    ]
    for outcomes in several(tmp_path / "told", 2, commands):
        assert [outcome.code for outcome in outcomes] == [2, 2]
        assert_refused(outcomes[0], f"{held}: /Y: row 290 (counted from 0) holds NaN")
    assert not output.exists()
