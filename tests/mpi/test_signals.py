"""Ctrl-C, SIGTERM and SIGUSR1 in every phase of a fit, however it was started: it saves, says so, and exits with 75."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from mpigp.launch.mpiexec import find_mpiexec
from mpigp.mpi.processes import RANK_VARIABLES
from mpigp.mpi.signals import SAME
from tests.support.fits import differences, fit
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import KILL, LAUNCHERS, ROOT, Outcome, end_session, marked, needed_flags, run, several
from tests.support.phases import PHASES, Held

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
STARTS = ("one process", "--ranks", "mpiexec")
SETTINGS = ("--max-iter", 12, "--hold", 3, "--tolerance", 0, "--gradient-tolerance", 0)
# Every phase meets every start, and every signal every phase and every start.
CASES = [
    (phase, start, SIGNALS[(row + column) % 3])
    for row, phase in enumerate(PHASES)
    for column, start in enumerate(STARTS)
]
RANKS = 3


class Stopped(NamedTuple):
    """How a fit ended that a signal stopped, the files that it left, its model, and how resuming ended."""

    outcome: Outcome
    left: list[str]
    output: Path
    resumed: Outcome


class Running(NamedTuple):
    """A fit that waits in a phase."""

    process: subprocess.Popen[str]
    held: Held
    start: str
    output: Path
    waiting: int  # ranks, in the phase

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process or the launcher, or to all ranks under mpiexec."""
        ranks = marked(f"PHASE_FOLDER={self.held.folder}")
        targets = [rank for rank in ranks if is_rank(rank)] if self.start == "mpiexec" else [self.process.pid]
        for target in targets:
            with suppress(ProcessLookupError):
                os.kill(target, number)

    def hear(self) -> None:
        """Wait until all ranks that wait in the phase have received a signal."""
        wait(lambda: self.held.heard() >= self.waiting)

    def ended(self) -> Outcome:
        """Wait for the end."""
        stdout, stderr = self.process.communicate(timeout=KILL)
        return Outcome(self.process.returncode, stdout, stderr, 0.0)


def is_rank(process: int) -> bool:
    """Return whether a process has a rank's number in its environment."""
    with suppress(OSError):
        return any(f"{name}=".encode() in Path(f"/proc/{process}/environ").read_bytes() for name in RANK_VARIABLES[:2])
    return False


@contextmanager
def running(inputs: Inputs, folder: Path, phase: str, start: str) -> Iterator[Running]:
    """Start a fit, and wait until all its ranks have come to the phase."""
    held, output = Held(folder / "held", phase), folder / "model.h5"
    words = {
        "one process": [sys.executable, ROOT / "run.py"],
        "--ranks": [sys.executable, ROOT / "run.py", "--ranks", RANKS],
        "mpiexec": [find_mpiexec(), *needed_flags(RANKS), "-n", RANKS, sys.executable, ROOT / "run.py"],
    }[start]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    process = subprocess.Popen(
        [str(word) for word in [*words, *fit(inputs, output, "gplvm", *SETTINGS)]], env=inherited | held.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        # Only the first rank writes: the others wait for it.
        wanted = 1 if start == "one process" or phase == "writing" else RANKS
        wait(lambda: held.there() >= wanted or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        yield Running(process, held, start, output, wanted)
    finally:
        end_session(process.pid)


def wait(condition: Callable[[], bool]) -> None:
    """Wait until something is the case."""
    end = time.monotonic() + KILL
    while not condition():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "gplvm", 700, 7, 2, 3)


@pytest.fixture(scope="module")
def whole(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of a fit that nobody stopped."""
    output = tmp_path_factory.mktemp("whole") / "model.h5"
    assert run(None, *fit(inputs, output, "gplvm", *SETTINGS)).code == 0
    return output


@pytest.fixture(scope="module")
def stopped(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple, Stopped]:
    """How each case ended, four at a time, since most of it is waiting; they are resumed in one process."""

    def made(case: tuple) -> tuple[Outcome, list[str], Path]:
        phase, start, number = case
        folder = tmp_path_factory.mktemp("case")
        with running(inputs, folder, phase, start) as each:
            each.send(number)
            if phase in ("iterating", "writing"):
                each.hear()
                each.held.go()
            return each.ended(), sorted({path.name for path in folder.iterdir()} - {"held"}), each.output

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(made, CASES))
    commands = [[*fit(inputs, output, "gplvm", *SETTINGS), "--resume"] for _, _, output in found]
    resumed = several(tmp_path_factory.mktemp("resumed"), 1, commands)
    return {case: Stopped(*each, ended) for case, each, (ended,) in zip(CASES, found, resumed, strict=True)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2].name}")
def test_a_signal_saves_and_resuming_ends_with_the_same_bits(
    case: tuple, stopped: dict[tuple, Stopped], whole: Path
) -> None:
    """Before there is anything to save it says so, and `--resume` starts from the beginning."""
    (outcome, left, output, resumed), (phase, start, number) = stopped[case], case
    assert outcome.code == 75, outcome
    assert left == (["model.h5"] if phase in ("iterating", "writing") else [])
    lines = [line for line in (outcome.stdout + outcome.stderr).splitlines() if "--resume" in line]
    assert len(lines) == 1, outcome
    if not left:
        name = "SIGUSR1" if start == "--ranks" else number.name  # which every mpiexec forwards
        assert lines == [f"mpigp: {name} was received before there was anything to save: go on with --resume"]
        assert f"mpigp: {output}: is not there yet: the fit starts from the beginning" in resumed.ours
    assert resumed.code == 0, resumed
    assert differences(whole, output) == []


@pytest.mark.parametrize("start", STARTS)
def test_the_second_signal_quits_at_once(start: str, inputs: Inputs, tmp_path: Path) -> None:
    """The fit waits, and would for ever."""
    with running(inputs, tmp_path, "iterating", start) as each:
        each.send(signal.SIGTERM)
        each.hear()
        time.sleep(2 * SAME)
        assert each.process.poll() is None
        each.send(signal.SIGINT)
        outcome = each.ended()
    assert outcome.code == 1, outcome
    assert "--resume goes on from" in outcome.stderr
    assert not list(tmp_path.glob(".*"))


def test_a_signal_that_timeout_sends_twice_is_one(inputs: Inputs, tmp_path: Path) -> None:
    with running(inputs, tmp_path, "iterating", "one process") as each:
        each.process.send_signal(signal.SIGTERM)
        each.process.send_signal(signal.SIGTERM)
        each.hear()
        time.sleep(2 * SAME)  # for the second
        each.held.go()
        assert each.ended().code == 75


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_other_commands_are_interrupted_and_leave_nothing(number: signal.Signals, tmp_path: Path) -> None:
    output = tmp_path / "data.h5"
    words = [sys.executable, ROOT / "run.py", "synth", "oilflow", "--rows", 10_000_000, "-o", output]
    process = subprocess.Popen([str(word) for word in words], stderr=subprocess.PIPE, text=True)
    try:
        wait(lambda: any(tmp_path.glob(".*.part")))
        process.send_signal(number)
        said = process.communicate(timeout=KILL)[1]
    finally:
        process.kill()
    assert (process.returncode, said) == (1, "mpigp: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_killing_the_launcher_leaves_no_rank(inputs: Inputs, tmp_path: Path) -> None:
    with running(inputs, tmp_path, "iterating", "--ranks") as each:
        mark = f"PHASE_FOLDER={each.held.folder}"
        assert len(marked(mark)) > RANKS
        each.process.kill()
        wait(lambda: not marked(mark))
