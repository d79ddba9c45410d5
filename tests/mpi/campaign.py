"""A fault campaign: fits whose ranks are killed at random moments must end as if nothing had happened, bit for bit.

    python tests/mpi/campaign.py --runs 100 [--seed S]

Each run has 4 to 6 ranks, of which 1 to 3 are killed with SIGKILL: while they start, initialise, iterate, write a
checkpoint or recover, one by one or at once, the master among them.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from fits import differences, fit  # noqa: E402
from inputs import Inputs, write_inputs  # noqa: E402
from launching import ROOT, end_session, run  # noqa: E402

LIMIT = 120  # seconds of a run: several times what the slowest takes on a busy machine
ITERATIONS = 40
TAG = "MPIGP_CAMPAIGN"


class Result(NamedTuple):
    """How a run ended."""

    kills: int
    recoveries: int
    restarts: int
    seconds: float
    fault: str  # empty where all was as it should be


def ranks_of(tag: str) -> dict[int, int]:
    """Return the process of each rank that is alive, by its rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = dict(item.split("=", 1) for item in (path / "environ").read_text().split("\0") if "=" in item)
            alive = (path / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and environment.get(TAG) == tag and "OMPI_COMM_WORLD_RANK" in environment:
                found[int(environment["OMPI_COMM_WORLD_RANK"])] = int(path.name)
    return found


def one(inputs: Inputs, model: str, undisturbed: Path, folder: Path, chance: random.Random) -> Result:
    """Make one run, and kill ranks of it."""
    ranks, kills = chance.choice([4, 5, 6]), chance.choice([1, 1, 2, 3])
    output, metrics, tag = folder / "model.h5", folder / "metrics.jsonl", uuid.uuid4().hex
    output.unlink(missing_ok=True)
    metrics.write_text("")
    checkpoints = ["--checkpoint-every", chance.choice([1, 5])] if chance.random() < 0.7 else []
    words = [*fit(inputs, output, model, *SETTINGS), "--metrics", metrics, *checkpoints]
    command = [sys.executable, str(ROOT / "run.py"), "--ranks", str(ranks), *map(str, words)]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, TAG: tag}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        if chance.random() < 0.25:  # at any moment of the start
            while process.poll() is None and len(ranks_of(tag)) < ranks:
                time.sleep(0.01)
            time.sleep(chance.uniform(0.0, 2.0))
        else:  # at any moment between iterations first and last
            wanted = chance.randrange(1, ITERATIONS - 5)
            while process.poll() is None and metrics.read_text().count("\n") < wanted:
                time.sleep(0.005)
            time.sleep(chance.uniform(0.0, 0.05))
        done = 0
        for _ in range(kills):
            alive = ranks_of(tag)
            if len(alive) > 1:
                os.kill(alive[chance.choice(sorted(alive))], signal.SIGKILL)
                done += 1
            time.sleep(chance.choice([0.0, 0.0, 0.01, 0.1, 0.5]))  # at once, while the others recover, or later
        _, said = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return Result(done, 0, 0, LIMIT, "it hangs")
    finally:
        end_session(process.pid)
    seconds = time.perf_counter() - began
    recoveries, restarts = said.count("was lost: going on"), said.count("starting it again")
    if process.returncode != 0:
        return Result(done, recoveries, restarts, seconds, f"exit code {process.returncode}: {said[-500:]}")
    differ = differences(undisturbed, output)
    return Result(done, recoveries, restarts, seconds, f"other bits: {differ}" if differ else "")


SETTINGS = ("--hold", 5, "--max-iter", ITERATIONS, "--tolerance", 0, "--gradient-tolerance", 0)


def campaign(folder: Path, runs: int, seed: int = 0) -> list[Result]:
    """Make the runs, both models in turn, and return how each ended."""
    chance, results = random.Random(seed), []
    cases = []
    for model in ("gplvm", "regression"):
        place = folder / model
        place.mkdir()
        inputs, undisturbed = write_inputs(place, model, 700, 7, 2, 3), place / "undisturbed.h5"
        outcome = run(None, *fit(inputs, undisturbed, model, *SETTINGS))
        assert outcome.code == 0, outcome
        cases.append((inputs, model, undisturbed, place))
    for number in range(runs):
        result = one(*cases[number % 2], chance)
        while not result.kills and not result.fault:  # it ended before its moment came: it shows nothing
            result = one(*cases[number % 2], chance)
        results.append(result)
        print(f"run {number + 1}: {results[-1]}", flush=True)
    return results


def main() -> None:
    """Run a campaign of any length, and print what it showed; exit code 1 if a run was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = campaign(Path(folder), arguments.runs, arguments.seed)
    faults = [result.fault for result in results if result.fault]
    kills, recoveries, restarts = (sum(getattr(result, name) for result in results) for name in Result._fields[:3])
    print(f"{len(results)} runs, {kills} kills, {recoveries} recoveries, {restarts} restarts, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
