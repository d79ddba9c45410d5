"""A fault campaign: fits that meet faults at random moments must end as if nothing had happened, bit for bit.

    python -m tests.mpi.campaign --runs 100 [--seed S] [--phases PHASE ...]

Each run has 4 to 6 ranks, of which 1 to 3 are killed with SIGKILL, in each phase in turn: while they start, initialise,
iterate, write a checkpoint, recover or end, several at once, the master, and mpiexec with all of them. Further phases:

    plain start    a rank is killed in MPI_Init under plain `mpiexec --with-ft ulfm`: the others end
    own launcher   `mpigp --ranks` itself is killed: no rank is left
    signal         SIGINT, SIGTERM or SIGUSR1 to `mpigp --ranks`: it saves, and exits with 75
    stop           a rank is stopped with SIGSTOP, and does not answer any more
    host rank, host kill, host cut    on three hosts (root, tests/hosts/rig.py): a rank or all processes of one are
                   killed, or its link is cut

A job that ended before the fit did is resumed, and must then have the same bits too.
"""

from __future__ import annotations

import argparse
import atexit
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mpigp.launch.mpiexec import find_mpiexec
from tests.hosts.rig import AGENT, Rig, missing
from tests.support.fits import differences, fit
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT, end_session, needed_flags, run
from tests.support.phases import Held

LIMIT = 600  # seconds of a run: many times what the slowest takes on a busy machine
ITERATIONS = 40
SETTINGS = ("--hold", 5, "--max-iter", ITERATIONS, "--tolerance", 0, "--gradient-tolerance", 0)
TAG = "MPIGP_CAMPAIGN"
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")  # what Open MPI and MPICH tell a rank
PHASES = ("start", "initialisation", "iteration", "checkpoint", "recovery", "at once", "master", "end", "launcher",
          "plain start", "own launcher", "signal", "stop")  # fmt: skip
HOST_PHASES = ("host rank", "host kill", "host cut")
RESUMED = ("plain start", "own launcher", "signal")  # phases whose jobs may end before the fit does
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
STALL = 4  # seconds without an answer after which a rank, or a host, is given up
RECOVERED = re.compile(r"recovered in ([0-9.]+) s: going on from (.*), at iteration")

AGAIN = re.compile("starting (it|them) again")


class Case(NamedTuple):
    """What a run fits, the model of a fit in which nobody died, and the folder that both are in."""

    inputs: Inputs
    model: str
    undisturbed: Path
    folder: Path


class Result(NamedTuple):
    """How a run ended.

    fallbacks : recoveries, of `recoveries`, from the checkpoint.   lost : the seconds of each recovery
    fault : empty where all was as it should be
    """

    phase: str
    ranks: int
    kills: int
    recoveries: int
    fallbacks: int
    restarts: int
    lost: list[float]
    seconds: float
    fault: str


