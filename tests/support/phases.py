"""A fit that waits in a phase of it, until it is told to go on: by `sitecustomize`, which every rank imports."""

from __future__ import annotations

import os
from pathlib import Path

PHASES = ("reading", "initializing", "iterating", "writing")
CODE = """\
import os, time
from mpigp.mpi.processes import launched_rank
def wait():
    folder = os.environ["PHASE_FOLDER"]
    open(f"{folder}/{launched_rank(os.environ)}.there", "w").close()
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.02)
def waiting(function, when=lambda *words: True):
    def wrapped(*words, **options):
        if when(*words):
            wait()
        return function(*words, **options)
    return wrapped
phase = os.environ.get("PHASE")
if phase == "reading":
    from mpigp.data.datasets import DataSets
    DataSets.rows = waiting(DataSets.rows)
elif phase == "initializing":
    from mpigp.fit.start import inducing
    inducing.random_rows = waiting(inducing.random_rows)
elif phase == "iterating":
    from mpigp.fit.loop import Trace
    Trace.add = waiting(Trace.add, lambda trace, *words: len(trace) == 5)
elif phase == "writing":
    from mpigp.files import gather
    gather.write = waiting(gather.write)
"""


class Held:
    """A folder with the module, and the marks of the ranks that have come to the phase."""

    def __init__(self, folder: Path, phase: str) -> None:
        self.folder, self.phase = folder, phase
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sitecustomize.py").write_text(CODE)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the ranks."""
        return {"PYTHONPATH": str(self.folder), "PHASE": self.phase, "PHASE_FOLDER": str(self.folder)}

    def there(self) -> int:
        """Return how many ranks have come to the phase."""
        return sum(name.endswith(".there") for name in os.listdir(self.folder))

    def go(self) -> None:
        """Let the ranks go on."""
        (self.folder / "go").touch()
