"""Mutate files and run commands on them: `python -m tests.fuzz --files 500 --seed 1`; exit code 1 with faults."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.fuzz import corpus
from tests.fuzz.cases import CASES, WEIGHTS
from tests.fuzz.children import Outcome, call, forked, import_modules
from tests.fuzz.mutations import choose, mutate

KEPT = b"an output of an earlier run"
UNCHANGED = 0.05  # of the files that no mutation could be made of: more, and one of the mutations is broken


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


def attempt(source: Path, folder: Path, name: str, words: list[str], rng: np.random.Generator | None) -> Trial:
    """Mutate a file in a folder of its own, unless there is no generator, and run a command that reads it."""
    for path in source.iterdir():
        if path.name != name and path.suffix == ".h5":
            (folder / path.name).symlink_to(path)
    mutated, output = folder / f"mutated{Path(name).suffix}", folder / "output"
    shutil.copy(source / name, mutated)
    output.write_bytes(KEPT)
    words = [word.replace("FILE", mutated.name).replace("OUT", output.name) for word in words]
    done = "" if rng is None else forked(folder, lambda: print(*mutate(mutated, rng), sep=", ")).stdout.strip()
    before = state(folder)
    outcome = call(folder, words)
    faults = faults_of(outcome, before, state(folder), mutated.name if "--resume" in words else output.name)
    if rng is None and outcome.code:
        faults.append("refused a file that is whole")
    return Trial(name, done, words, outcome, faults)


def trials(source: Path, place: str, seed: int, numbers: Iterable[int]) -> Iterator[tuple[int, Path, Trial]]:
    """Yield trials with their numbers and folders; each is chosen by the seed and its number alone."""
    names, weights = list(CASES), np.array(list(WEIGHTS.values()))
    for number in numbers:
        rng = np.random.default_rng([seed, number])
        name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        folder = Path(tempfile.mkdtemp(dir=place))
        yield number, folder, attempt(source, folder, name, choose(rng, CASES[name]), rng)


def whole_files(source: Path, place: str) -> Iterator[Trial]:
    """Yield trials of all commands with files that are not mutated."""
    for name, cases in CASES.items():
        for words in cases:
            yield attempt(source, Path(tempfile.mkdtemp(dir=place)), name, words, None)


def tell(trial: Trial, again: str) -> None:
    """Print the faults of a trial, and how to repeat it."""
    print(f"{'; '.join(trial.faults)}: mpigp {' '.join(trial.words)}")
    print(f"  {trial.file}: {trial.mutations}: {trial.outcome.stderr.strip()[-600:]}")
    print(f"  again: python -m tests.fuzz {again}", flush=True)


def main() -> int:
    """Run the trials; print the faults, how to repeat each, and what all came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=500, help="how many to mutate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the one to repeat; its files are kept")
    arguments = parser.parse_args()
    only, seed = arguments.only, arguments.seed
    import_modules()
    start, codes, wrong, unchanged = time.monotonic(), Counter[int](), 0, 0
    with tempfile.TemporaryDirectory(prefix="mpigp-fuzz-") as place:
        source = Path(place) / "corpus"
        source.mkdir()
        corpus.make(source, lambda folder, words: call(folder, words).code)
        for trial in whole_files(source, place) if only is None else ():
            if trial.faults:
                wrong += 1
                tell(trial, "--files 0")
        for number, folder, trial in trials(source, place, seed, range(arguments.files) if only is None else [only]):
            codes[trial.outcome.code] += 1
            unchanged += not trial.mutations
            if trial.faults:
                wrong += 1
                tell(trial, f"--seed {seed} --only {number}")
            if only is not None:
                kept = Path(tempfile.mkdtemp(prefix="mpigp-fuzz-kept-"))
                shutil.copytree(folder, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("fifo"))
                print(f"{trial}\nthe files: {kept}")
            shutil.rmtree(folder)
    if unchanged > UNCHANGED * sum(codes.values()):
        wrong += 1
        print(f"{unchanged} files were not mutated: a mutation fails")
    ends = "".join(f", {count} ended with {code}" for code, count in sorted(codes.items()))
    print(f"{sum(codes.values())} files, {wrong} faults{ends}; {time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
