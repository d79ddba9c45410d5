"""Output whose reader goes away: the command goes on, quietly, and ends as if somebody had read it all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.fits import differences, fit
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT, Outcome, run, start

SETTINGS = ("--max-iter", 20, "--hold", 5)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "gplvm", 200, 7, 2, 3)


@pytest.fixture(scope="module")
def heard(inputs: Inputs) -> Path:
    """The model of the same fit, to whose end somebody has listened."""
    model = inputs.data.with_name("heard.h5")
    assert run(None, *fit(inputs, model, "gplvm", *SETTINGS)).code == 0
    return model


def piped(ending: str, *words: object) -> Outcome:
    """Run mpigp with its output piped away; the exit code is its own, standard error what is not piped."""
    command = " ".join(f"'{word}'" for word in (sys.executable, ROOT / "run.py", *words))
    return start("bash", "-c", f"{command} {ending}; exit ${{PIPESTATUS[0]}}")


@pytest.mark.parametrize("ending", ["| head -1", "| true", "2>&1 | true"])
@pytest.mark.parametrize("launcher", [(), ("--ranks", 2)], ids=["one process", "two ranks"])
def test_a_fit_goes_on_when_nobody_reads(
    launcher: tuple, ending: str, inputs: Inputs, heard: Path, tmp_path: Path
) -> None:
    outcome = piped(ending, *launcher, *fit(inputs, tmp_path / "model.h5", "gplvm", *SETTINGS, "--json"))
    assert outcome.code == 0, outcome
    assert outcome.ours == [] and "Error" not in outcome.stderr, outcome
    assert differences(heard, tmp_path / "model.h5") == []


@pytest.mark.parametrize(("words", "code"), [(("--help",), 0), (("info", "nothing.h5"), 2)])
def test_exit_codes_stay(words: tuple[str, ...], code: int) -> None:
    assert piped("2>&1 | true", *words).code == code
