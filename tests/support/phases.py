"""A fit that waits in a phase of it, until it is told to go on: by `sitecustomize`, which every rank imports."""

from __future__ import annotations

import os
from pathlib import Path

PHASES = ("reading", "initializing", "iterating", "writing")
CODE = """\
import os, sys, time
def wait():
    from mpigp.mpi.processes import launched_rank
    from mpigp.mpi.signals import stop_signals
    folder = os.environ["PHASE_FOLDER"]
    own = f"{folder}/{launched_rank(os.environ)}"
    open(f"{own}.there", "w").close()
    while not os.path.exists(f"{folder}/go"):
        signals = stop_signals()
        if signals is not None and signals.received:
            open(f"{own}.heard", "w").close()
        time.sleep(0.02)
def waiting(function, when=lambda *words: True):
    def wrapped(*words, **options):
        if when(*words):
            wait()
        return function(*words, **options)
    return wrapped
phase = os.environ.get("PHASE") if "--ranks" not in sys.orig_argv else None  # the ranks, not their launcher
if phase == "reading":
    from mpigp.data.datasets import DataSets
    DataSets.rows = waiting(DataSets.rows)
elif phase == "initializing":
    from mpigp.fit.start import inducing
    inducing.random_rows = waiting(inducing.random_rows)
elif phase == "iterating":
    from mpigp.fit.loop import Trace
    Trace.add = waiting(Trace.add, lambda trace, *words: len(trace) == int(os.environ["PHASE_AT"]))
elif phase == "writing":
    from mpigp.files import gather
    gather.write = waiting(gather.write)
"""


class Held:
    """A folder with the module, and the marks of the ranks that have come to the phase, and heard a stop signal there.

    at : where they are iterating, behind how many iterations they wait
    """

    def __init__(self, folder: Path, phase: str, at: int = 5) -> None:
        self.folder, self.phase, self.at = folder, phase, at
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sitecustomize.py").write_text(CODE)

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the ranks."""
        folder = str(self.folder)
        return {"PYTHONPATH": folder, "PHASE": self.phase, "PHASE_FOLDER": folder, "PHASE_AT": str(self.at)}

    def there(self) -> int:
        """Return how many ranks have come to the phase."""
        return self._marks("there")

    def heard(self) -> int:
        """Return how many of them have received a stop signal."""
        return self._marks("heard")

    def _marks(self, kind: str) -> int:
        return sum(name.endswith(f".{kind}") for name in os.listdir(self.folder))

    def go(self) -> None:
        """Let the ranks go on."""
        (self.folder / "go").touch()
