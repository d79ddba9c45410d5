"""How a command starts: what it imports, and how many files a rank opens."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from launching import ROOT, start

from benchmarks import startup

HEAVY = {"numpy", "scipy", "h5py", "mpi4py", "tqdm", "threadpoolctl"}


def imported(*command: object) -> set[str]:
    """Return the modules that a command of Python imports; those that the environment itself imports are among them."""
    outcome = start(sys.executable, "-X", "importtime", *command)
    assert outcome.code == 0, outcome.stderr
    return set(re.findall(r"^import time:.*\| +(\S+)$", outcome.stderr, re.MULTILINE))


@pytest.mark.parametrize("program", [["-m", "mpigp"], [ROOT / "run.py"]], ids=["python -m mpigp", "run.py"])
@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_no_library(program: list, option: str) -> None:
    modules = imported(*program, option)
    assert not HEAVY & {name.partition(".")[0] for name in modules}
    assert not [name for name in modules if name.startswith("mpigp.commands.")]


def test_the_version_imports_no_command_line() -> None:
    ours = {name for name in imported("-m", "mpigp", "--version") if name.startswith("mpigp")}
    assert ours == {"mpigp", "mpigp.launch", "mpigp.launch.stdio"}
    assert "argparse" not in imported("-m", "mpigp", "--version") - imported("-c", "pass")


def test_a_command_imports_no_other_command() -> None:
    program = (
        "import sys; from mpigp.cli import execute; execute(['info', 'absent.h5']);"
        "print([name for name in sys.modules if name.startswith('mpigp.commands.')])"
    )
    assert start(sys.executable, "-c", program).stdout == "['mpigp.commands.info']\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_a_rank_opens_at_most_600_files_until_its_first_evaluation(tmp_path: Path) -> None:
    opened = [each.path for each in startup.start(tmp_path, ranks=2) if each.success]
    assert any(path.endswith("data.h5") for path in opened)  # it came so far
    assert len(opened) <= 600


def test_the_algebra_leaves_scipy_as_it_was() -> None:
    """Its compiled LAPACK is loaded without scipy.linalg, and a later import of that is the usual one."""
    program = (
        "import sys; import mpigp.native; assert not [name for name in sys.modules if name.startswith('scipy.linalg')];"
        "import scipy.linalg; scipy.linalg.cython_blas; scipy.linalg.cython_lapack; import scipy.optimize;"
        "print(scipy.linalg.cholesky([[4.0]]))"
    )
    outcome = start(sys.executable, "-c", program)
    assert (outcome.code, outcome.stdout) == (0, "[[2.]]\n"), outcome.stderr