def environments(tag: str) -> dict[int, dict[str, str]]:
    """Return the environments of the ranks of a run that are alive, by process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = dict(item.split("=", 1) for item in (path / "environ").read_text().split("\0") if "=" in item)
            alive = (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and environment.get(TAG) == tag and any(name in environment for name in RANK):
                found[int(path.name)] = environment
    return found


def ranks_of(tag: str) -> dict[int, int]:
    """Return the process of each rank that is alive, by its rank."""
    found = environments(tag).items()
    return {int(next(each[name] for name in RANK if name in each)): process for process, each in found}


class Run:
    """A fit that is under way, and what it has said so far; by default started by `--ranks`, or on a rig's hosts.

    It waits behind iteration `hold` until its `held` lets it go: it cannot be over before its fault, on any machine.
    """

    def __init__(
        self, inputs: Inputs, model: str, folder: Path, ranks: int, *options: object,
        start: list[object] | None = None, rig: Rig | None = None, hold: int = ITERATIONS - 5,
    ) -> None:  # fmt: skip
        self.output, self.metrics, self.tag = folder / "model.h5", folder / "metrics.jsonl", uuid.uuid4().hex
        self.output.unlink(missing_ok=True)
        self.metrics.write_text("")
        hosts = ["--hosts", ",".join(f"{name}:2" for name in rig.names)] if rig else []
        words = [*(start or [sys.executable, ROOT / "run.py", "--ranks", ranks, *hosts]),
                 *fit(inputs, self.output, model, *SETTINGS, *options), "--metrics", self.metrics]  # fmt: skip
        shutil.rmtree(folder / "held", ignore_errors=True)
        self.held = Held(folder / "held", "iterating", hold)
        environment = {**os.environ, **self.held.environment, TAG: self.tag, "OMPI_MCA_mpi_yield_when_idle": "1"}
        if rig:
            words, environment["PRTE_MCA_plm_ssh_agent"] = list(rig.command(*words)), str(AGENT)
        self.began = time.perf_counter()
        with open(folder / "stdout", "w") as stdout:
            self.process = subprocess.Popen(
                [*map(str, words)], env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
                start_new_session=True, cwd=folder,
            )  # fmt: skip
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def wait(self, condition: Callable[[], bool], pause: float = 0.005) -> None:
        """Wait until something is the case, or the run is over; raise at the limit."""
        while self.process.poll() is None and not condition():
            if time.perf_counter() - self.began > LIMIT:
                raise TimeoutError
            time.sleep(pause)

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        self.wait(lambda: False, 0.02)
        self._reader.join(10)
        return self.process.wait()

    def iterations(self) -> int:
        """Return how many iterations were made."""
        return self.metrics.read_text().count("\n")

    def kill(self, ranks: list[int], by: signal.Signals = signal.SIGKILL, alive: dict[int, int] | None = None) -> int:
        """Kill those of the ranks that are alive, but leave one; return how many."""
        alive = ranks_of(self.tag) if alive is None else alive
        done = 0
        for rank in [rank for rank in ranks if rank in alive][: len(alive) - 1]:
            with suppress(ProcessLookupError):
                os.kill(alive[rank], by)
                done += 1
        return done

    def kill_launcher(self) -> int:
        """Kill mpiexec; return 1 where it was there."""
        for process in ranks_of(self.tag).values():
            with suppress(OSError):
                parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
                if parent > 1:
                    os.kill(parent, signal.SIGKILL)
                    return 1
        return 0


def killed(
    folder: Path,
    ranks: int,
    victims: list[int],
    *options: object,
    by: signal.Signals = signal.SIGKILL,
    start: list[object] | None = None,
    rows: int = 700,
) -> tuple[int, str, Path]:
    """Run a fit, and kill ranks after its tenth iteration; return its exit code, what it said, and its model."""
    each = Run(write_inputs(folder, "gplvm", rows, 7, 2, 3), "gplvm", folder, ranks, *options, start=start)
    try:
        each.wait(lambda: each.iterations() >= 10)
        assert each.kill(victims, by) == len(victims), each.said
        each.held.go()
        return each.end(), each.said, each.output
    finally:
        end_session(each.process.pid)


@cache
def undisturbed(*options: object, rows: int = 700) -> Path:
    """Return the model of the same fit on one rank, in which nobody dies."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    outcome = run(None, *fit(write_inputs(folder, "gplvm", rows, 7, 2, 3), folder / "alone.h5", "gplvm",
                             *SETTINGS, *options))  # fmt: skip
    assert outcome.code == 0, outcome
    return folder / "alone.h5"


def strike_host(each: Run, phase: str, rig: Rig, chance: random.Random) -> int:
    """Kill a rank or a host, or cut one off, while a run on hosts iterates; return 1 where it was there."""
    wanted = chance.randrange(1, ITERATIONS - 10)
    each.wait(lambda: each.iterations() >= wanted)
    if phase == "host rank":
        return each.kill([chance.randrange(2 * len(rig.names))])
    alive = each.process.poll() is None
    if phase == "host kill":
        rig.kill(chance.choice(rig.names[1:]))  # the first has the launcher
    else:
        rig.cut(chance.choice(rig.names))
    return int(alive)


