"""The command line: what it prints, where options come from, and its exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import mpigp
from mpigp.cli import main
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT, mpiexec, run, start


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "regression", 20, 3, 2, 1)


def call(capfd: pytest.CaptureFixture, *arguments: object) -> tuple[int, str, str]:
    """Run the command line in this process; return its exit code, and what it wrote to output and error."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in arguments])
    return end.value.code, *capfd.readouterr()


# starting it


@pytest.mark.parametrize(
    "command",
    [[ROOT / "run.py"], ["-m", "mpigp"], [Path(sys.executable).with_name("mpigp")]],
    ids=["run.py", "python -m mpigp", "mpigp"],
)
def test_all_ways_to_start_are_the_same_program(command: list, tmp_path: Path) -> None:
    outcome = start(sys.executable, *command, "--version", cwd=tmp_path)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, f"mpigp {mpigp.__version__}\n", "")


def test_help_names_every_command(capfd: pytest.CaptureFixture) -> None:
    code, out, err = call(capfd, "--help")
    assert (code, err) == (0, "")
    assert all(name in out for name in ("evaluate", "report", "synth", "convert", "info"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "COMMAND"),
        (["frobnicate"], "frobnicate"),
        (["evaluate"], "DATA"),
        (["evaluate", "data.h5"], "--params"),
        (["evaluate", "data.h5", "--params", "p.h5", "--threads", "many"], "--threads"),
        (["evaluate", "data.h5", "--params", "p.h5", "--config"], "--config"),
        (["--ranks", "0", "evaluate", "data.h5", "--params", "p.h5"], "--ranks"),
        (["--ranks", "two", "evaluate", "data.h5", "--params", "p.h5"], "--ranks"),
        (["--rank=2", "evaluate", "data.h5", "--params", "p.h5"], "--rank"),  # options are not guessed
        (["synth", "oilflow", "-o", "x.h5"], "--rows"),
    ],
)
def test_bad_usage_is_code_2_and_one_line(arguments: list[str], said: str, capfd: pytest.CaptureFixture) -> None:
    code, out, err = call(capfd, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("mpigp: ")
    assert said in line
    assert "--help shows the options" in line


def test_an_error_of_ours_is_code_1(inputs: Inputs, tmp_path: Path) -> None:
    """What is not the user's to mend must not look as if it were."""
    script = tmp_path / "broken.py"
    script.write_text(
        "from mpigp.cli import main\n"
        "from mpigp.commands import evaluate\n"
        "def broken(arguments, comm): raise ArithmeticError('nobody expected this')\n"
        "evaluate.run = broken\n"
        "main()\n"
    )
    outcome = start(sys.executable, script, "evaluate", *inputs.arguments)
    assert outcome.code == 1
    assert "nobody expected this" in outcome.stderr


# --json


def test_json_of_evaluate(inputs: Inputs, capfd: pytest.CaptureFixture) -> None:
    outcome = run(2, "evaluate", *inputs.arguments, "--json", "--repeat", 3, "--threads", 2)
    assert (outcome.code, outcome.stderr) == (0, "")
    figures = outcome.figures
    assert (figures["ranks"], figures["threads"]) == (2, 2)
    assert (figures["model"], figures["n"], figures["m"], figures["q"], figures["d"]) == ("regression", 20, 3, 2, 1)
    assert len(figures["all_seconds"]) == 3
    assert figures["seconds"] == sorted(figures["all_seconds"])[1]  # the median
    assert np.isfinite(figures["bound"])
    chosen, first, last = outcome.stdout.splitlines()  # one rank speaks
    assert chosen.startswith("rows: in memory (")
    assert f"bound {figures['bound']!r} nats" in first
    assert last.startswith("{")


def test_without_json_there_is_none(inputs: Inputs) -> None:
    outcome = run(None, "evaluate", *inputs.arguments)
    assert outcome.code == 0
    assert "{" not in outcome.stdout


# --config


def synthesised(capfd: pytest.CaptureFixture, output: Path, *arguments: object) -> tuple[int, ...]:
    """Return rows, columns of X and the seed of what `synth regression ARGUMENTS` wrote."""
    code, _, err = call(capfd, "synth", "regression", "-o", output, *arguments)
    assert code == 0, err
    with h5py.File(output) as file:
        return (*file["X"].shape, file.attrs["seed"])


def test_options_come_from_the_file_and_flags_override_it(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    config = tmp_path / "run.toml"
    config.write_text("rows = 7\ninputs = 3\nseed = 5\n")
    output = tmp_path / "data.h5"
    assert synthesised(capfd, output, "--config", config) == (7, 3, 5)
    assert synthesised(capfd, output, f"--config={config}") == (7, 3, 5)
    assert synthesised(capfd, output, "--rows", 9, "--config", config) == (9, 3, 5)
    assert synthesised(capfd, output, "--config", config, "--seed", 6) == (7, 3, 6)


@pytest.mark.parametrize(("value", "lines"), [("true", 2), ("false", 1)])
def test_switches_in_the_file(value: str, lines: int, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    config = tmp_path / "run.toml"
    config.write_text(f"json = {value}\nrows = 7\n")
    code, out, _ = call(capfd, "synth", "regression", "-o", tmp_path / "data.h5", "--config", config)
    assert code == 0
    assert len(out.splitlines()) == lines


def test_the_ranks_read_the_file_too(inputs: Inputs, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(f'params = "{inputs.params}"\nthreads = 2\nrepeat = 2\njson = true\n')
    outcome = run(2, "evaluate", inputs.data, "--config", config)
    assert outcome.code == 0, outcome.stderr
    assert (outcome.figures["ranks"], outcome.figures["threads"]) == (2, 2)
    assert len(outcome.figures["all_seconds"]) == 2


# commands that need one process only


def test_synth_under_mpiexec_writes_once(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    alone.mkdir()
    shared.mkdir()
    arguments = ["synth", "oilflow", "--rows", 50, "--json", "-o"]
    assert call(capfd, *arguments, alone / "data.h5")[0] == 0
    outcome = mpiexec(2, ROOT / "run.py", *arguments, shared / "data.h5")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert len(outcome.stdout.splitlines()) == 2
    assert [path.name for path in shared.iterdir()] == ["data.h5"]
    with h5py.File(alone / "data.h5") as one, h5py.File(shared / "data.h5") as other:
        assert set(one) == set(other)
        assert all(np.array_equal(one[name], other[name]) for name in one)
