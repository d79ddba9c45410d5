"""Ranks that die in the middle of a fit: the others go on, and the model has the bits of a run in which nobody died."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from mpigp.chunks import chunk_count
from tests.mpi.campaign import PHASES, SETTINGS, Run, campaign, killed, undisturbed
from tests.support.calling import read
from tests.support.fits import differences, fit
from tests.support.inputs import write_inputs
from tests.support.launching import end_session, mpiexec, run

STALL = 5  # seconds: a rank that answers is never as late, also on a busy machine


@pytest.mark.parametrize("case", ["error", "silence"])
def test_a_rank_that_waits_for_agreement_and_one_that_does_not_come_to_it_meet_again(case: str) -> None:
    outcome = mpiexec(3, Path(__file__).parent / "meeting.py", case, survive=True)
    assert outcome.stdout.count("gone [2], left [0, 1]") == 2, outcome


def test_a_communicator_that_cannot_shrink_ends_the_job() -> None:
    outcome = mpiexec(3, Path(__file__).parent / "meeting.py", "alone", survive=True)
    assert outcome.code not in (0, 1), outcome  # 1 is that of an error, after which a job is not started again
    assert outcome.ours == ["mpigp: rank 0: MPI_Comm_shrink did not finish within 1 s"]


@pytest.mark.parametrize("victims", [[2], [0], [1, 3], [0, 1, 2]], ids=["one", "the master", "two", "all but one"])
def test_the_others_go_on_to_the_same_bits(tmp_path: Path, victims: list[int]) -> None:
    code, said, output = killed(tmp_path, 4, victims)
    assert code == 0, said
    assert "lost: going on with" in said
    assert differences(undisturbed(), output) == []


def test_ranks_without_rows_are_no_hindrance(tmp_path: Path) -> None:
    """250 rows are four chunks: one of five ranks has none."""
    assert chunk_count(250) == 4
    code, said, output = killed(tmp_path, 5, [0, 2], rows=250)
    assert code == 0, said
    assert "recovered in" in said
    assert differences(undisturbed(rows=250), output) == []


def test_told_to_stop_at_a_failure_it_stops_with_its_checkpoint(tmp_path: Path) -> None:
    options = ("--on-failure", "checkpoint", "--checkpoint-every", 2)
    code, said, output = killed(tmp_path, 3, [1], *options)
    assert code == 75, said
    assert "go on with --resume" in said.splitlines()[-1]
    inputs = write_inputs(tmp_path, "gplvm", 700, 7, 2, 3)
    again = run(2, *fit(inputs, output, "gplvm", *SETTINGS), "--resume")
    assert again.code == 0, again
    assert differences(undisturbed(), output) == []


def test_told_to_end_at_a_failure_it_ends(tmp_path: Path) -> None:
    code, said, output = killed(tmp_path, 3, [1], "--on-failure", "abort")
    assert code not in (0, 75), said
    assert not output.exists()


@pytest.mark.parametrize("victims", [[2], [0]], ids=["one", "the master"])
def test_a_rank_that_stops_answering_is_ended_and_the_others_go_on(tmp_path: Path, victims: list[int]) -> None:
    code, said, output = killed(tmp_path, 3, victims, "--stall-timeout", STALL, by=signal.SIGSTOP)
    assert code == 0, said
    assert said.count(f"mpigp: rank {victims[0]} has not answered for {STALL} s: it is treated as failed") == 1
    assert f"rank {victims[0]} was lost: going on with 2" in said
    assert differences(undisturbed(), output) == []


def test_where_mpi_cannot_survive_a_rank_that_stops_answering_ends_the_job(tmp_path: Path) -> None:
    options = ("--on-failure", "checkpoint", "--checkpoint-every", 2, "--stall-timeout", STALL)
    code, said, _ = killed(tmp_path, 3, [1], *options, by=signal.SIGSTOP)
    assert code == 75, said
    assert [line for line in said.splitlines() if line.startswith("mpigp: ")] == [
        f"mpigp: rank 1 has not answered for {STALL} s: it is treated as failed",
        "mpigp: the job died, because a rank or its launcher was killed: go on with --resume",
    ]


def test_nobody_who_answers_is_ended(tmp_path: Path) -> None:
    """They take longer than an answer may, behind an iteration, and compute before and after it."""
    inputs = write_inputs(tmp_path, "gplvm", 30_000, 30, 2, 3)
    options = ("--max-iter", 15, "--stall-timeout", STALL)
    each = Run(inputs, "gplvm", tmp_path, 3, *options, hold=7)
    try:
        each.wait(lambda: each.held.there() == 3)
        time.sleep(1.5 * STALL)
        each.held.go()
        assert each.end() == 0, each.said
    finally:
        end_session(each.process.pid)
    assert read(each.output)["trace/seconds"][-1] > STALL
    assert "mpigp: " not in each.said, each.said


@pytest.mark.slow
def test_a_short_campaign(tmp_path: Path) -> None:
    """Of dying ranks; other tests have stopped ones, several at once, the master, signals, and deaths in MPI_Init."""
    phases = [each for each in PHASES[: PHASES.index("plain start")] if each not in ("at once", "master")]
    results = campaign(tmp_path, runs=len(phases), seed=1, phases=phases, sizes=(3,))
    assert [result.fault for result in results] == [""] * len(phases)
    assert sum(result.kills for result in results) >= len(phases)
