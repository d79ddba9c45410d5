"""Every command in a fence of a page, run as it stands there; tests/support/pages.py explains the tags."""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpigp.cli import build_parser
from tests.support.calling import read
from tests.support.launching import ROOT, Outcome, start
from tests.support.pages import (
    DATA,
    FENCE,
    RUN,
    Block,
    agrees,
    blocks,
    checkout,
    disagreement,
    inline,
    new_checkout,
    pages,
    prose,
    run_block,
    tagged,
)

PAGES = pages()
LONG_ONES, INSTALLING = tagged("sh long"), tagged("sh install")
INSTALL = 1800  # seconds, of what installs and compiles
# What is measured, as opposed to chosen or counted: a number with a unit.
MEASURED = re.compile(r"\d(?: ?%| (?:s|ms|ns|MB|nats|times)\b)")
NAMED = re.compile(r"`(?:python|mpigp|mpiexec|tests/)[^`]*`|```(?:sh|python)\b")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def check(page: Path, block: Block, outcome: Outcome, shown: Block | None) -> None:
    """See that a block ended as it should, and said what the page shows below it."""
    place = f"{page.name}:{block.line}: {block.text}\n{outcome.stdout}\n{outcome.stderr}"
    assert outcome.code == (2 if block.tag == "sh refused" else 0), place
    if shown is not None:
        said = outcome.stderr if block.tag == "sh refused" else outcome.stdout
        assert disagreement(shown.text, said) == "", place


def run_page(page: Path, folder: Path, before: Block | None = None) -> None:
    """Run the blocks of a page in order, with their checks; all, or those that stand `before` one."""
    for block, next_one in pairwise([*blocks(page), Block("end", "", 0)]):
        if before is not None and block.line >= before.line:
            return
        if block.tag in RUN:
            check(page, block, run_block(block, folder), next_one if next_one.tag == "text" else None)


@pytest.mark.slow
@every_page
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    run_page(page, folder)
    if page.name == "kernels.md":
        check_kernels(folder)


def check_kernels(folder: Path) -> None:
    """See that the kernel of the page was used, and learned something."""
    model = read(folder / "model.h5")
    assert 40 < len(model["trace/bound"]) <= 60 and model["trace/bound"][-1] > model["trace/bound"][0]
    with h5py.File(folder / "model.h5") as file, h5py.File(folder / "latent.h5") as latent:
        assert file.attrs["kernel"] == latent.attrs["kernel"] == "gaussian:Gaussian"
    truth = read(folder / "data.h5")["Y"]
    error = read(folder / "predictions.h5")["mean"] - truth
    assert np.sqrt(np.mean(error**2)) < 0.3 * truth.std()
    assert read(folder / "points.h5")["latent/mu"].shape == (100, 2)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("page", "block"), LONG_ONES.values(), ids=list(LONG_ONES))
def test_a_command_that_takes_long(page: Path, block: Block, tmp_path: Path) -> None:
    for variable in re.findall(r"\$(\w+)", block.text):
        if variable not in (*os.environ, "DATA"):
            pytest.skip(f"{variable} names no Python")
    if missing := [each for each in re.findall(r"\$DATA/(\S+)", block.text) if not Path(DATA, each).exists()]:
        pytest.skip(f"there is no {missing[0]} in {DATA}")
    folder = checkout(tmp_path)
    run_page(page, folder, before=block)
    outcome = run_block(block, folder, float(block.tag.partition("=")[2]))
    print(f"{block.text}\n{outcome.stdout}\n{outcome.seconds:.0f} s")  # -s shows what the page's numbers are made of
    check(page, block, outcome, None)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("page", "block"), INSTALLING.values(), ids=list(INSTALLING))
def test_a_command_that_installs(page: Path, block: Block, tmp_path: Path) -> None:
    check(page, block, run_block(block, new_checkout(tmp_path), INSTALL), None)


def test_what_ci_runs_stands_in_its_script() -> None:
    """The blocks of the README it takes from there."""
    script = (ROOT / ".ci" / "run").read_text()
    assert "README.md" in script
    commands = [block.text for page, block in tagged("sh ci").values() if page.name == "CONTRIBUTING.md"]
    for line in "\n".join(commands).splitlines():
        assert line.partition(" #")[0].strip() in script, line


@cache
def help_of(*command: str) -> str:
    outcome = start(sys.executable, *command, "--help", cwd=ROOT)
    assert outcome.code == 0, outcome
    return outcome.stdout


def options_of(words: list[str]) -> set[str]:
    """Return the options that the program of a command has, without those of mpiexec."""
    words = words[3:] if words[:2] == ["mpiexec", "-n"] else words
    if words[:2] == ["python", "-m"]:
        return set(re.findall(r"--[\w-]+", help_of("-m", words[2])))
    if words[0] == "python" and words[1] != "run.py":
        return set(re.findall(r"--[\w-]+", help_of(words[1])))
    return options_within(build_parser(), words)


