"""A scaling study: the same evaluation on several numbers of ranks, each in a file of its own.

A file `KIND-RANKS.json` of a study's folder holds the figures of `mpigp evaluate --json` for all runs on so many ranks.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import h5py
import numpy as np

from mpigp.data import synth
from mpigp.data.datasets import find
from mpigp.data.hdf5 import read_rows, reading
from mpigp.errors import InputError
from mpigp.files.atomic import replacing
from mpigp.files.blocks import write_blocks
from mpigp.files.model_file import LATENT, PARAMETERS, section
from mpigp.gp.parameters import Globals
from mpigp.launch import slurm

FORMAT = "mpigp-scaling"
KINDS = ("strong", "weak")
REQUIRED = {"seconds", "all_seconds", "ranks", "threads", "model", "n", "m", "q", "d", "messages", "bytes", "by_rank",
            "algebra", "cpu", "instruction_set", "versions"}  # fmt: skip
NOISE, JITTER = 0.1, 1e-6
Figures = dict[str, Any]


class Problem(NamedTuple):
    """One evaluation of a `model` with n rows, m inducing points, q inputs or latent dimensions, and d outputs."""

    model: str
    n: int
    m: int
    q: int
    d: int


def find_problem(data: Path, model: str, m: int, q: int, names: tuple[str, str]) -> Problem:
    """Return the problem of evaluating a data file; q is that of its inputs, where it has some that count."""
    with reading(data) as file:
        sets = find(file, names[1], names[0] if model == "regression" else None)
        shape: tuple[Any, ...] = sets.Y.shape
        return Problem(model, shape[0], m, q if sets.X is None else sets.X.shape[1], shape[1])


class Options(NamedTuple):
    """How a study is made.

    problem : of one rank in a weak study, of all in a strong one
    data : a file with `names` of X and Y; None for synthetic rows
    rounds : runs on each number of ranks, which take turns;   repeat : evaluations that each run times
    timeout : seconds that a run may take;   command : the command line that is noted
    """

    kind: str
    ranks: Sequence[int]
    problem: Problem
    data: Path | None
    names: tuple[str, str]
    threads: int
    rounds: int
    repeat: int
    timeout: float
    folder: Path
    command: str

    def of(self, ranks: int) -> Problem:
        """The problem on so many ranks."""
        return self.problem if self.kind == "strong" else self.problem._replace(n=self.problem.n * ranks)

    def path(self, ranks: int) -> Path:
        """The file of the runs on so many ranks."""
        return self.folder / f"{self.kind}-{ranks:05d}.json"


class RunFailed(Exception):
    """The process failed, took too long, or printed no figures; the message says which."""


def check_alone(options: Options) -> None:
    """Refuse a folder with files of another study, which no run of this one would replace."""
    mine = {options.path(ranks) for ranks in options.ranks}
    one_rank = options.problem._asdict() | {"ranks": 1, "threads": options.threads}
    for path, record in read_records(options.folder).items():
        if path not in mine and setting(record) != setting({"kind": options.kind, "runs": [one_rank]}):
            raise InputError(f"{path}: is of another study: remove it, or choose another folder")


def run(options: Options) -> Iterator[tuple[int, Figures]]:
    """Yield the figures of each run, as they come; numbers of ranks take turns, so that all see the same disturbance,
    and the file of each is whole after each run."""
    runs: dict[int, list[Figures]] = {ranks: [] for ranks in options.ranks}
    with tempfile.TemporaryDirectory(prefix=".files-", dir=options.folder) as folder:  # which all nodes see
        paths = write_files(options, Path(folder))
        for _ in range(options.rounds):
            for ranks in options.ranks:
                data, params = paths[options.of(ranks)]
                words = ["evaluate", data, "--params", params, "--repeat", options.repeat, "--threads", options.threads]
                words += ["--x", options.names[0], "--y", options.names[1], "--json"]
                command = [sys.executable, "-m", "mpigp", "--ranks", ranks, *words]
                try:
                    run = figures([str(word) for word in command], options.timeout)
                except RunFailed as failure:
                    raise RunFailed(f"{ranks} ranks: {failure}") from None
                runs[ranks].append(run)
                record = {"format": FORMAT, "version": 1, "kind": options.kind, "command": options.command}
                with replacing(options.path(ranks)) as temporary:
                    temporary.write_text(json.dumps(record | {"runs": runs[ranks]}) + "\n", "utf-8")
                yield ranks, run


def figures(command: list[str], timeout: float, env: dict[str, str] | None = None, cwd: Path | None = None) -> Figures:
    """Run a command and return the JSON object on the last line of its standard output."""
    try:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True,  # so that its own children end with it
        )  # fmt: skip
    except OSError as error:
        raise RunFailed(f"could not be started: {error}") from None
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"no result within {timeout:g} s") from None
    finally:
        _end(process)
    if process.returncode != 0:
        raise RunFailed(f"exit code {process.returncode}: {_last_line(errors)}")
    try:
        return json.loads(_last_line(output))
    except json.JSONDecodeError:
        raise RunFailed(f"no JSON on the last line of its output: {_last_line(output)}") from None


def _end(process: subprocess.Popen[str]) -> None:
    """End a process that still runs, with its group: politely, so that mpiexec ends its ranks, then not."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "(nothing)")


