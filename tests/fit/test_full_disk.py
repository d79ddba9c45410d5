"""A full disk: a fit goes on without its metrics and its checkpoint, and ends with one line if its model is lost."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest

from mpigp.cli import execute
from mpigp.errors import OutputError
from mpigp.files import gather
from mpigp.fit import progress
from tests.support.fits import differences, fit
from tests.support.inputs import Inputs, write_inputs


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return write_inputs(tmp_path, "regression", 60, 4, 2, 1)


def learn(inputs: Inputs, name: str, *options: object) -> int:
    output = inputs.data.with_name(name)
    return execute([str(word) for word in fit(inputs, output, "regression", "--max-iter", 6, *options, m=4)])


class Full(progress.Metrics):
    """Metrics on a disk that becomes full after two lines, in the midst of the third."""

    def __call__(self, fitted) -> None:
        if fitted.iteration == 3 and self.file is not None:
            os.dup2(os.open("/dev/full", os.O_WRONLY), self.file.fileno())
        super().__call__(fitted)


def test_a_fit_goes_on_when_its_metrics_have_no_room(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    metrics = inputs.data.with_name("metrics.jsonl")
    assert learn(inputs, "whole.h5") == 0
    monkeypatch.setattr("mpigp.fit.driver.Metrics", Full)
    capfd.readouterr()
    assert learn(inputs, "model.h5", "--metrics", metrics) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("mpigp: ")]
    assert warnings == [f"mpigp: {metrics}: {os.strerror(errno.ENOSPC)}: the fit goes on without further metrics"]
    assert [json.loads(line)["iteration"] for line in metrics.read_text().splitlines()] == [1, 2]
    assert differences(inputs.data.with_name("whole.h5"), inputs.data.with_name("model.h5")) == []


def test_metrics_that_cannot_be_opened_are_a_warning_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    metrics = progress.Metrics(str(tmp_path / "missing" / "metrics.jsonl"), 0)
    metrics.close()
    assert capfd.readouterr().err.count("the fit goes on without further metrics") == 1


def test_metrics_may_go_to_a_pipe_and_one_that_nobody_reads_is_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    progress.Metrics(str(tmp_path / "pipe"), 0).close()
    said = capfd.readouterr().err
    assert said.startswith(f"mpigp: {tmp_path / 'pipe'}: ") and said.endswith(
        ": the fit goes on without further metrics\n"
    )
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    progress.Metrics(str(tmp_path / "pipe"), 0).close()
    os.close(reader)
    assert capfd.readouterr().err == ""


def test_records_of_another_kind_are_no_error(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 1}\n[2]\n')
    progress.Metrics(str(path), 3).close()
    assert path.read_text() == '{"iteration": 1}\n'


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The numbers of the writes for which the disk has no room."""
    numbers: set[int] = set()
    made = []

    def check_room(path: str, size: int) -> None:
        made.append(size)
        if len(made) in numbers:
            raise OutputError(f"{path}: could not be written, and is as it was before: full")

    monkeypatch.setattr(gather, "check_room", check_room)
    return numbers


def test_a_fit_goes_on_without_a_checkpoint(inputs: Inputs, full: set[int], capfd: pytest.CaptureFixture[str]) -> None:
    assert learn(inputs, "whole.h5") == 0
    full |= {3, 4}
    capfd.readouterr()
    assert learn(inputs, "model.h5", "--checkpoint-every", 2) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("mpigp: ")]
    assert len(warnings) == 2 and all("full: the fit goes on without this checkpoint" in line for line in warnings)
    assert differences(inputs.data.with_name("whole.h5"), inputs.data.with_name("model.h5")) == []


def test_a_model_that_cannot_be_written_is_one_line(
    inputs: Inputs, full: set[int], capfd: pytest.CaptureFixture[str]
) -> None:
    full |= {1, 2, 3, 4}
    assert learn(inputs, "model.h5") == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("mpigp: ")]
    assert len(lines) == 1 and lines[0].endswith("model.h5: could not be written, and is as it was before: full")
    assert not inputs.data.with_name("model.h5").exists()


def test_a_log_without_room_does_not_end_a_fit(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = Full()
    monkeypatch.setattr(sys, "stderr", log)
    assert learn(inputs, "model.h5") == 0
    assert "iteration 1" in log.getvalue()
