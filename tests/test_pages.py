"""Every command of the README and the documentation, run as it stands there; see pages.py for what the blocks mean."""

from __future__ import annotations

import argparse
import os
import re
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from kinds import BY_CI, INSTALL, LONG, PAGES, elsewhere, kind, of_kind
from launching import ROOT, Outcome, start
from pages import (
    RUN,
    SENTENCE,
    TAGS,
    Block,
    agrees,
    blocks,
    checkout,
    commands,
    disagreement,
    new_checkout,
    prose,
    run_block,
)

from mpigp.cli import build_parser

LONG_ONES, INSTALLING = of_kind("long"), of_kind("installs")
# What is measured, as opposed to chosen or counted: a number with a unit.
MEASURED = re.compile(r"\d(?: ?%| (?:s|ms|ns|MB|nats|times)\b)")
NAMED = re.compile(r"`(?:python|mpigp|mpiexec|tests/)[^`]*`|```(?:sh|python)\n")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def check(page: Path, command: Block, outcome: Outcome, shown: Block | None) -> None:
    """See that a command ended as it should, and said what the page shows below it."""
    place = f"{page.name}:{command.line}: {command.text}\n{outcome.stdout}\n{outcome.stderr}"
    assert outcome.code == (2 if command.tag == "refused" else 0), place
    if shown is not None:
        said = outcome.stderr if command.tag == "refused" else outcome.stdout
        assert disagreement(shown.text, said) == "", place


def run_page(page: Path, folder: Path, before: Block | None = None) -> None:
    """Run the short commands of a page in order, with their checks; all, or the blocks that stand `before` one."""
    shown = {one.line: other for one, other in pairwise(blocks(page)) if other.tag == "text"}
    for command in commands(page):
        if before is not None and command.line >= before.line:
            return
        now = kind(command) == "short" and not elsewhere(page, command) and not (before and command.tag == SENTENCE)
        if kind(command) == "installs" and (done := re.fullmatch(r"pip install \S+ \S+ && (.*)", command.text)):
            command, now = command._replace(text=done[1]), True  # what is to be installed is here
        if now:
            check(page, command, run_block(command, folder), shown.get(command.line))


@pytest.mark.slow
@every_page
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    run_page(page, checkout(tmp_path))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("page", "command"), LONG_ONES.values(), ids=list(LONG_ONES))
def test_a_command_that_takes_long(page: Path, command: Block, tmp_path: Path) -> None:
    for variable in re.findall(r"\$(\w+)", command.text):
        if variable not in os.environ:
            pytest.skip(f"{variable} names no Python")
    folder = checkout(tmp_path)
    if missing := [each for each in re.findall(r"\.\./\S+", command.text) if not (folder / each).exists()]:
        pytest.skip(f"there is no {missing[0]}")
    run_page(page, folder, before=command)
    outcome = run_block(command, folder, LONG[command.text])
    print(f"{command.text}\n{outcome.stdout}\n{outcome.seconds:.0f} s")  # -s shows what the page's numbers are made of
    check(page, command, outcome, None)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("page", "command"), INSTALLING.values(), ids=list(INSTALLING))
def test_a_command_that_installs(page: Path, command: Block, tmp_path: Path) -> None:
    check(page, command, run_block(command, new_checkout(tmp_path), INSTALL), None)


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


@pytest.mark.parametrize("command", LONG)
def test_a_command_that_takes_long_has_the_options_it_names(command: str) -> None:
    """Seen by default too, so that an option that is renamed does not wait for hours to be missed."""
    for each in command.split(" && "):
        assert set(re.findall(r"--[\w-]+", each)) <= options_of(each.split()), each


def test_what_takes_long_stands_on_a_page() -> None:
    assert set(LONG) <= {command.text for page in PAGES for command in commands(page)}


def test_what_ci_runs_it_runs_as_it_stands() -> None:
    ci = (ROOT / ".ci" / "run").read_text().splitlines()
    for command, line in BY_CI.items():
        assert line in ci, command


def test_every_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "A sentence with `mpigp fit a.h5`, and `python -m\nbenchmarks.stream\nrows`, `A=1 mpiexec -n 2 x`; "
        "a name, `mpigp`; an option, `--ranks 2`; `mpigp: an error`; `mpigp/cli.py`.\n\n"
        "    pip install x  # why\n    bash y\n\n```sh\nmpigp `which b`\nmpigp c\n```\n\n| `srun --mpi=list` |\n"
    )
    assert [(each.tag, each.text, each.line) for each in commands(page)] == [
        (SENTENCE, "mpigp fit a.h5", 1),
        (SENTENCE, "python -m benchmarks.stream rows", 1),
        (SENTENCE, "A=1 mpiexec -n 2 x", 3),
        ("sh", "pip install x", 5),
        ("sh", "bash y", 6),
        ("sh", "mpigp `which b`\nmpigp c", 8),
        (SENTENCE, "srun --mpi=list", 13),
    ]


@every_page
def test_blocks_are_of_a_known_kind_and_outputs_follow_what_printed_them(page: Path) -> None:
    found = blocks(page)
    assert {block.tag for block in found} <= set(TAGS)
    if page.parent.name == "docs":
        assert not re.search(r"^ {4}", prose(page), re.MULTILINE), "fence blocks, with a tag"
    for block, before in zip(found, [None, *found], strict=False):
        if block.tag == "text":
            assert before is not None and before.tag in RUN, f"{page.name}:{block.line}"


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
        assert needs == block.text.startswith("# needs Slurm") == (block.tag == "slurm"), f"{page.name}:{block.line}"


def quoted() -> list[str]:
    """Return what pages quote of the program's words within sentences: its errors, and what poor.md says it prints."""
    errors = [text for page in PAGES for text in re.findall(r"`(mpigp: [^`]+)`", prose(page))]
    return errors + re.findall(r"^\| `([^`]+)` \|", prose(ROOT / "docs" / "poor.md"), re.MULTILINE)


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
