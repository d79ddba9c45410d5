"""Start a program as a process of its own, with a time limit, and read its figures."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

Figures = dict[str, Any]


class RunFailed(Exception):
    """The process failed, took too long, or printed no figures; the message says which."""


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
