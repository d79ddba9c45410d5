"""The blocks of the documentation's pages, and how a test runs them as they stand there.

A page's blocks are fenced, with a tag that says what they are:

    sh, python   run, in the page's order, in one folder per page; they must end well. After "This is `NAME`:" a
                 block is the file of that name, too
    refused      run as sh, and must be refused with exit code 2; the text below is what standard error says
    text         the output of the block above it; numbers agree to 2 %, `...` stands for anything
    slurm        needs Slurm, and says so in its first line; what it submits is a file that the page has run
    install      pip lines; they begin as those of the README, which CI runs, with extras that exist
    usage, formula   to be read
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from launching import ROOT, Outcome, start

RUN = ("sh", "python", "refused")
TAGS = (*RUN, "text", "slurm", "install", "formula", "usage")
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
LIMIT = 120  # seconds of a block: only a hang meets it
LINKED = ("benchmarks", "docs", "recipes", "slurm", "tests", "run.py", "README.md")  # of a checkout
# Plain `mpiexec -n N` as a page shows it must not mind that a test runs as root, or on few cores.
ANYWHERE = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class Block(NamedTuple):
    """A block of a page: its tag, the lines, the number of its first line, and the file that the page says it is."""

    tag: str
    text: str
    line: int
    file: str = ""


def pages() -> list[Path]:
    """Return the README and all pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, and those that are indented, as `sh`."""
    found: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            end = lines.index("```", number + 1)
            named = re.search(r"This is `([\w.]+)`:$", "\n".join(lines[:number]).rstrip())
            file = named.group(1) if named else ""
            found.append(Block(line[3:], "\n".join(lines[number + 1 : end]), number + 1, file))
            number = end
        elif line.startswith("    ") and (number == 0 or not lines[number - 1].strip()):
            end = next((at for at in range(number, len(lines)) if not lines[at].startswith("    ")), len(lines))
            found.append(Block("sh", "\n".join(each[4:] for each in lines[number:end]), number + 1))
            number = end
        number += 1
    return found


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def checkout(folder: Path) -> Path:
    """Make a folder look like the checkout that a page's reader is in; return it."""
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    return folder


def run_block(block: Block, folder: Path) -> Outcome:
    """Run a block in a folder; what `sh` blocks export, those after them have, as in a terminal."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**ANYWHERE, "PATH": path}
    if block.tag == "python":
        if block.file:
            (folder / block.file).write_text(block.text + "\n", "utf-8")
        return start(sys.executable, "-c", block.text, cwd=folder, environment=environment, timeout=LIMIT)
    text = f"if [ -e .exported ]; then . ./.exported; fi\n{block.text}\nexport -p > .exported"
    return start("bash", "-euo", "pipefail", "-c", text, cwd=folder, environment=environment, timeout=LIMIT)


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
