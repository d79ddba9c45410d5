"""A fit that was stopped and resumed, on another number of ranks, ends as if it had never been stopped."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

import h5py
import pytest

from mpigp.launch.mpiexec import find_mpiexec
from mpigp.mpi.processes import launched_rank
from tests.mpi.test_same_bits import contents
from tests.support.fits import OPTIMIZERS, differences, fit
from tests.support.inputs import MODELS, Inputs, write_inputs
from tests.support.launching import KILL, LAUNCHERS, ROOT, Outcome, end_session, needed_flags, run, several

N, M, Q, D = 700, 8, 2, 3
ITERATIONS, HOLD = 60, 6  # more than ENOUGH and what the pipe holds
ENOUGH = 10  # iterations that a run is let make before it is stopped; those behind are free
PIPE = 4096  # bytes, the least that a pipe holds: some 25 lines of metrics
REASONS = ("SIGTERM", "SIGUSR1", "time limit")
LIMIT = 1.5  # seconds of the time limit: more than the first iterations take
# Every optimizer meets every reason and both models, and every model every reason; not each of them all at once.
CASES = [
    (MODELS[place % 2], optimizer, reason) for place, (optimizer, reason) in enumerate(product(OPTIMIZERS, REASONS))
]
SETTINGS = ["--max-iter", ITERATIONS, "--hold", HOLD, "--tolerance", 0, "--gradient-tolerance", 0, "--seed", 5]


# starting and stopping


def launcher(ranks: int | None, plain: bool = False) -> list[object]:
    """Return the words before a command: none (one process), run.py's own start, or plain mpiexec."""
    if ranks is None:
        return [sys.executable, ROOT / "run.py"]
    if not plain:
        return [sys.executable, ROOT / "run.py", "--ranks", ranks]
    needed = needed_flags(ranks)
    return [find_mpiexec(), *needed, "-n", ranks, sys.executable, ROOT / "run.py"]


def started(words: list[object], **options: object) -> subprocess.Popen:
    """Start a command in a session of its own."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return subprocess.Popen(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=inherited,
        start_new_session=True,
        **options,
    )


def ranks_of(session: int) -> list[int]:
    """Return the processes of a session that are ranks, the first rank first: those that hold the command `fit`, and
    were not asked to start others."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if not entry.name.isdigit() or os.getsid(int(entry.name)) != session:
                continue
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            interpreted = Path(words[0]).name.startswith("python")
            if interpreted and "fit" in words and "--ranks" not in words:
                marks = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                rank = launched_rank(dict(mark.partition("=")[::2] for mark in marks))
                found.append((rank, int(entry.name)))
    return [process for _, process in sorted(found)]


class Stopped(NamedTuple):
    """How a stopped run ended, and the metrics that it wrote."""

    outcome: Outcome
    metrics: list[dict]
    signalled: list[int]


def stop(
    folder: Path,
    words: list[object],
    stopper: Callable[[list[int]], None],
    ranks: int,
) -> Stopped:
    """Start a fit, let it make ENOUGH iterations, call `stopper` with its ranks, and let it go on.

    The metrics go to a pipe that holds but some 25 lines, and that nobody reads until the stopper is through: however
    fast the machine, the run cannot get to its end before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pipe = folder / "metrics.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE)
    began = time.perf_counter()
    process = started([*words, "--metrics", pipe])
    text, signalled = b"", []
    try:
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(process.communicate)
            while not ending.done():
                if time.perf_counter() - began > KILL:
                    raise AssertionError(f"not done after {KILL} s: {words}")
                try:
                    block = os.read(reader, 256)  # about one line
                except BlockingIOError:
                    block = b""
                text += block
                if not signalled and text.count(b"\n") >= ENOUGH:
                    signalled = ranks_of(process.pid)
                    assert len(signalled) == ranks, "the ranks were not found"
                    stopper(signalled)
                if not block:
                    time.sleep(0.005)
            stdout, stderr = ending.result()
        with suppress(BlockingIOError):
            while block := os.read(reader, 2**16):
                text += block
    finally:
        end_session(process.pid)
        os.close(reader)
    outcome = Outcome(process.returncode, stdout, stderr, time.perf_counter() - began)
    return Stopped(outcome, [json.loads(line) for line in text.splitlines()], signalled)


def sending(number: signal.Signals, which: slice = slice(None)) -> Callable[[list[int]], None]:
    """Return a stopper that sends a signal to some of the ranks, or all."""

    def stopper(processes: list[int]) -> None:
        for process in processes[which]:
            os.kill(process, number)

    return stopper


def waiting(processes: list[int]) -> None:
    """Let the time limit pass."""
    time.sleep(LIMIT)


def assert_stopped(found: Stopped, output: Path, said: str) -> None:
    """Assert that a run stopped in the middle, after saving, as it must: exit code 75, and what to do in one line."""
    outcome = found.outcome
    assert outcome.code == 75, (outcome.code, outcome.stdout, outcome.stderr)
    assert said in outcome.stdout + outcome.stderr
    assert len([line for line in outcome.stdout.splitlines() if "--resume" in line]) == 1
    assert 0 < len(found.metrics) < ITERATIONS, "the run was not stopped in its middle"
    assert [each["iteration"] for each in found.metrics] == list(range(1, len(found.metrics) + 1))
    with h5py.File(output) as file:
        assert len(file["trace/bound"]) == len(found.metrics)
    assert not list(output.parent.glob(".*.part"))


# the uninterrupted runs, and the stopped ones


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Inputs]:
    folder = tmp_path_factory.mktemp("inputs")
    return {model: write_inputs(folder / model, model, N, M, Q, D) for model in MODELS}


@pytest.fixture(scope="module")
def whole(inputs: dict[str, Inputs], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the uninterrupted fits, MODEL-OPTIMIZER.h5, made by one rank."""
    folder = tmp_path_factory.mktemp("whole")
    commands = [
        fit(inputs[model], folder / f"{model}-{optimizer}.h5", model, *SETTINGS, "--optimizer", optimizer, m=M, q=Q)
        for model, optimizer in product(MODELS, OPTIMIZERS)
    ]
    for (outcome,) in several(folder / "told", 1, commands):
        assert outcome.code == 0, outcome.stderr
    return folder


