"""Data that change during a streamed fit: the fit is refused in one line, and no model is written or harmed."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import execute
from mpigp.data.datasets import Stream
from tests.mpi.changing import WAYS, changing
from tests.support.calling import command
from tests.support.fits import differences, fit
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import mpiexec
from tests.support.refusals import state

N, M, Q, D = 20_000, 5, 2, 3  # more rows than HDF5 keeps in memory
ITERATIONS = 12
SETTINGS = ["--max-iter", ITERATIONS, "--hold", 4, "--tolerance", 0, "--gradient-tolerance", 0,
            "--checkpoint-every", 2, "--rows-in-memory", "stream"]  # fmt: skip
READING, STARTING, ITERATING = 2, 12, 80  # reads after which the file changes
CHANGED = "has changed since this run began to read it: leave data files alone during a run, and start it again"


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return write_inputs(tmp_path / "inputs", "regression", N, M, Q, D)


def refused(words: list[object], capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command line that must be refused; return its line."""
    assert execute([str(word) for word in words]) == 2
    (line,) = [each for each in capfd.readouterr().err.splitlines() if each.startswith("mpigp: ")]
    return line


@pytest.mark.parametrize(
    ("how", "reads"),
    [(how, reads) for how in WAYS for reads in (READING, STARTING, ITERATING) if (how, reads) != ("set_back", READING)],
)  # what is set back while its first fingerprint is taken are simply other data
def test_one_process(
    inputs: Inputs, how: str, reads: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it changes while the fit starts or iterates, nothing is written after it."""
    output = inputs.data.with_name("model.h5")
    written: list[bytes] = []

    def read(self: Stream, first: int) -> np.ndarray:
        nonlocal seen
        seen += 1
        if seen == reads and output.exists():
            written.append(output.read_bytes())
        return change(self, first)

    seen, change = 0, changing(how, reads, inputs.data)
    monkeypatch.setattr(Stream, "read", read)
    line = refused(fit(inputs, output, "regression", *SETTINGS, m=M), capfd)
    assert line == f"mpigp: {inputs.data}: {CHANGED}"
    assert ([output.read_bytes()] if output.exists() else []) == written
    assert bool(written) is (reads == ITERATING)
    assert not list(output.parent.glob(".*.part"))


@pytest.mark.parametrize("how", ["truncated", "overwritten"])
def test_two_ranks(inputs: Inputs, how: str, tmp_path: Path) -> None:
    """Rank 0 or rank 1 may be the first to see it; both end, with one line."""
    folder = tmp_path / "output"
    folder.mkdir()
    (folder / "model.h5").write_bytes(b"of an earlier run")
    before = state(folder)
    words = fit(inputs, folder / "model.h5", "regression", *SETTINGS, "--checkpoint-every", 1000, m=M)
    script = Path(__file__).with_name("changing.py")
    outcome = mpiexec(2, script, how, ITERATING, inputs.data, *words)
    assert outcome.code == 2, outcome
    assert outcome.ours == [f"mpigp: {inputs.data}: {CHANGED}"]
    assert state(folder) == before


@pytest.mark.parametrize("how", WAYS)
def test_rows_to_validate_by(
    inputs: Inputs, how: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output, few = tmp_path / "model.h5", write_inputs(tmp_path / "few", "regression", 100, M, Q, D)
    monkeypatch.setattr(Stream, "read", changing(how, ITERATING, inputs.data))
    options = ["--validate", inputs.data, "--validate-every", 3, "--checkpoint-every", 1000]
    assert (
        refused(fit(few, output, "regression", *SETTINGS, *options, m=M), capfd) == f"mpigp: {inputs.data}: {CHANGED}"
    )
    assert not output.exists()


def test_the_run_goes_on_where_the_data_are_back(
    inputs: Inputs, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, output = inputs.data.with_name("whole.h5"), inputs.data.with_name("model.h5")
    rows = inputs.data.read_bytes()
    command(*fit(inputs, whole, "regression", *SETTINGS, m=M))
    words = fit(inputs, output, "regression", *SETTINGS, m=M)
    with monkeypatch.context() as patch:
        patch.setattr(Stream, "read", changing("overwritten", ITERATING, inputs.data))
        assert CHANGED in refused(words, capfd)
    with h5py.File(output) as file:
        assert 0 < len(file["trace/bound"]) < ITERATIONS
    assert "was made with other data" in refused([*words, "--resume"], capfd)
    inputs.data.write_bytes(rows)
    command(*words, "--resume")
    assert differences(whole, output) == []


def test_evaluate_gives_no_bound_of_changed_rows(
    inputs: Inputs, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stream, "read", changing("truncated", 9, inputs.data))
    words = ["evaluate", *inputs.arguments, "--rows-in-memory", "stream", "--repeat", 3]
    assert CHANGED in refused(words, capfd)


@pytest.mark.parametrize("bound", [2e158, np.nan])
def test_a_checkpoint_with_a_bound_that_cannot_be(
    inputs: Inputs, bound: float, capfd: pytest.CaptureFixture[str]
) -> None:
    output = inputs.data.with_name("model.h5")
    words = fit(inputs, output, "regression", *SETTINGS, m=M)
    command(*words, "--max-iter", 6)
    with h5py.File(output, "r+") as file:
        file["checkpoint/numbers/scalars"][0] = -bound
        file["trace/bound"][-1] = bound
    before = output.read_bytes()
    line = refused([*words, "--resume"], capfd)
    assert f"{output}: /checkpoint: its bound is {bound:.6g} nats" in line and "start anew without --resume" in line
    assert output.read_bytes() == before
