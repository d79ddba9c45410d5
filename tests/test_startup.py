"""How a command starts: what it imports, how many files a rank opens; and where messages may name options."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import startup
from mpigp.cli import build_parser
from tests.support.launching import ROOT, start

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
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


def test_messages_name_options_only_in_the_command_line() -> None:
    """Errors of the library name parameters, which the command line shows as options; mpiexec's are not ours."""
    options = {option for leaf in build_parser().leaves() for option in leaf.options()} | {"config", "ranks"}
    ours = re.compile(rf"(?<![\w-])--({'|'.join(options)})(?![\w-])")
    found = []
    for path in sorted((ROOT / "mpigp").rglob("*.py")):
        if path.relative_to(ROOT / "mpigp").parts[0] in ("cli.py", "commands", "launch"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        docs = [
            each.body[0].value for each in ast.walk(tree) if isinstance(each, DOCUMENTED) and ast.get_docstring(each)
        ]
        for each in ast.walk(tree):
            if isinstance(each, ast.Constant) and isinstance(each.value, str) and each not in docs:
                sentence = " " in each.value or ":" in each.value  # a word alone is of a command line that it starts
                found += [f"{path}:{each.lineno}: {each.value}"] if sentence and ours.search(each.value) else []
    assert found == []