class Resumed(NamedTuple):
    """A stopped run, the file it left, and how resuming ended; a copy of what it left is at `left`."""

    stopped: Stopped
    output: Path
    left: Path
    outcomes: list[Outcome]


@pytest.fixture(scope="module")
def resumed(inputs: dict[str, Inputs], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple, Resumed]:
    """All cases: stopped two at a time, on two ranks or one, then resumed on three ranks in one start of mpiexec."""
    folder = tmp_path_factory.mktemp("stopped")

    def command(case: tuple) -> list[object]:
        model, optimizer, _ = case
        return fit(inputs[model], output(case), model, *SETTINGS, "--optimizer", optimizer, m=M, q=Q)

    def output(case: tuple) -> Path:
        return folder / "-".join(case).replace(" ", "-") / "model.h5"

    def stopped(place: int) -> Stopped:
        case = CASES[place]
        ranks = (None, 2, 2)[(place + place // 3) % 3]  # every reason meets every way to start, and either model too
        words = [*launcher(ranks, plain=place % 2 == 1), *command(case)]
        if case[2] == "time limit":
            return stop(output(case).parent, [*words, "--time-limit", LIMIT], waiting, ranks or 1)
        return stop(output(case).parent, words, sending(signal.Signals[case[2]]), ranks or 1)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(stopped, range(len(CASES))))
    for case in CASES:
        if output(case).exists():
            (output(case).parent / "left.h5").write_bytes(output(case).read_bytes())
    outcomes = several(folder / "told", 3, [[*command(case), "--resume"] for case in CASES])
    return {
        case: Resumed(each, output(case), output(case).parent / "left.h5", ended)
        for case, each, ended in zip(CASES, found, outcomes, strict=True)
    }


SAID = {
    "SIGTERM": "SIGTERM was received",
    "SIGUSR1": "SIGUSR1 was received",
    "time limit": "the time limit was reached",
}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_stopped_run_saves_says_so_and_exits_with_75(case: tuple, resumed: dict[tuple, Resumed]) -> None:
    found = resumed[case]
    assert_stopped(found.stopped, found.left, SAID[case[2]])
    assert set(contents(found.left)) >= {"Z", "beta", "kernel/variance", "kernel/alpha", "checkpoint/options"}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_resuming_ends_as_if_never_stopped(case: tuple, resumed: dict[tuple, Resumed], whole: Path) -> None:
    model, optimizer, _ = case
    found = resumed[case]
    assert [outcome.code for outcome in found.outcomes] == [0, 0, 0], found.outcomes
    assert differences(whole / f"{model}-{optimizer}.h5", found.left), "nothing was left to do"
    assert differences(whole / f"{model}-{optimizer}.h5", found.output) == []


# other ways to be stopped


@pytest.mark.parametrize(("which", "plain"), [(0, True), (2, False)], ids=["first, mpiexec", "last, run.py"])
def test_a_signal_to_one_rank_stops_all(
    which: int, plain: bool, inputs: dict[str, Inputs], whole: Path, tmp_path: Path
) -> None:
    output = tmp_path / "model.h5"
    command = fit(inputs["gplvm"], output, "gplvm", *SETTINGS, m=M, q=Q)
    stopper = sending(signal.SIGUSR2, slice(which, which + 1))
    found = stop(tmp_path, [*launcher(3, plain), *command], stopper, 3)
    assert_stopped(found, output, "SIGUSR2 was received")
    outcome = run(None, *command, "--resume", "--json")
    assert outcome.code == 0, outcome.stderr
    assert outcome.figures["iterations"] == ITERATIONS
    assert differences(whole / "gplvm-lbfgs.h5", output) == []


def test_stopped_again_and_again(inputs: dict[str, Inputs], whole: Path, tmp_path: Path) -> None:
    """A time limit of nothing lets each run make one iteration: every place to stop at, the end of the hold too."""
    output = tmp_path / "model.h5"
    command = [*fit(inputs["gplvm"], output, "gplvm", *SETTINGS, m=M, q=Q), "--time-limit", 0]
    outcomes = several(tmp_path / "told", 2, [command, *[[*command, "--resume"]] * ITERATIONS])
    codes = [outcome.code for outcome, _ in outcomes]
    assert codes == [75] * ITERATIONS + [0]  # the last finds nothing left to do
    assert differences(whole / "gplvm-lbfgs.h5", output) == []


def test_resuming_a_fit_that_has_converged_changes_nothing(inputs: dict[str, Inputs], tmp_path: Path) -> None:
    """It would go on from a fit that stopped for good; as if never stopped means that it stays stopped."""
    output, before = tmp_path / "model.h5", tmp_path / "before.h5"
    easy = ["--max-iter", 500, "--hold", 5, "--tolerance", 1e-5]
    command = [*fit(inputs["regression"], output, "regression", m=M), *easy, "--json"]
    ((first,),) = several(tmp_path / "first", 1, [command])
    assert first.code == 0, first.stderr
    assert "relative change" in first.figures["stopped"]
    before.write_bytes(output.read_bytes())
    ((second,),) = several(tmp_path / "second", 1, [[*command, "--resume"]])
    assert second.code == 0, second.stderr
    assert second.figures["iterations"] == first.figures["iterations"]
    assert differences(before, output) == []


def test_metrics_of_a_resumed_run_go_on_without_gap_or_repetition(inputs: dict[str, Inputs], tmp_path: Path) -> None:
    """Lines behind the last checkpoint are of iterations that a run which was killed made in vain."""
    output, metrics = tmp_path / "model.h5", tmp_path / "metrics.jsonl"
    shared = [*SETTINGS, "--metrics", metrics, "--json"]
    command = fit(inputs["regression"], output, "regression", *shared, m=M)
    (first,) = several(tmp_path / "first", 1, [[*command, "--max-iter", 20]])[0]
    assert first.code == 0, first.stderr
    lines = metrics.read_text().splitlines()
    assert len(lines) == 20
    ahead = [json.dumps(json.loads(lines[-1]) | {"iteration": 21 + k, "bound": 0.0}) for k in range(3)]
    metrics.write_text("\n".join([*lines, *ahead]) + "\n" + ahead[0][:30])  # the last line was cut off
    (second,) = several(tmp_path / "second", 1, [[*command, "--max-iter", 30, "--resume"]])[0]
    assert second.code == 0, second.stderr
    records = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [each["iteration"] for each in records] == list(range(1, 31))
    with h5py.File(output) as file:
        assert [each["bound"] for each in records] == file["trace/bound"][()].tolist()


# killed


KILLS = 5


@pytest.mark.slow
def test_killed_at_any_moment_the_checkpoint_is_whole(tmp_path: Path) -> None:
    """Five times the whole job is killed, while it writes a checkpoint every other iteration, and resumed."""
    inputs = write_inputs(tmp_path, "gplvm", 2000, 12, 4, 3)  # hundreds of iterations: more than the runs get to make
    output, metrics, again = tmp_path / "model.h5", tmp_path / "metrics.jsonl", tmp_path / "again.h5"
    settings = ["--hold", 10, "--tolerance", 0, "--gradient-tolerance", 0]
    command = [*fit(inputs, output, "gplvm", *settings, m=12), "--checkpoint-every", 2]
    moments = random.Random(20)
    reached = [0]
    for number in range(KILLS):
        resume = ["--resume"] if output.exists() else []
        metrics.write_text("")
        words = [*launcher((None, 2)[number % 2]), *command, *resume, "--metrics", metrics, "--max-iter", 10**6]
        process = started(words)
        try:
            began = time.perf_counter()
            while metrics.read_text().count("\n") < 3:  # so that a checkpoint of this run was written
                assert process.poll() is None, process.communicate()
                assert time.perf_counter() - began < KILL, "no iteration was made"
                time.sleep(0.002)
            time.sleep(0.2 * moments.random())
            assert process.poll() is None, "the run was over before it was killed"
        finally:
            end_session(process.pid)
            process.communicate()
        found = contents(output)  # reads all of it
        reached.append(len(found["trace/bound"]))
        assert reached[-1] % 2 == 0
        assert reached[-1] > reached[-2]
    most = reached[-1] + 20
    outcomes = [
        run(3, *command, "--max-iter", most, "--resume", "--json"),
        run(None, *command, "--max-iter", most, "-o", again, "--json"),
    ]
    assert [outcome.code for outcome in outcomes] == [0, 0], outcomes
    assert outcomes[0].figures["iterations"] == most or "no step" in outcomes[0].figures["stopped"]
    assert differences(again, output) == []
