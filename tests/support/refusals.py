"""Bad input: good files spoilt one way each, and what every rank must then do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import Outcome, several


class Case(NamedTuple):
    """What is done to good files, and what the line about it must hold; {NAME} stands for one of the files."""

    name: str
    said: tuple[str, ...]
    spoil: Callable[..., list[object] | None]
    options: Mapping[str, object]


class Cases(list[Case]):
    """A table of cases, to which functions that spoil files are added."""

    def add(self, *said: str, **options: object) -> Callable:
        """Register a function that spoils the inputs, and may return more arguments."""

        def register(spoil: Callable[..., list[object] | None]) -> Callable:
            self.append(Case(spoil.__name__, said, spoil, options))
            return spoil

        return register

    def of(self, spoil: Callable) -> Case:
        """Return the case that a function was registered as."""
        return next(case for case in self if case.spoil is spoil)


class Setting(NamedTuple):
    """One folder with spoilt inputs and an output of an earlier run, for one number of ranks."""

    folder: Path
    files: Mapping[str, Path]
    arguments: list[object]

    def expected(self, case: Case) -> list[str]:
        """Return what the line about a case must hold."""
        return [text.format(**self.files) for text in case.said]


class Refused(NamedTuple):
    """How a case ended, rank by rank, and what its folder held before and after."""

    made: Setting
    outcomes: list[Outcome]
    before: dict[str, tuple]
    after: dict[str, tuple]


def tried(folder: Path, ranks: int, cases: Cases, setting: Callable[[Path, Case], Setting]) -> dict[str, Refused]:
    """Try all cases in one start of mpiexec, each in a folder of its own that `setting` fills."""
    made = [setting(folder / case.name, case) for case in cases]
    before = [state(each.folder) for each in made]
    outcomes = several(folder / "told", ranks, [each.arguments for each in made])
    after = [state(each.folder) for each in made]
    return {case.name: Refused(*rest) for case, *rest in zip(cases, made, outcomes, before, after, strict=True)}


def assert_case_refused(case: Case, refused: Refused) -> None:
    """Assert that rank 0 refused a case and said so, and that the others ended in silence with nothing written."""
    made, outcomes, before, after = refused
    assert outcomes, "this case, or one before it, hung or ended its process"
    assert_refused(outcomes[0], *made.expected(case))
    for outcome in outcomes[1:]:
        assert outcome.code in (0, 2)  # 0 where the launcher needs but one to fail
        assert outcome.stdout + outcome.stderr == ""
    assert after == before


def assert_refused(outcome: Outcome, *said: str) -> None:
    """Assert that a run ended as bad input must: with code 2, and one line that says all this."""
    assert outcome.code == 2, (outcome.code, outcome.stdout, outcome.stderr)
    assert outcome.stdout == ""
    line = only_line(outcome.stderr)
    assert line.startswith("mpigp: ")
    assert [word for word in said if word not in line] == [], line


def only_line(text: str) -> str:
    """Return the one line of a refusal, which may be followed by what it points to, with carets below the place."""
    line, *pointed = text.splitlines()
    if pointed:
        shown, carets = pointed
        assert shown.startswith("    ") and set(carets.strip()) == {"^"}
    return line


def state(folder: Path) -> dict[str, tuple]:
    """Return the bytes and the time of every file, hidden ones too."""
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }
