"""Run several command lines of mpigp in one start of mpiexec: several.py FOLDER BLOCK_BYTES.

Each line of FOLDER/commands is one, a JSON list. How number I ended on rank R is told in FOLDER/I.R.json.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpigp.cli import main
from mpigp.data import datasets
from mpigp.mpi.processes import launched_rank


@contextmanager
def captured(descriptor: int, path: Path) -> Iterator[None]:
    """Send what the block writes to standard output or error, from C too, to a file."""
    kept = os.dup(descriptor)
    with path.open("w") as file:
        os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        (sys.stdout if descriptor == 1 else sys.stderr).flush()
        os.dup2(kept, descriptor)
        os.close(kept)


def run(number: int, arguments: list[str], folder: Path, rank: int) -> None:
    """Run one command line, and tell how it ended."""
    out, err = folder / f"{number}.{rank}.out", folder / f"{number}.{rank}.err"
    began = time.perf_counter()
    with captured(1, out), captured(2, err):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        except Exception:  # of this command alone: the others can still be tried
            traceback.print_exc()
            code = 1
    told = {"code": code, "stdout": out.read_text(), "stderr": err.read_text(), "seconds": time.perf_counter() - began}
    (folder / f"{number}.{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    folder, datasets.BLOCK_BYTES = Path(sys.argv[1]), int(sys.argv[2])
    for number, line in enumerate((folder / "commands").read_text().splitlines()):
        run(number, json.loads(line), folder, launched_rank(os.environ))
