"""A fault campaign: fits whose ranks are killed at random moments must end as if nothing had happened, bit for bit.

    python -m tests.mpi.campaign --runs 100 [--seed S] [--phases PHASE ...]

Each run has 4 to 6 ranks, of which 1 to 3 are killed with SIGKILL, in each phase in turn: while they start, initialise,
iterate, write a checkpoint, recover or end, several at once, the master, and the launcher with all of them.
"""

from __future__ import annotations

import argparse
import os
import random
import re
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

from tests.support.fits import differences, fit
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT, end_session, run

LIMIT = 600  # seconds of a run: many times what the slowest takes on a busy machine
ITERATIONS = 40
SETTINGS = ("--hold", 5, "--max-iter", ITERATIONS, "--tolerance", 0, "--gradient-tolerance", 0)
TAG = "MPIGP_CAMPAIGN"
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")  # what Open MPI and MPICH tell a rank
PHASES = ("start", "initialisation", "iteration", "checkpoint", "recovery", "at once", "master", "end", "launcher")
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
    """A fit that is under way, and what it has said so far; by default started by `--ranks`."""

    def __init__(
        self, inputs: Inputs, model: str, folder: Path, ranks: int, *options: object, start: list[object] | None = None
    ) -> None:
        self.output, self.metrics, self.tag = folder / "model.h5", folder / "metrics.jsonl", uuid.uuid4().hex
        self.output.unlink(missing_ok=True)
        self.metrics.write_text("")
        words = [*fit(inputs, self.output, model, *SETTINGS, *options), "--metrics", self.metrics]
        self.began = time.perf_counter()
        with open(folder / "stdout", "w") as stdout:
            self.process = subprocess.Popen(
                [*map(str, start or [sys.executable, ROOT / "run.py", "--ranks", ranks]), *map(str, words)],
                env={**os.environ, TAG: self.tag}, stdout=stdout, stderr=subprocess.PIPE, text=True,
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

    def kill(self, ranks: list[int], by: signal.Signals = signal.SIGKILL) -> int:
        """Kill those of the ranks that are alive, but leave one; return how many."""
        alive = ranks_of(self.tag)
        victims = [rank for rank in ranks if rank in alive][: len(alive) - 1]
        for rank in victims:
            with suppress(ProcessLookupError):
                os.kill(alive[rank], by)
        return len(victims)

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
        return each.end(), each.said, each.output
    finally:
        end_session(each.process.pid)


@cache
def undisturbed(*options: object, rows: int = 700) -> Path:
    """Return the model of the same fit on one rank, in which nobody dies."""
    folder = Path(tempfile.mkdtemp())
    outcome = run(None, *fit(write_inputs(folder, "gplvm", rows, 7, 2, 3), folder / "alone.h5", "gplvm",
                             *SETTINGS, *options))  # fmt: skip
    assert outcome.code == 0, outcome
    return folder / "alone.h5"


def strike(each: Run, phase: str, ranks: int, chance: random.Random) -> int:
    """Kill ranks of a run in a phase of it; return how many."""
    victims = chance.sample(range(ranks), chance.choice([1, 2, 3]))
    met = []

    def have_met() -> bool:
        folders = {environment.get("MPIGP_STARTED", "") for environment in environments(each.tag).values()}
        met[:] = [folder for folder in folders if os.path.isdir(folder) and os.listdir(folder)]
        return bool(met)

    if phase == "start":
        each.wait(lambda: len(ranks_of(each.tag)) == ranks)
        time.sleep(chance.uniform(0.0, 1.5))
        return each.kill(victims)
    if phase == "initialisation":
        each.wait(have_met, 0.001)
        time.sleep(chance.uniform(0.0, 0.2))
        return each.kill(victims)
    wanted = chance.randrange(1, ITERATIONS - 10) if phase != "end" else ITERATIONS
    each.wait(lambda: each.iterations() >= wanted)
    if phase == "checkpoint":
        each.wait(lambda: any(each.output.parent.glob(".model.h5.*.part")), 0.0)
        return each.kill(victims)
    time.sleep(chance.uniform(0.0, 0.05))
    if phase == "launcher":
        return each.kill_launcher()
    if phase == "end":
        return each.kill(victims)
    if phase == "at once":
        return each.kill(chance.sample(range(ranks), chance.choice([2, 3])))
    if phase == "master":
        return each.kill([0])
    if phase == "recovery":
        done = each.kill(victims[:1])
        each.wait(lambda: "was lost" in each.said, 0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        return done + each.kill(chance.sample(range(ranks), 2))
    done = 0
    for rank in victims:  # in iterations: one by one
        done += each.kill([rank])
        time.sleep(chance.choice([0.0, 0.01, 0.1, 0.5]))
    return done


def one(case: Case, phase: str, ranks: int, chance: random.Random) -> Result:
    """Make one run, and kill ranks of it."""
    inputs, model, undisturbed, folder = case
    often = phase == "checkpoint" or chance.random() < 0.6
    checkpoints = ["--checkpoint-every", 1 if phase == "checkpoint" else chance.choice([1, 5])] if often else []
    each, done, code = Run(inputs, model, folder, ranks, *checkpoints), 0, 0
    try:
        done = strike(each, phase, ranks, chance)
        code = each.end()
        fault = "" if code == 0 else f"exit code {code}: {each.said[-1000:]}"
    except TimeoutError:
        fault = f"it hangs: {each.said[-1000:]}"
    finally:
        end_session(each.process.pid)
    seconds = time.perf_counter() - each.began
    if not fault and (differ := differences(undisturbed, each.output)):
        fault = f"other bits: {differ}: {each.said[-1000:]}"
    if not fault and (parts := list(folder.glob(".*.part"))):
        fault = f"left behind: {parts}"
    found = RECOVERED.findall(each.said)
    fallbacks = sum(source == "the checkpoint" for _, source in found)
    lost = [float(each) for each, _ in found]
    return Result(phase, ranks, done, len(found), fallbacks, len(AGAIN.findall(each.said)), lost, seconds, fault)


def campaign(
    folder: Path, runs: int, seed: int = 0, phases: Sequence[str] = PHASES, sizes: Sequence[int] = (4, 5, 6)
) -> list[Result]:
    """Make the runs, over the phases and both models in turn, each of some size; return how each ended."""
    chance, results = random.Random(seed), []
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
            result = one(cases[number % 2], phases[number % len(phases)], chance.choice(sizes), chance)
        results.append(result)
        print(f"run {number + 1}: {results[-1]}", flush=True)
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
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = campaign(Path(folder), arguments.runs, arguments.seed, arguments.phases)
    print(summary(results))
    sys.exit(any(result.fault for result in results))


if __name__ == "__main__":
    main()
