"""Scaling studies on real ranks, more than there are cores: messages and bytes by the book, whatever n and ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mpigp.chunks import share
from mpigp.mpi.timers import PHASES
from tests.mpi.test_resources import message_lengths
from tests.support.inputs import write_inputs
from tests.support.launching import LAUNCHERS, ROOT, end_marked, marked, run

M, Q, D = 20, 3, 2
COUNTS = (1, 2, 4)
SIZES = ["--inducing", M, "--outputs", D, "--rounds", 1, "--repeat", 1, "--timeout", 600]


def runs(folder: Path) -> list[dict]:
    """What was measured, fewest ranks first."""
    found = []
    for path in sorted(folder.glob("*.json")):
        (told,) = json.loads(path.read_text())["runs"]
        found.append(told)
    return found


@pytest.mark.slow
def test_a_strong_study_sends_what_the_design_counts(tmp_path: Path) -> None:
    outcome = run(None, "scaling", "strong", "--ranks", ",".join(map(str, COUNTS)), "--rows", 3000, "--inputs", Q,
                  *SIZES, "-o", tmp_path)  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    found = runs(tmp_path)
    assert [each["ranks"] for each in found] == list(COUNTS)
    wanted = 4, 8 * sum(message_lengths("regression", M, Q, D))
    for each in found:
        assert (each["messages"], each["bytes"]) == wanted
        assert each["bound"] == found[0]["bound"]
        told, ranks = each["by_rank"], each["ranks"]
        assert told["rows"] == [share(3000, rank, ranks).rows for rank in range(ranks)]
        assert sorted(told["seconds"]) == sorted(PHASES)
        assert all(len(seconds) == ranks and min(seconds) >= 0 for seconds in told["seconds"].values())
        assert len(told["memory"]) == len(told["nodes"]) == ranks
        assert all(10**7 < memory < 10**9 for memory in told["memory"])
        assert told["cores"] >= 1 and each["algebra"] > 0
        assert each["cpu"] and each["versions"]["MPI"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".json"] == []  # no data left behind
    assert run(None, "scaling", "report", tmp_path, "-o", tmp_path / "page.html").code == 0


@pytest.mark.slow
def test_a_weak_study_of_more_rows_sends_no_more(tmp_path: Path) -> None:
    """n is ten times, and then twenty times, that of the strong study, and each rank's share stays the same."""
    outcome = run(None, "scaling", "weak", "--ranks", "1,2", "--rows", 30_000, "--model", "gplvm", "--latent", Q,
                  *SIZES, "-o", tmp_path, "--json")  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    found = runs(tmp_path)
    assert [each["n"] for each in found] == [30_000, 60_000]
    assert {(each["messages"], each["bytes"]) for each in found} == {(4, 8 * sum(message_lengths("gplvm", M, Q, D)))}
    assert outcome.figures["ranks"] == [1, 2]


def test_a_data_file_is_studied(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, "regression", 500, M, Q, D)
    folder = tmp_path / "made" / "here"
    outcome = run(None, "scaling", "strong", inputs.data, "--ranks", 2, "--inducing", 5, "--rounds", 2, "--repeat", 1,
                  "-o", folder)  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    record = json.loads((folder / "strong-00002.json").read_text())
    assert [(each["n"], each["m"], each["q"], each["d"]) for each in record["runs"]] == [(500, 5, Q, D)] * 2


def test_a_run_that_fails_or_takes_too_long_is_said(tmp_path: Path) -> None:
    outcome = run(None, "scaling", "strong", "--ranks", "2", "--rows", 1000, "-o", tmp_path, "--timeout", 0.2)
    assert outcome.code == 1
    assert outcome.ours == ["mpigp: scaling: 2 ranks: no result within 0.2 s"]
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_is_ended_leaves_nothing_running(tmp_path: Path) -> None:
    mark = f"MPIGP_TEST={tmp_path}"
    words = [sys.executable, ROOT / "run.py", "scaling", "strong", "--ranks", 2, "--rows", 10_000, "--repeat", 10**6]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    study = subprocess.Popen([*map(str, words), "-o", str(tmp_path)], env=environment | {"MPIGP_TEST": str(tmp_path)})
    try:
        wait_until(lambda: len(marked(mark)) >= 4)  # the study, its launcher's launcher, and two ranks
        study.terminate()
        assert study.wait(300) == 128 + signal.SIGTERM
        wait_until(lambda: not marked(mark))
        assert list(tmp_path.iterdir()) == []
    finally:
        end_marked(mark)


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_probe(tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    outcome = run(2, "scaling", "probe", "-o", path, "--json")
    assert outcome.code == 0, outcome.stderr
    found = json.loads(path.read_text())
    assert found == outcome.figures and found["ranks"] == 2
    assert found["latency"] > 0 and found["bandwidth"] > 0
    assert len(found["sizes"]) == len(found["one_way"]) == len(found["allreduce"])
