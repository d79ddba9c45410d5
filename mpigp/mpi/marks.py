"""Marks that ranks leave for the launcher, in a folder that it names: files, which do not need mpiexec."""

import os
from contextlib import suppress
from pathlib import Path

from mpigp.mpi.processes import launched_rank

FOLDER = "MPIGP_STARTED"  # the variable that names the folder
MET, ENDED = "met", "ended"  # of each rank: it has met the others; it ends in good order
BY_SIGNAL = "signal"  # behind the exit code: a signal ended the job, which mpiexec sends too when a rank has died
DONE, FAILED = "done", "failed"  # of the job: its exit code, by the rank that has the last word; it cannot go on


def mark(event: str, text: str = "") -> None:
    """Leave a mark, if the launcher asked for marks: of this rank (MET, ENDED), or of the job (DONE, FAILED)."""
    folder = os.environ.get(FOLDER)
    if folder and os.path.isdir(folder):
        name = f"{event}.{launched_rank(os.environ)}" if event in (MET, ENDED) else event
        with suppress(OSError), open(os.path.join(folder, name), "w") as file:
            file.write(text)


def marked(event: str) -> bool:
    """Return whether a mark of the job has been left."""
    return os.path.exists(os.path.join(os.environ.get(FOLDER) or os.devnull, event))


def last_word(folder: str) -> tuple[int | None, bool]:
    """Return the exit code that the job's last word tells, None where it left none, and whether a signal was why."""
    with suppress(OSError, ValueError):
        code, _, why = Path(folder, DONE).read_text().partition(" ")
        return int(code), why == BY_SIGNAL
    return None, False