def strike_job(each: Run, phase: str, chance: random.Random) -> int:
    """Stop a rank of a run, or send its launcher a signal, at any moment; return 1 where it was there."""
    if phase == "stop":
        wanted = chance.randrange(5, ITERATIONS - 10)
        each.wait(lambda: each.iterations() >= wanted)
        return each.kill([chance.randrange(4)], signal.SIGSTOP)
    time.sleep(chance.uniform(0.3, 2.5))
    if each.process.poll() is not None:
        return 0
    each.process.send_signal(signal.SIGKILL if phase == "own launcher" else chance.choice(SIGNALS))
    return 1


def strike(each: Run, phase: str, ranks: int, chance: random.Random, rig: Rig | None = None) -> int:
    """Make the fault of a phase happen to a run; return how many ranks, or hosts, it met."""
    if rig is not None:
        return strike_host(each, phase, rig, chance)
    if phase in ("own launcher", "signal", "stop"):
        return strike_job(each, phase, chance)
    victims = chance.sample(range(ranks), chance.choice([1, 2, 3]))
    met = []

    def have_met() -> bool:
        folders = {environment.get("MPIGP_STARTED", "") for environment in environments(each.tag).values()}
        met[:] = [folder for folder in folders if os.path.isdir(folder) and os.listdir(folder)]
        return bool(met)

    if phase in ("start", "plain start"):
        each.wait(lambda: len(ranks_of(each.tag)) == ranks)
        time.sleep(chance.uniform(0.0, 1.5))
        return each.kill(victims)
    if phase == "initialisation":
        each.wait(have_met, 0.001)
        time.sleep(chance.uniform(0.0, 0.2))
        return each.kill(victims)
    if phase == "end":
        each.wait(lambda: each.held.there() > 0)  # before the last iteration
        alive = ranks_of(each.tag)  # which takes longer than they have left
        each.held.go()
        time.sleep(chance.uniform(0.0, 0.1))
        return each.kill(victims, alive=alive)
    wanted = chance.randrange(1, ITERATIONS - 10)
    each.wait(lambda: each.iterations() >= wanted)
    if phase == "checkpoint":
        each.wait(lambda: any(each.output.parent.glob(".model.h5.*.part")) or each.held.there() > 0, 0.0)
        return each.kill(victims)
    time.sleep(chance.uniform(0.0, 0.05))
    if phase == "launcher":
        return each.kill_launcher()
    if phase == "at once":
        return each.kill(chance.sample(range(ranks), chance.choice([2, 3])))
    if phase == "master":
        return each.kill([0])
    if phase == "recovery":
        done = each.kill(victims[:1])
        each.held.go()
        each.wait(lambda: "was lost" in each.said, 0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        return done + each.kill(chance.sample(range(ranks), 2))
    done = 0
    for rank in victims:  # in iterations: one by one
        done += each.kill([rank])
        time.sleep(chance.choice([0.0, 0.01, 0.1, 0.5]))
    return done


def one(case: Case, phase: str, ranks: int, chance: random.Random, rig: Rig | None = None) -> Result:
    """Make one run, and a fault in it."""
    inputs, model, undisturbed, folder = case
    often = phase == "checkpoint" or chance.random() < 0.6
    options: list[object] = (
        ["--checkpoint-every", 1 if phase == "checkpoint" else chance.choice([1, 5])] if often else []
    )
    options += ["--stall-timeout", STALL] if phase in ("stop", "host kill", "host cut") else []
    start = by_mpiexec(ranks) if phase == "plain start" else None
    hold = ITERATIONS - 1 if phase == "end" else ITERATIONS - 5
    each, done, fault = Run(inputs, model, folder, ranks, *options, start=start, rig=rig, hold=hold), 0, ""
    try:
        done = strike(each, phase, ranks, chance, rig)
        each.held.go()
        code = each.end()
        if code and phase in RESUMED:
            fault = resumed(each, case, code if phase == "signal" else 75, options)
        elif code:
            fault = f"exit code {code}: {each.said[-1000:]}"
    except TimeoutError:
        fault = f"it hangs: {each.said[-1000:]}"
    finally:
        end_session(each.process.pid)
        if rig is not None:
            rig.heal()
            for name in rig.names:
                rig.kill(name)
    seconds = time.perf_counter() - each.began
    if not fault and (differ := differences(undisturbed, each.output)):
        fault = f"other bits: {differ}: {each.said[-1000:]}"
    if not fault and (parts := list(folder.glob(".*.part"))):
        fault = f"left behind: {parts}"
    found = RECOVERED.findall(each.said)
    fallbacks = sum(source == "the checkpoint" for _, source in found)
    lost = [float(each) for each, _ in found]
    return Result(phase, ranks, done, len(found), fallbacks, len(AGAIN.findall(each.said)), lost, seconds, fault)


def by_mpiexec(ranks: int) -> list[object]:
    """Return the words before a command under plain mpiexec with fault tolerance."""
    needed = needed_flags(ranks, survive=True)
    return [find_mpiexec(), *needed, "-n", ranks, sys.executable, ROOT / "run.py"]


def resumed(each: Run, case: Case, code: int, options: list[object]) -> str:
    """Resume a run that ended before its fit did; return what is wrong with it: a code but 75, ranks that are left."""
    if code != 75:
        return f"exit code {code}: {each.said[-1000:]}"
    end = time.perf_counter() + 30
    while ranks_of(each.tag):
        if time.perf_counter() > end:
            return f"ranks are left: {each.said[-1000:]}"
        time.sleep(0.05)
    outcome = run(None, *fit(case.inputs, each.output, case.model, *SETTINGS, *options), "--resume")
    if each.process.returncode < 0:
        for left in each.output.parent.glob(".*"):  # of a launcher that was killed, and of ranks with it
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return "" if outcome.code == 0 else f"resumed: {outcome}"


def campaign(
    folder: Path, runs: int, seed: int = 0, phases: Sequence[str] = PHASES, sizes: Sequence[int] = (4, 5, 6)
) -> list[Result]:
    """Make the runs, over the phases and both models in turn, each of some size; return how each ended."""
    chance, results = random.Random(seed), []
    rig = Rig(3) if set(phases) & set(HOST_PHASES) else None
    cases = []
    for model in ("gplvm", "regression"):
        place = folder / model
        place.mkdir()
        inputs, undisturbed = write_inputs(place, model, 700, 7, 2, 3), place / "undisturbed.h5"
        outcome = run(None, *fit(inputs, undisturbed, model, *SETTINGS))
        assert outcome.code == 0, outcome
        cases.append(Case(inputs, model, undisturbed, place))
    for number in range(runs):
        result = None
        while result is None or not (result.kills or result.fault):  # one that ended before its moment shows nothing
            phase, ranks = phases[number % len(phases)], chance.choice(sizes)
            on_hosts = phase in HOST_PHASES
            result = one(cases[number % 2], phase, 6 if on_hosts else ranks, chance, rig if on_hosts else None)
        results.append(result)
        print(f"run {number + 1}: {results[-1]}", flush=True)
    if rig is not None:
        rig.down()
    return results


def summary(results: list[Result]) -> str:
    """Return what a campaign showed, in a line."""
    kills, recoveries, fallbacks, restarts = (
        sum(getattr(result, name) for result in results) for name in ("kills", "recoveries", "fallbacks", "restarts")
    )
    lost = [seconds for result in results for seconds in result.lost] or [0.0]
    faults = sum(bool(result.fault) for result in results)
    return (
        f"{len(results)} runs, {kills} kills, {recoveries} recoveries, {fallbacks} of them from a checkpoint, "
        f"{restarts} restarts, {statistics.median(lost):.2f} s lost per recovery (median; {max(lost):.2f} at most), "
        f"{faults} faults"
    )


def main() -> None:
    """Run a campaign of any length, and print what it showed; exit code 1 if a run was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--phases", nargs="+", choices=PHASES + HOST_PHASES, default=PHASES + (() if missing() else HOST_PHASES)
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = campaign(Path(folder), arguments.runs, arguments.seed, arguments.phases)
    print(summary(results))
    sys.exit(any(result.fault for result in results))


if __name__ == "__main__":
    main()
