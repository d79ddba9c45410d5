"""Every command of the README and the documentation, run as it stands there; see pages.py for what the blocks mean."""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from launching import ROOT, start
from pages import RUN, TAGS, agrees, blocks, checkout, disagreement, pages, prose, run_block

from mpigp.cli import build_parser

PAGES = pages()
# What is measured, as opposed to chosen or counted: a number with a unit.
MEASURED = re.compile(r"\d(?: ?%| (?:s|ms|ns|MB|nats|times)\b)")
NAMED = re.compile(r"`(?:python|mpigp|mpiexec|tests/)[^`]*`|```(?:sh|python)\n")
INSTALLED = re.compile(r"pip install (?:-e )?'?\.(?:\[([\w,]+)\])?'?")
README_COMMANDS = [block.text for block in blocks(ROOT / "README.md") if block.text.startswith("pip install")]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if {block.tag for block in blocks(page)} & set(RUN)], ids=lambda page: page.name
)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    folder, found = checkout(tmp_path), blocks(page)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.tag not in RUN or "pytest" in block.text:  # this is pytest
            continue
        if page.name == "README.md":  # what is before is run by CI, in a new environment
            block = block._replace(text=re.sub(r"^pip install \S+ \S+ && ", "", block.text))
        outcome = run_block(block, folder)
        place = f"{page.name}:{block.line}: {block.text}\n{outcome.stdout}\n{outcome.stderr}"
        assert outcome.code == (2 if block.tag == "refused" else 0), place
        if after is not None and after.tag == "text":
            said = outcome.stderr if block.tag == "refused" else outcome.stdout
            assert disagreement(after.text, said) == "", place


@every_page
def test_blocks_are_of_a_known_kind_and_outputs_follow_what_printed_them(page: Path) -> None:
    found = blocks(page)
    assert {block.tag for block in found} <= set(TAGS)
    if page.name != "README.md":
        assert not re.search(r"^ {4}", prose(page), re.MULTILINE), "fence blocks, with a tag"
    for block, before in zip(found, [None, *found], strict=False):
        if block.tag == "text":
            assert before is not None and before.tag in RUN, f"{page.name}:{block.line}"


def test_the_readme_has_the_two_commands_that_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    assert len(README_COMMANDS) == 2
    for command, ending in zip(README_COMMANDS, ("demo", "pytest"), strict=True):
        assert re.fullmatch(rf"pip install -e '\.\[[\w,]+\]' && python .*{ending}", command)
        assert f"pip install .* {ending}$" in ci


@every_page
def test_what_is_installed_exists(page: Path) -> None:
    """Install lines are not run page by page; CI installs the README's. All extras must be those of the project."""
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    lines = [line for block in blocks(page) if block.tag == "install" for line in block.text.splitlines()]
    for line in lines:
        assert INSTALLED.fullmatch(line), line
    for names in INSTALLED.findall(page.read_text()):
        assert set(filter(None, names.split(","))) <= extras


@every_page
def test_what_needs_slurm_says_so_and_submits_what_was_run(page: Path) -> None:
    found = blocks(page)
    ran = "\n".join(block.text for block in found if block.tag == "sh")
    for block in found:
        if block.tag == "slurm":
            assert block.text.startswith("# needs Slurm"), f"{page.name}:{block.line}"
            for script in re.findall(r"sbatch (?:--\S+ )*(\S+)", block.text):
                assert (ROOT / script).is_file() or f"bash {script}" in ran, script
        else:
            assert not re.search(r"^\s*(?:sbatch|srun|module)\b", block.text, re.MULTILINE), f"{page.name}:{block.line}"


@cache
def help_of(*command: str) -> str:
    outcome = start(sys.executable, *command, "--help", cwd=ROOT)
    assert outcome.code == 0, outcome
    return outcome.stdout


def options_of(command: str) -> set[str]:
    """Return the options that the program of an inline command has."""
    words = command.split()
    if words[:2] == ["python", "-m"] and words[2].startswith("benchmarks"):
        return set(re.findall(r"--[\w-]+", help_of("-m", words[2])))
    if words[0] == "python" and words[1].startswith("tests/"):
        return set(re.findall(r"--[\w-]+", help_of(words[1])))
    return options_within(build_parser(), words) | {"--with-ft"}  # which is mpiexec's


def options_within(parser: argparse.ArgumentParser, words: list[str]) -> set[str]:
    """Return the options of a parser, and of those below it that the words name."""
    known = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            known.update(*(options_within(action.choices[word], words) for word in words if word in action.choices))
    return known


@every_page
def test_commands_within_sentences_have_the_options_they_name(page: Path) -> None:
    """Their sizes are those of a study, or dots: they are not run, but must be understood."""
    for command in re.findall(r"`((?:python (?:-m benchmarks|tests/)|mpigp |mpiexec )[^`]*)`", prose(page)):
        assert set(re.findall(r"--[\w-]+", command)) <= options_of(command) | {"--help"}, command


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
