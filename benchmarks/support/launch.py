"""Start a timed program as a process of its own, with one thread and a time limit, and read its figures."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mpigp.scaling import study
from mpigp.scaling.study import Figures, RunFailed

__all__ = ["ROOT", "Figures", "RunFailed", "evaluate", "figures", "mpigp"]

ROOT = Path(__file__).resolve().parents[2]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SLURM_CPUS_PER_TASK")


def evaluate(data: Path, params: Path, repeat: int, timeout: float, ranks: int | None = None) -> Figures:
    """Run mpigp's `evaluate` and return its figures: bound, seconds, ranks, threads, peak_memory."""
    return mpigp("evaluate", data, "--params", params, "--repeat", repeat, timeout=timeout, ranks=ranks)


def mpigp(*words: object, timeout: float, ranks: int | None = None) -> Figures:
    """Run a command of mpigp and return its figures; without `ranks` it is one process, started without mpiexec."""
    launcher = [] if ranks is None else ["--ranks", str(ranks)]
    return figures([sys.executable, "run.py", *launcher, *map(str, words), "--json"], timeout)


def figures(command: list[str], timeout: float) -> Figures:
    """Run a command and return the JSON object on the last line of its standard output."""
    return study.figures(command, timeout, {**os.environ, **dict.fromkeys(THREADS, "1")}, ROOT)