def options_within(parser: argparse.ArgumentParser, words: list[str]) -> set[str]:
    """Return the options of a parser, and of those below it that the words name."""
    known = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            known.update(*(options_within(action.choices[word], words) for word in words if word in action.choices))
    return known


@every_page
def test_commands_that_are_not_run_have_the_options_they_name(page: Path) -> None:
    """So that an option that is renamed does not wait for hours to be missed."""
    fenced = [block.text for block in blocks(page) if block.tag.startswith("sh long")]
    for command in [*inline(page), *"\n".join(fenced).splitlines()]:
        for each in command.split(" && "):
            if named := set(re.findall(r"--[a-z][\w-]*", each)):
                assert named <= options_of(each.split()), each
            for path in re.findall(r"\btests/[\w/.]+", each):
                assert (ROOT / path).exists(), each


def test_what_is_a_block_and_what_is_a_command_in_a_sentence(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "A sentence with `mpigp fit a.h5`, and `python -m\nbenchmarks.stream\nrows`; "
        "a name, `mpigp`; an option, `--ranks 2`; `mpigp: an error`; `mpigp/cli.py`.\n\n"
        "```sh long=60\nmpigp b\n```\n\nThis is `c.py`:\n\n```python\nc = `d`\n\n```\n"
    )
    assert inline(page) == ["mpigp fit a.h5", "python -m benchmarks.stream rows"]
    assert blocks(page) == [Block("sh long=60", "mpigp b", 5), Block("python", "c = `d`", 11, "c.py")]


@every_page
def test_blocks_are_of_a_known_kind_and_outputs_follow_what_printed_them(page: Path) -> None:
    found = blocks(page)
    assert [block for block in found if not FENCE.fullmatch(block.tag)] == []
    assert not re.search(r"(?:^|\n\n) {4}", prose(page)), "fence blocks, with a tag"
    for block, before in zip(found, [None, *found], strict=False):
        if block.tag == "text":
            assert before is not None and before.tag in (*RUN, "sh ci"), f"{page.name}:{block.line}"


@every_page
def test_what_is_installed_exists(page: Path) -> None:
    """Seen by default too: pip only warns of an extra that does not exist."""
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for names in re.findall(r"pip install -e '\.\[([\w,]+)\]'", page.read_text()):
        assert set(names.split(",")) <= extras


@every_page
def test_blocks_that_need_slurm_say_so(page: Path) -> None:
    for block in blocks(page):
        needs = re.search(r"^\s*(?:sbatch|srun|module)\b|--submit\b", block.text, re.MULTILINE) is not None
        assert needs == block.text.startswith("# needs Slurm"), f"{page.name}:{block.line}"
        assert needs or block.tag != "sh slurm", f"{page.name}:{block.line}"


def quoted() -> list[str]:
    """Return what pages quote of the program: errors within sentences, and the messages of diagnosing-fits.md."""
    errors = [text for page in PAGES for text in re.findall(r"`(mpigp: [^`]+)`", prose(page))]
    return errors + re.findall(r"^\| `([^`]+)` \|", prose(ROOT / "docs" / "diagnosing-fits.md"), re.MULTILINE)


@pytest.mark.parametrize("text", quoted())
def test_what_is_quoted_is_what_the_program_says(text: str) -> None:
    """All of it stands in the source, but for numbers, a column's name, and a reason to stop, which are put in."""
    source = "\n".join(path.read_text() for path in (ROOT / "mpigp").rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # of texts that go on in the next line
    pieces = re.split(r"\d[\de.-]*|\bY\b|^mpigp: |(?<=because )", text)
    assert max(map(len, pieces)) > 15
    for piece in pieces:
        assert piece.strip() in source, piece


@every_page
def test_a_section_with_measured_numbers_names_a_command(page: Path) -> None:
    for section in re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE):
        if MEASURED.search(re.sub(r"^```.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)):
            assert NAMED.search(section), f"{page.name}: {section[:200]}"


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("bound 331.4 nats", "bound 331.39147824226166 nats", True),
        ("bound 331.4 nats", "bound 341.4 nats", False),
        ("bound ... nats", "bound 341.4 nats", True),
        ("bound ... nats", "bound 341.4 bits", False),
        ("m = 10: -36.45", "m = 10: -36.47413", True),
        ("m = 10: -36.45", "m = 10: 36.47413", False),
        ("12 columns", "13 columns", False),
        ("a  b", "a b", True),
        ("a b", "ab", False),
    ],
)
def test_how_lines_are_compared(shown: str, said: str, same: bool) -> None:
    assert agrees(shown, said) is same


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("a\nb", "a\nb", True),
        ("a\nb", "a", False),
        ("a", "a\nb", False),
        ("a\n...", "a\nb\nc", True),
        ("...\nc", "a\nb\nc", True),
        ("...\nd", "a\nb\nc", False),
        ("a\n...\nc", "a\nb\nc\nd", False),
    ],
)
def test_how_outputs_are_compared(shown: str, said: str, same: bool) -> None:
    assert (disagreement(shown, said) == "") is same
