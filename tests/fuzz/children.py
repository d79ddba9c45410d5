"""Command lines in forked children, with limits of time and memory; the parent has imported what takes long."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SECONDS, BYTES = 30, 4 * 2**30


class Outcome(NamedTuple):
    """How a command line ended: `code` is negative where a signal ended it."""

    code: int
    stdout: str
    stderr: str


def import_modules() -> None:
    """Import all that the commands need but MPI, which each child starts for itself, and quickly: without a network."""
    os.environ |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self"}
    import importlib

    import pyarrow.parquet  # noqa: F401
    import scipy.linalg  # noqa: F401

    import mpigp.cli
    import mpigp.estimators

    for name in mpigp.cli.COMMANDS:
        importlib.import_module(f"mpigp.commands.{name}")


def call(folder: Path, words: list[str]) -> Outcome:
    """Run a command line of mpigp in a folder."""
    return forked(folder, lambda: _load(words[1]) if words[0] == "load" else _main(words))


def forked(folder: Path, work: Callable[[], int | None]) -> Outcome:
    """Do some work in a child process in a folder; what it returns is its exit code."""
    stdout, stderr = folder / ".stdout", folder / ".stderr"
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _run(folder, work, stdout, stderr)
    _, status = os.waitpid(child, 0)
    texts = [path.read_text(errors="replace") for path in (stdout, stderr)]
    return Outcome(os.waitstatus_to_exitcode(status), *texts)


def _run(folder: Path, work: Callable[[], int | None], stdout: Path, stderr: Path) -> None:
    """Do the work and end this process."""
    code = 1
    try:
        os.chdir(folder)
        for stream, path in ((1, stdout), (2, stderr)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        signal.alarm(SECONDS)
        code = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main(words: list[str]) -> int:
    from mpigp.cli import main

    try:
        main(words)
    except SystemExit as end:
        return int(end.code or 0)


def _load(path: str) -> int:
    """Load an estimator as a script would: bad input is an InputError."""
    import mpigp
    from mpigp.errors import InputError

    try:
        mpigp.load(path)
    except InputError as error:
        sys.stderr.write(f"mpigp: {error}\n")
        return 2
    return 0
