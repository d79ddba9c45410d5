"""Ranks that die in the middle of a fit: the others go on, and the model has the bits of a run in which nobody died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from campaign import TAG, campaign, ranks_of
from fits import differences, fit
from inputs import write_inputs
from launching import ROOT, end_session, run

SETTINGS = ("--hold", 5, "--tolerance", 0, "--gradient-tolerance", 0)
LIMIT = 120  # seconds: several times what a run takes on a busy machine
LONG = 100_000  # iterations: more than are made before the kill


def killed(
    folder: Path, ranks: int, victims: list[int], *options: object, by: signal.Signals = signal.SIGKILL
) -> tuple[int, str, Path]:
    """Run a fit, kill ranks after its tenth iteration, and return its exit code, what it said, and its model."""
    inputs = write_inputs(folder, "gplvm", 700, 7, 2, 3)
    output, metrics, tag = folder / "model.h5", folder / "metrics.jsonl", uuid.uuid4().hex
    metrics.write_text("")
    words = [*fit(inputs, output, "gplvm", *SETTINGS, *options), "--metrics", metrics]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), "--ranks", str(ranks), *map(str, words)],
        env={**os.environ, TAG: tag}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        began = time.monotonic()
        while metrics.read_text().count("\n") < 10:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() - began < LIMIT, "no iteration was made"
            time.sleep(0.01)
        alive = ranks_of(tag)
        assert sorted(alive) == list(range(ranks))
        for victim in victims:
            os.kill(alive[victim], by)
        _, said = process.communicate(timeout=LIMIT)
    finally:
        end_session(process.pid)
    return process.returncode, said, output


def undisturbed(folder: Path, *options: object) -> Path:
    """Return the model of the same fit on one rank, in which nobody dies."""
    inputs = write_inputs(folder / "alone", "gplvm", 700, 7, 2, 3)
    outcome = run(None, *fit(inputs, folder / "alone.h5", "gplvm", *SETTINGS, *options))
    assert outcome.code == 0, outcome
    return folder / "alone.h5"


@pytest.mark.parametrize("victims", [[2], [0], [1, 3], [0, 1, 2]], ids=["one", "the master", "two", "all but one"])
def test_the_others_go_on_to_the_same_bits(tmp_path: Path, victims: list[int]) -> None:
    code, said, output = killed(tmp_path, 4, victims, "--max-iter", 300)
    assert code == 0, said
    assert "lost: going on with" in said
    assert differences(undisturbed(tmp_path, "--max-iter", 300), output) == []


def test_told_to_stop_at_a_failure_it_stops_with_its_checkpoint(tmp_path: Path) -> None:
    options = ("--on-failure", "checkpoint", "--checkpoint-every", 2)
    code, said, output = killed(tmp_path, 3, [1], *options, "--max-iter", LONG)
    assert code == 75, said
    assert "go on with --resume" in said.splitlines()[-1]
    inputs = write_inputs(tmp_path, "gplvm", 700, 7, 2, 3)
    again = run(2, *fit(inputs, output, "gplvm", *SETTINGS), "--resume", "--max-iter", 300, "--json")
    assert again.code == 0, again
    if again.figures["iterations"] == 300:  # else the first run had got further before it was killed
        assert differences(undisturbed(tmp_path, "--max-iter", 300), output) == []


def test_told_to_end_at_a_failure_it_ends(tmp_path: Path) -> None:
    code, said, output = killed(tmp_path, 3, [1], "--on-failure", "abort", "--max-iter", LONG)
    assert code not in (0, 75), said
    assert not output.exists()


@pytest.mark.parametrize("victims", [[2], [0]], ids=["one", "the master"])
def test_a_rank_that_stops_answering_is_ended_and_the_others_go_on(tmp_path: Path, victims: list[int]) -> None:
    settings = ("--max-iter", 300, "--stall-timeout", 2)
    code, said, output = killed(tmp_path, 3, victims, *settings, by=signal.SIGSTOP)
    assert code == 0, said
    assert said.count(f"mpigp: rank {victims[0]} has not answered for 2 s: it is treated as failed") == 1
    assert f"rank {victims[0]} was lost: going on with 2" in said
    assert differences(undisturbed(tmp_path, "--max-iter", 300), output) == []


def test_where_mpi_cannot_survive_a_rank_that_stops_answering_ends_the_job(tmp_path: Path) -> None:
    options = ("--on-failure", "checkpoint", "--checkpoint-every", 2, "--stall-timeout", 2, "--max-iter", LONG)
    code, said, _ = killed(tmp_path, 3, [1], *options, by=signal.SIGSTOP)
    assert code == 75, said
    assert [line for line in said.splitlines() if line.startswith("mpigp: ")] == [
        "mpigp: rank 1 has not answered for 2 s: it is treated as failed",
        "mpigp: the job died, because a rank or its launcher was killed: go on with --resume",
    ]


def test_nobody_who_answers_is_ended(tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, "gplvm", 700, 7, 2, 3)
    outcome = run(4, *fit(inputs, tmp_path / "model.h5", "gplvm", *SETTINGS, "--max-iter", 1000, "--stall-timeout", 1))
    assert outcome.code == 0, outcome
    assert outcome.seconds > 3
    assert outcome.ours == []


@pytest.mark.slow
def test_a_short_campaign(tmp_path: Path) -> None:
    results = campaign(tmp_path, runs=6, seed=1)
    assert [result.fault for result in results] == [""] * 6
    assert sum(result.kills for result in results) >= 6
