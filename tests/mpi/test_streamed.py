"""Rows in memory or streamed: the same bits, and memory for some blocks of them alone."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest

from tests.mpi.test_same_bits import assert_same_bits
from tests.support.fits import differences, fit
from tests.support.inputs import MODELS, Inputs, change, write_inputs
from tests.support.launching import mpiexec, several

N, M, Q, D = 1009, 7, 2, 3  # sixteen chunks
TINY = 1  # bytes: a block is one chunk
DECOMPOSITIONS = [(1, 1), (3, 1), (2, 2)]  # ranks, threads
SHORT = ["--max-iter", 12, "--hold", 4, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 3]


class Case(NamedTuple):
    """A command line that writes to the file behind `-o`."""

    name: str
    arguments: list[object]


def evaluations(folder: Path) -> list[Case]:
    found = []
    for model in MODELS:
        for n in (3, N):  # fewer rows than ranks
            layout = {"dtype": "f4", "chunks": (100, 1), "compression": "gzip"} if n == N else {}
            inputs = write_inputs(folder / f"{model}{n}", model, n, 2, Q, D, **layout)
            found.append(Case(f"evaluate-{model}-{n}", ["evaluate", *inputs.arguments]))
    return found


def fits(folder: Path) -> list[Case]:
    regression, gplvm = (write_inputs(folder / model, model, N, M, Q, D) for model in MODELS)
    single = write_inputs(folder / "single", "regression", N, M, Q, D, dtype="f4", compression="gzip")
    options = {
        "lbfgs": [],
        "greedy": ["--placement", "greedy", "--standardize", "center"],
        "kmeans": ["--placement", "kmeans", "--standardize", "none"],
        "restarts": ["--restarts", 2, "--hold", 0],
    }
    found = [Case(name, fit(regression, Path(), "regression", *SHORT, *more)) for name, more in options.items()]
    found.append(Case("single", fit(single, Path(), "regression", *SHORT)))
    for start in ("pca", "random"):
        found.append(Case(start, fit(gplvm, Path(), "gplvm", *SHORT, "--init", start)))
    return found


def run(cases: list[Case], folder: Path, mode: str, ranks: int, threads: int) -> None:
    """Run all cases in one start of mpiexec."""
    shared = ["--json", "--rows-in-memory", mode, "--threads", threads]
    commands = [[*case.arguments, *shared, "-o", folder / f"{case.name}.h5"] for case in cases]
    outcomes = several(folder / "told", ranks, commands, threads, TINY)
    for case, each in zip(cases, outcomes, strict=True):
        assert [outcome.code for outcome in each] == [0] * ranks, (case.name, each)
        assert each[0].figures["rows_in_memory"] is (mode != "stream")
        assert ("rows: in memory" in each[0].stdout) is (mode == "auto")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("inputs")
    return evaluations(folder / "evaluate") + fits(folder / "fit")


@pytest.fixture(scope="module")
def held(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held")
    run(cases, folder, "all", 1, 1)
    return folder


@pytest.mark.parametrize(("ranks", "threads"), DECOMPOSITIONS)
def test_the_same_bits(ranks: int, threads: int, cases: list[Case], held: Path, tmp_path: Path) -> None:
    run(cases, tmp_path, "stream", ranks, threads)
    compare(cases, held, tmp_path)


def test_the_same_bits_where_nobody_chooses(cases: list[Case], held: Path, tmp_path: Path) -> None:
    some = [case for case in cases if case.name in ("evaluate-regression-1009", "lbfgs")]
    assert len(some) == 2
    run(some, tmp_path, "auto", 2, 1)
    compare(some, held, tmp_path)


def compare(cases: list[Case], held: Path, folder: Path) -> None:
    """Compare what the cases wrote, bit for bit."""
    for case in cases:
        one, other = held / f"{case.name}.h5", folder / f"{case.name}.h5"
        if case.arguments[0] == "evaluate":
            assert_same_bits(one, other)
        else:
            assert differences(one, other) == []


def test_a_fit_goes_on_in_the_other_way(cases: list[Case], held: Path, tmp_path: Path) -> None:
    (case,) = (each for each in cases if each.name == "lbfgs")
    stopped = Case("resumed", [*case.arguments, "--max-iter", 6])
    run([stopped], tmp_path, "stream", 1, 1)
    run([Case("resumed", [*case.arguments, "--resume"])], tmp_path, "all", 1, 1)
    assert differences(held / "lbfgs.h5", tmp_path / "resumed.h5") == []


def test_what_streams_refuse(tmp_path: Path) -> None:
    """Missing entries are for rows in memory; and NaN are found before anything is made, on whichever rank."""
    inputs = [write_inputs(tmp_path / model, model, N, M, Q, D) for model in MODELS]
    output = tmp_path / "model.h5"
    change(inputs[0].data, "X", (900, 1), np.nan)
    streamed = ["--rows-in-memory", "stream"]
    commands = [
        fit(inputs[1], output, "gplvm", "--missing", *streamed),
        fit(inputs[0], output, "regression", *streamed),
        ["evaluate", *inputs[0].arguments, *streamed],
    ]
    outcomes = several(tmp_path / "told", 2, commands, block_bytes=TINY)
    assert [[each.code for each in outcome] for outcome in outcomes] == [[2, 2]] * 3
    assert not output.exists()
    said = [outcome[0].stderr for outcome in outcomes]
    assert said[0] == ("mpigp: --rows-in-memory: stream is not for rows with missing entries: choose all or auto\n")
    assert all(f"{inputs[0].data}: /X: row 900 (counted from 0) holds NaN" in each for each in said[1:])
    assert all(each.count("\n") == 1 for each in said)


def test_a_file_that_one_rank_can_read_no_longer_ends_them_all(tmp_path: Path) -> None:
    """It may not wait for the others, nor they for it."""
    inputs = write_inputs(tmp_path, "regression", N, M, Q, D)
    words = fit(inputs, tmp_path / "model.h5", "regression", *SHORT, "--rows-in-memory", "stream")
    outcome = mpiexec(2, Path(__file__).with_name("unreadable.py"), 1, 40, *words)
    assert outcome.code != 0
    (line,) = outcome.ours
    assert line.startswith("mpigp: rank 1: OSError: the disk is gone")
    assert not (tmp_path / "model.h5").exists()


# Memory: beyond what Python takes, each of two ranks may have MORE bytes. Its rows alone would be 144 MB.

ROWS, OUTPUTS = 400_000, 88
MORE = 120_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    inputs = write_inputs(tmp_path_factory.mktemp("large"), "regression", 10, 3, Q, OUTPUTS)
    rng = np.random.default_rng(0)
    with h5py.File(inputs.data, "w") as file:
        for name, width in (("X", Q), ("Y", OUTPUTS)):
            file.create_dataset(name, data=rng.standard_normal((ROWS, width), np.float32))
    return inputs


def limited(*arguments: object) -> tuple[int, str, str]:
    """Run a command line on two ranks, each with a limit."""
    outcome = mpiexec(2, Path(__file__).with_name("limited.py"), MORE, *arguments)
    return outcome.code, outcome.stdout, outcome.stderr


def test_rows_that_do_not_fit_are_streamed(large: Inputs, tmp_path: Path) -> None:
    assert 8 * ROWS // 2 * (Q + OUTPUTS) > 1.1 * MORE
    words = fit(large, tmp_path / "model.h5", "regression", "--max-iter", 1, "--hold", 0, m=3)
    code, stdout, stderr = limited(*words)
    assert code == 0, stderr
    assert stdout.startswith("rows: streamed from the file (144 MB, of ")


def test_the_limit_would_be_met_by_rows_in_memory(large: Inputs) -> None:
    code, _, stderr = limited("evaluate", *large.arguments, "--rows-in-memory", "all")
    assert code != 0 and "MemoryError" in stderr
