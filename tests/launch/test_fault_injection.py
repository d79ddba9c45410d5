"""One who watches a fit by its metrics, and may kill a rank of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpigp.launch.fault_injection import TAG, FaultInjector

LIMIT = 300  # seconds: only a hang meets it


@contextmanager
def rank(number: int) -> Iterator[subprocess.Popen]:
    """A process that looks like a rank of the job that is watched, and sleeps."""
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(3600)"]
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": str(number)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def tell(metrics: Path, iterations: int) -> None:
    """Write the metrics of a fit, the last record of which is cut off."""
    records = [json.dumps({"iteration": each, "bound": 1.0}) for each in range(1, iterations + 1)]
    metrics.write_text("\n".join(records) + "\n")


def wait_for(condition) -> bool:
    end = time.monotonic() + LIMIT
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_the_rank_is_killed_at_its_moment_and_no_other(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with FaultInjector(str(metrics), 1, 5) as onlooker, rank(0) as first, rank(1) as second:
        tell(metrics, 4)
        time.sleep(0.2)
        assert second.poll() is None
        tell(metrics, 6)
        assert wait_for(lambda: second.poll() is not None)
        assert first.poll() is None
    assert second.returncode == -signal.SIGKILL
    assert onlooker.killed_at == 6
    assert TAG not in os.environ


def test_without_a_victim_nobody_is_killed(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with FaultInjector(str(metrics), None, 5) as onlooker, rank(1) as process:
        tell(metrics, 9)
        time.sleep(0.2)
        assert process.poll() is None
    assert onlooker.killed_at is None


def test_ranks_of_other_jobs_are_left_alone(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with rank(1) as other, FaultInjector(str(metrics), 1, 5) as onlooker:  # it started before, without the tag
        tell(metrics, 9)
        time.sleep(0.2)
        assert other.poll() is None
    assert onlooker.killed_at is None


@pytest.mark.parametrize("text", ["", "{", '{"iteration": 9, "bou'])
def test_half_a_record_is_none(text: str, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with FaultInjector(str(metrics), 1, 1) as onlooker, rank(1) as process:
        metrics.write_text(text)
        time.sleep(0.1)
        assert process.poll() is None
    assert onlooker.killed_at is None


def test_metrics_of_an_earlier_fit_are_not_taken_for_this_one(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    tell(metrics, 9)
    with FaultInjector(str(metrics), 1, 5) as onlooker, rank(1) as process:
        time.sleep(0.1)
        assert process.poll() is None
    assert onlooker.killed_at is None


def test_progress_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with FaultInjector(str(metrics), None, 5):
        tell(metrics, 7)
        said: list[str] = []
        assert wait_for(lambda: said.append(capfd.readouterr().err) or "iteration 7  bound 1.0 nats" in "".join(said))
