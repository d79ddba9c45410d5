"""Mutate files and run commands on them: `python -m tests.fuzz --files 500 --seed 1`; exit code 1 with faults."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.fuzz import corpus
from tests.fuzz.cases import CASES, WEIGHTS
from tests.fuzz.children import Outcome, call, forked, import_modules
from tests.fuzz.mutations import choose, mutate

KEPT = b"an output of an earlier run"


class Trial(NamedTuple):
    """A mutated file, what was done to it, the command line that read it, and how that ended."""

    file: str
    mutations: str
    words: list[str]
    outcome: Outcome
    faults: list[str]


def state(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a folder, but for what the command printed."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name[:4] != ".std"}


def faults_of(outcome: Outcome, before: dict[str, bytes], after: dict[str, bytes], output: str) -> list[str]:
    """Return what is wrong with the end of a command."""
    code, stdout, stderr = outcome
    faults = []
    if code not in (0, 2):
        faults.append("took too long" if code == -14 else f"exit code {code}")
    if "Traceback" in stderr or "Warning" in stderr:
        faults.append("a traceback or a warning")
    if code == 2 and (stdout or stderr.count("\n") != 1 or not stderr.startswith("mpigp: ")):
        faults.append("not one line")
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if changed - ({output} if code == 0 else set()):
        faults.append(f"changed {', '.join(sorted(changed))}")
    return faults


def attempt(source: Path, folder: Path, seed: int, number: int) -> Trial:
    """Mutate a file, chosen by the seed and the number, in a folder of its own, and run a command that reads it."""
    rng = np.random.default_rng([seed, number])
    names, weights = list(CASES), np.array(list(WEIGHTS.values()))
    name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
    for path in source.iterdir():
        if path.is_file() and path.name != name and path.suffix == ".h5":
            (folder / path.name).symlink_to(path)
    mutated, output = folder / f"mutated{Path(name).suffix}", folder / "output"
    shutil.copy(source / name, mutated)
    output.write_bytes(KEPT)
    words = [word.replace("FILE", mutated.name).replace("OUT", "output") for word in choose(rng, CASES[name])]
    mutations = forked(folder, lambda: print(*mutate(mutated, rng), sep=", ")).stdout.strip()
    before = state(folder)
    outcome = call(folder, words)
    written = mutated.name if "--resume" in words else "output"
    return Trial(name, mutations, words, outcome, faults_of(outcome, before, state(folder), written))


def main() -> int:
    """Run the trials; print the faults, how to repeat each, and what all came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=500, help="how many to mutate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the one to repeat; its folder is kept")
    arguments = parser.parse_args()
    import_modules()
    start, codes, wrong, slowest = time.monotonic(), Counter[int](), 0, 0.0
    with tempfile.TemporaryDirectory(prefix="mpigp-fuzz-") as place:
        source = Path(place) / "corpus"
        source.mkdir()
        corpus.make(source, lambda folder, words: call(folder, words).code)
        for number in range(arguments.files) if arguments.only is None else [arguments.only]:
            folder, began = Path(tempfile.mkdtemp(dir=place)), time.monotonic()
            trial = attempt(source, folder, arguments.seed, number)
            slowest = max(slowest, time.monotonic() - began)
            codes[trial.outcome.code] += 1
            if trial.faults:
                wrong += 1
                print(f"{'; '.join(trial.faults)}: mpigp {' '.join(trial.words)}")
                print(f"  {trial.file}: {trial.mutations}: {trial.outcome.stderr.strip()[-600:]}")
                print(f"  again: python -m tests.fuzz --seed {arguments.seed} --only {number}", flush=True)
            elif arguments.only is not None:
                print(trial)
            if arguments.only is not None:
                kept = Path(tempfile.mkdtemp(prefix="mpigp-fuzz-kept-"))
                shutil.copytree(place, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("fifo"))
                print(f"the files: {kept}")
            else:
                shutil.rmtree(folder)
    ends = ", ".join(f"{count} ended with {code}" for code, count in sorted(codes.items()))
    seconds = time.monotonic() - start
    print(f"{sum(codes.values())} files, {wrong} faults: {ends}; {seconds:.0f} s, the slowest {slowest:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
