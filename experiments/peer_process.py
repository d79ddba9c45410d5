"""Programs of peers, each run by the Python of an environment of its own; what they find comes back as JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from mpigp.errors import InputError

CHECKOUT = Path(__file__).parent.parent
LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_")  # what would tell a peer that it is a rank of ours


def check(option: str, python: str, package: str) -> None:
    """Refuse a Python that cannot import the package; the error begins with the option that named it."""
    try:
        tried = _run([python, "-c", f"import {package}"], 120)
        said = _last(tried.stderr) if tried.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said:
        raise InputError(f"{option}: {python} cannot import {package} ({said}): name the Python of an environment "
                         f"with {package}, or leave it out")  # fmt: skip


def ask(name: str, command: list[str], timeout: float) -> dict[str, Any]:
    """Return the JSON object that a command prints in its last line; a RuntimeError tells of a command that fails."""
    try:
        done = _run(command, timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name} did not end within {timeout:.0f} s") from None
    if done.returncode:
        raise RuntimeError(f"{name} ended with exit code {done.returncode}: {_last(done.stderr)}")
    return dict(json.loads(_last(done.stdout)))


def _run(command: list[str], timeout: float) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHECKOUT), environment.get("PYTHONPATH")]))
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
    )


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "(nothing)"
