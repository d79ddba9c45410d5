"""Marks that ranks leave for the launcher, in a folder that it names: files, which do not need mpiexec."""

import os
from contextlib import suppress
from pathlib import Path

from mpigp.mpi.processes import launched_rank

FOLDER = "MPIGP_STARTED"  # the variable that names the folder
MET, ENDED = "met", "ended"  # of each rank: it has met the others; it ends in good order
DONE, FAILED = "done", "failed"  # of the job: its exit code, by the rank that has the last word; it cannot go on


def mark(event: str, text: str = "") -> None:
    """Leave a mark, if the launcher asked for marks: of this rank (MET, ENDED), or of the job (DONE, FAILED)."""
    folder = os.environ.get(FOLDER)
    if folder and os.path.isdir(folder):
        name = f"{event}.{launched_rank(os.environ)}" if event in (MET, ENDED) else event
        with suppress(OSError), open(os.path.join(folder, name), "w") as file:
            file.write(text)


def last_word(folder: str) -> int | None:
    """Return the exit code that the job's last word tells; None where it left none."""
    with suppress(OSError, ValueError):
        return int(Path(folder, DONE).read_text())
    return None