def write_files(options: Options, folder: Path) -> dict[Problem, tuple[Path, Path]]:
    """Write the parameter files of all problems to a folder, and data files of synthetic rows where there are no data:
    X (n, q), and Y (n, d), smooth functions of X with noise; return their paths."""
    paths = {}
    for problem in dict.fromkeys(options.of(ranks) for ranks in options.ranks):
        data, params = options.data, folder / f"parameters-{problem.n}.h5"
        if data is None:
            data = folder / f"data-{problem.n}.h5"
            make = partial(synth.regression_block, synth.random_function(0, problem.q, problem.d), 0, noise=NOISE)
            write_blocks(data, problem.n, make, np.dtype(float), {})
        write_parameters(params, data, problem, options.names)
        paths[problem] = data, params
    return paths


def write_parameters(path: Path, data: Path, problem: Problem, names: tuple[str, str]) -> None:
    """Write parameters at which these data can be evaluated, inducing points among the inputs; a GPLVM's latent points
    are random. The seconds of an evaluation hardly depend on their values."""
    rng, latent = synth.generator(0, 2), problem.model == "gplvm"
    with reading(data) as source, h5py.File(path, "w") as file:
        sets = find(source, names[1], None if latent else names[0])
        places = np.sort(rng.choice(problem.n, problem.m, replace=False)).tolist()
        if sets.X is None:
            Z = rng.standard_normal((problem.m, problem.q))
        else:
            Z = np.concatenate([read_rows(sets.X, place, place + 1) for place in places])
        spread = Z.var(axis=0)
        file.attrs.update(model=problem.model, jitter=JITTER)
        alpha = 1.0 / (problem.q * np.where(spread > 0, spread, 1.0))
        for name, value in section(PARAMETERS, Globals(Z, 1.0, alpha, NOISE**-2)).items():
            file[name] = value
        if latent:
            mu, S = (file.create_dataset(name, (problem.n, problem.q), float) for name in LATENT)
            for start in range(0, problem.n, synth.BLOCK):
                stop = min(start + synth.BLOCK, problem.n)
                mu[start:stop] = rng.standard_normal((stop - start, problem.q))
                S[start:stop] = 0.1


def submit(options: Options, words: Sequence[str], sbatch: Sequence[str]) -> dict[int, str]:
    """Give Slurm one job for each number of ranks, which runs `mpigp WORDS --ranks RANKS`; return the jobs' numbers.

    sbatch : more options of sbatch, which override ours
    """
    jobs = {}
    for ranks in options.ranks:
        inside = shlex.join([sys.executable, "-m", "mpigp", *words, "--ranks", str(ranks)])
        log = options.path(ranks).with_suffix(".log")
        ours = [f"--job-name=scaling-{ranks}", f"--ntasks={ranks}", f"--cpus-per-task={options.threads}"]
        jobs[ranks] = slurm.sbatch([*ours, f"--output={log}", *sbatch, f"--wrap=exec {inside}"])
    return jobs


class Point(NamedTuple):
    """What was measured on one number of ranks.

    seconds : of one evaluation, the median over the runs of the medians in each;   all_seconds : of all evaluations
    run : the figures of the run whose seconds are nearest the median, from which all else is taken
    """

    ranks: int
    seconds: float
    all_seconds: list[float]
    run: Figures

    @property
    def problem(self) -> Problem:
        return Problem(*(self.run[name] for name in ("model", "n", "m", "q", "d")))


class Study(NamedTuple):
    """The points of a study, fewest ranks first; and the command that made the first."""

    kind: str
    points: list[Point]
    command: str


def read_study(folder: Path) -> Study:
    """Return the study in a folder, refused where its files do not belong together."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder: give one that `mpigp scaling strong` or `weak` wrote to")
    records = read_records(folder)
    if not records:
        raise InputError(f"{folder}: holds no runs: `mpigp scaling strong` or `weak` writes them")
    (other, first), *_ = records.items()
    points = sorted((point_of(record["runs"]) for record in records.values()), key=lambda point: point.ranks)
    for path, record in records.items():
        if setting(record) != setting(first):
            raise InputError(f"{path}: is of another study than {other}: give each study a folder of its own")
    return Study(first["kind"], points, str(first["command"]))


def read_records(folder: Path) -> dict[Path, dict[str, Any]]:
    """Return what the files of a study's folder hold, checked."""
    records = {}
    for path in (path for kind in KINDS for path in sorted(folder.glob(f"{kind}-*.json"))):
        try:
            records[path] = record = json.loads(path.read_text("utf-8"))
            if record["format"] != FORMAT or record["kind"] not in KINDS or not record["runs"]:
                raise ValueError("not of this format")
            if any(REQUIRED - run.keys() for run in record["runs"]):
                raise ValueError("incomplete")
            point_of(record["runs"])
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}: check its permissions") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: is no file of a scaling study: remove it from the folder") from error
    return records


def point_of(runs: list[Figures]) -> Point:
    """Return the point that runs on one number of ranks make."""
    every = [float(value) for run in runs for value in run["all_seconds"]]
    seconds = float(median(run["seconds"] for run in runs))  # so that a run that was disturbed does not count
    return Point(int(runs[0]["ranks"]), seconds, every, min(runs, key=lambda run: abs(run["seconds"] - seconds)))


def setting(record: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that all runs of a study have in common."""
    run = record["runs"][0]
    rows = run["n"] if record["kind"] == "strong" else run["n"] // run["ranks"]
    return {"kind": record["kind"], "rows": rows} | {name: run[name] for name in ("model", "m", "q", "d", "threads")}
