"""mpigp started as a user starts it, in processes of its own that end, all of them, when they take too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from mpigp.launch.mpiexec import find_mpiexec, flags

ROOT = Path(__file__).parents[2]
KILL = 600  # seconds: many times what the slowest takes on a busy machine, so that only a hang meets it
LAUNCHERS = ("SLURM_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_")  # what a job that runs these tests would tell our ranks


class Outcome(NamedTuple):
    """How a command ended: its exit code, what it said, and the seconds it took."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def figures(self) -> dict[str, Any]:
        """The JSON object in the last line of standard output."""
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def ours(self) -> list[str]:
        """The lines of standard error that mpigp wrote, not mpiexec, whose boxes end with a NUL."""
        return [line for line in self.stderr.replace("\0", "").splitlines() if line.startswith("mpigp: ")]


def run(
    ranks: int | None,
    *arguments: object,
    timeout: float = KILL,
    environment: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Run `python run.py --ranks RANKS ARGUMENTS`; with None ranks, `python run.py ARGUMENTS` without any launcher."""
    launcher = [] if ranks is None else ["--ranks", ranks]
    return start(
        sys.executable, ROOT / "run.py", *launcher, *arguments, timeout=timeout, environment=environment, cwd=cwd
    )


def mpiexec(
    ranks: int,
    script: str | os.PathLike[str],
    *arguments: object,
    threads: int = 1,
    survive: bool = False,
    timeout: float = KILL,
) -> Outcome:
    """Run `mpiexec -n RANKS python SCRIPT ARGUMENTS`, with the flags that this MPI needs, also to `survive` deaths."""
    needed = needed_flags(ranks, threads, survive)
    if "Open MPI" in mpi_version() and not {"--bind-to", "--map-by"} & set(needed):
        needed += ["--bind-to", "none"]  # else the ranks of tests side by side are bound to the same core
    return start(find_mpiexec(), *needed, "-n", ranks, sys.executable, script, *arguments, timeout=timeout)


def needed_flags(ranks: int, threads: int = 1, survive: bool = False) -> list[str]:
    """Return the flags that mpiexec needs here for so many ranks, also to `survive` deaths."""
    return flags(mpi_version(), ranks, threads, len(os.sched_getaffinity(0)), os.geteuid() == 0, survive)


@lru_cache(maxsize=1)
def mpi_version() -> str:
    """Return what `mpiexec --version` says."""
    return start(find_mpiexec(), "--version").stdout


def start(
    *command: object,
    timeout: float = KILL,
    environment: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Outcome:
    """Run a command in a session of its own; after `timeout` seconds end the whole session and fail."""
    words = [str(word) for word in command]
    # Spelled out, because a test that used MPI in this process has left marks in what a child would otherwise inherit.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    began = time.perf_counter()
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=inherited | dict(environment or {}),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end_session(process.pid)
        stdout, stderr = process.communicate()
        raise AssertionError(f"not done after {timeout:g} s: {' '.join(words)}\n{stdout}{stderr}") from None
    except BaseException:
        end_session(process.pid)
        raise
    return Outcome(process.returncode, stdout, stderr, time.perf_counter() - began)


def end_session(session: int) -> None:
    """Kill every process of a session at once; mpiexec gives each rank a process group of its own, but not a session.

    They are stopped first: a launcher that sees one rank die before itself would end the others by SIGTERM, and they
    would still write a checkpoint.
    """
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with suppress(ProcessLookupError, PermissionError):
                    if os.getsid(int(entry.name)) == session:
                        os.kill(int(entry.name), number)


def marked(mark: str) -> list[int]:
    """Return the processes that have this `NAME=value` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended meanwhile
            found += [int(path.parent.name)] if mark in path.read_text(errors="replace").split("\0") else []
    return found


def end_marked(mark: str) -> None:
    """Kill the processes that have this in their environment."""
    for process in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def several(
    folder: Path, ranks: int, commands: list[list[object]], threads: int = 1, block_bytes: int = 2**22
) -> list[list[Outcome]]:
    """Run command lines of mpigp one after another in one start of mpiexec; return how each ended, rank by rank.

    A start takes seconds, and a command milliseconds. A command that hangs, or ends its process, has no outcomes, nor
    have those behind it. Rows that are streamed come in blocks of `block_bytes`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands").write_text("\n".join(json.dumps([str(word) for word in words]) for words in commands))
    found = [[folder / f"{number}.{rank}.json" for rank in range(ranks)] for number in range(len(commands))]
    try:
        script = ROOT / "tests" / "mpi" / "several.py"
        said = mpiexec(ranks, script, folder, block_bytes, threads=threads).stderr
    except AssertionError as error:
        said = str(error)
    assert any(path.exists() for path in found[0]), f"nothing was run: {said}"
    return [[Outcome(**json.loads(path.read_text())) for path in paths if path.exists()] for paths in found]


def at_once(*runs: Callable[[], Outcome]) -> list[Outcome]:
    """Return the outcomes of several runs, made at the same time: a start is mostly waiting."""
    with ThreadPoolExecutor(len(runs)) as pool:
        return [future.result() for future in [pool.submit(run) for run in runs]]
