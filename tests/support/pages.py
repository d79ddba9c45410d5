"""The pages of the documentation, and how a test runs the commands that stand in their fences.

The first word of a fence says what its text is, and a second word how a command is run:

    sh, python   run, in the page's order, in one folder per page; they must end well. After "This is `NAME`:" a
                 block is the file of that name, too
    sh refused   run as sh, and must be refused with exit code 2; the text below is what standard error says
    sh long=N    takes minutes: run by `python -m pytest -m long` alone, with a limit of N seconds
    sh install   installs, into a new environment: run by `python -m pytest -m long` alone
    sh slurm     needs Slurm, and says so in its first line: run by tests/slurm
    sh ci        run by .ci/run
    text         the output of the block above it; numbers agree to 2 %, `...` stands for anything
    formula      to be read

A command within a sentence is not run: its options must exist.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import ROOT, Outcome, start

RUN = ("sh", "python", "sh refused")
FENCE = re.compile(r"sh(?: refused| long=\d+| install| slurm| ci)?|python|text|formula")
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
LIMIT = 600  # seconds of a block: only a hang meets it
# Of a checkout.
LINKED = ("benchmarks", "docs", "experiments", "mkdocs.yml", "recipes", "slurm", "tests", "run.py", "README.md")
DATA = os.path.abspath(os.environ.get("DATA", ROOT.parent / "shared" / "data"))  # of the pages' $DATA; not everywhere
# Plain `mpiexec -n N` as a page shows it must not mind that a test runs as root, or on few cores.
ANYWHERE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class Block(NamedTuple):
    """A fenced block of a page: its tag, text and line, and the file that the page says it is."""

    tag: str
    text: str
    line: int
    file: str = ""


def pages() -> list[Path]:
    """Return the README, all pages of the documentation, and how to contribute."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    text = page.read_text("utf-8")
    found = []
    for match in re.finditer(r"(?:This is `([\w.]+)`:\n+)?^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        file, tag, code = match.groups()
        found.append(Block(tag, code.rstrip("\n"), text[: match.start(2)].count("\n") + 1, file or ""))
    return found


def tagged(tag: str) -> dict[str, tuple[Path, Block]]:
    """Return the blocks whose tag begins so, each with its page, by the place where they stand."""
    return {
        f"{page.name}:{block.line}": (page, block)
        for page in pages()
        for block in blocks(page)
        if block.tag.startswith(tag)
    }


def prose(page: Path) -> str:
    """Return a page whose fenced blocks are empty lines."""
    text = page.read_text("utf-8")
    return re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def inline(page: Path) -> list[str]:
    """Return the commands of Python and of mpigp within the sentences of a page, each as one line."""
    found = [" ".join(code.split()) for code in re.findall(r"`((?:[^`\n]|\n(?!\n))+)`", prose(page))]
    return [code for code in found if re.match(r"(?:python|mpigp) \S", code)]


def checkout(folder: Path) -> Path:
    """Make in a folder what looks like the checkout that a page's reader is in; return it."""
    place = folder / ROOT.name
    place.mkdir()
    for name in LINKED:
        (place / name).symlink_to(ROOT / name)
    return place


def new_checkout(folder: Path) -> Path:
    """Make a copy of the checkout in a folder, and beside it a new environment, which its commands have; return it."""
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.so", "__pycache__", ".*_cache", "demo")
    place = Path(shutil.copytree(ROOT, folder / ROOT.name, ignore=ignored))
    venv.create(folder / "environment", with_pip=True)
    (place / ".exported").write_text(
        f"export PATH={folder}/environment/bin:{os.environ['PATH']} HOME={folder}\n"
        "module() { echo module $@; }\n"  # of a site
    )
    return place


def run_block(
    block: Block, folder: Path, limit: float = LIMIT, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run a block in a folder; what `sh` blocks export, those after them have, as in a terminal."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**ANYWHERE, "PATH": path, "DATA": DATA, **(environment or {})}
    if block.tag == "python":
        if block.file:
            (folder / block.file).write_text(block.text + "\n", "utf-8")
        return start(sys.executable, "-c", block.text, cwd=folder, environment=environment, timeout=limit)
    text = f"if [ -e .exported ]; then . ./.exported; fi\n{block.text}\nexport -p > .exported"
    return start("bash", "-euo", "pipefail", "-c", text, cwd=folder, environment=environment, timeout=limit)


def disagreement(expected: str, found: str) -> str:
    """Return the first line of an output that is not as the page shows it; nothing where all are."""
    wanted, lines = expected.splitlines(), found.splitlines()
    at = 0
    for number, line in enumerate(wanted):
        if line.strip() == "...":
            rest = wanted[number + 1 :]
            if not rest:
                return ""
            at = next((place for place in range(at, len(lines)) if agrees(rest[0], lines[place])), len(lines))
            continue
        if at >= len(lines) or not agrees(line, lines[at]):
            return f"shown: {line!r}, said: {lines[at] if at < len(lines) else None!r}"
        at += 1
    return "" if at == len(lines) else f"not shown: {lines[at]!r}"


def agrees(shown: str, said: str) -> bool:
    """Return whether a line of output is as it is shown."""
    pattern, numbers = "", []
    for piece in re.split(rf"(\.\.\.|{NUMBER.pattern})", shown.rstrip()):
        if piece == "...":
            pattern += ".*"
        elif NUMBER.fullmatch(piece):
            pattern += f"({NUMBER.pattern})"
            numbers.append(float(piece.replace("−", "-")))
        else:
            pattern += r"\s+".join(map(re.escape, re.split(r"\s+", piece)))
    match = re.fullmatch(pattern, said.rstrip())
    if match is None:
        return False
    found = [float(each.replace("−", "-")) for each in match.groups()]
    return all(abs(one - other) <= 0.02 * abs(other) for one, other in zip(found, numbers, strict=True))
