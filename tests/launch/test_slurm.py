"""Batch scripts of Slurm: what is filled in, what is refused, and what they do with each end of a fit.

Here stand-ins take the place of Slurm and mpiexec; tests/slurm has the real ones.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from mpigp.launch.slurm import SCRIPTS, filled, template
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT, Outcome, run, start

OPTIONS = ["--model", "gplvm", "--latent", "2", "--inducing", "5"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "gplvm", 20, 3, 2, 2)


def program(folder: Path, name: str, text: str) -> None:
    """Make a stand-in for a program."""
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


# the text


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_is_not_edited_comes_back_as_it_was(name: str) -> None:
    text = template(name)
    assert text == (ROOT / "slurm" / f"{name}.sbatch").read_text()
    line = next(line for line in text.splitlines() if "|| set -- " in line)
    assert filled(text, {}, "# module load openmpi                # the site's MPI, and the Python that mpigp was "
                  "installed with", shlex.split(line.partition("set -- ")[2])) == text  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_options_take_their_places(name: str) -> None:
    options = {"nodes": "7", "partition": "fast", "mem": "4G", "exclusive": "", "time": "1-00:00:00"}
    lines = filled(template(name), options, "module load mpigp", ["a b.h5", "-o", "$x.h5"]).splitlines()
    given = [line.split("#")[1].split()[1] for line in lines if line.startswith("#SBATCH")]
    assert {"--nodes=7", "--partition=fast", "--mem=4G", "--exclusive", "--time=1-00:00:00"} <= set(given)
    assert len({each.partition("=")[0] for each in given}) == len(given)  # each once
    assert "module load mpigp" in lines
    assert "[ $# -gt 0 ] || set -- 'a b.h5' -o '$x.h5'" in lines
    assert lines[0] == "#!/bin/bash"


@pytest.mark.parametrize("script", sorted((ROOT / "slurm").glob("*.sbatch")), ids=lambda path: path.name)
def test_bash_can_read_each_script(script: Path) -> None:
    assert start("bash", "-n", script).code == 0
    assert max(map(len, script.read_text().splitlines())) <= 120


# the command


def test_it_writes_the_script_beside_the_model(inputs: Inputs, tmp_path: Path) -> None:
    model = tmp_path / "model.h5"
    words = [
        "--nodes",
        "3",
        "--cpus-per-task",
        "4",
        "--account",
        "a",
        "--setup",
        "module load gp",
        "--sbatch",
        "qos=low",
    ]
    outcome = run(None, "slurm", "fit", inputs.data, "-o", model, *OPTIONS, *words, "--max-iter", 9, "--json")
    assert outcome.code == 0, outcome
    assert outcome.figures == {"script": str(tmp_path / "model.sbatch")}
    text = (tmp_path / "model.sbatch").read_text()
    assert "fit --threads" in text  # that of several threads
    for line in ("#SBATCH --nodes=3", "#SBATCH --cpus-per-task=4", "#SBATCH --account=a", "#SBATCH --qos=low"):
        assert f"\n{line}" in text
    assert "\nmodule load gp\n" in text
    assert f"|| set -- {inputs.data} -o {model} {' '.join(OPTIONS)} --max-iter 9\n" in text


def test_options_of_the_job_may_come_from_a_file(inputs: Inputs, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('nodes = 5\nmodel = "gplvm"\nlatent = 2\ninducing = 4\n')
    words = ["-o", tmp_path / "model.h5", "--config", tmp_path / "run.toml", "--write", tmp_path / "x"]
    outcome = run(None, "slurm", "fit", inputs.data, *words)
    assert (outcome.code, outcome.stdout) == (0, f"{tmp_path / 'x'}\n")
    text = (tmp_path / "x").read_text()
    assert "\n#SBATCH --nodes=5" in text
    assert f"|| set -- --model=gplvm --latent=2 --inducing=4 {inputs.data} -o {tmp_path / 'model.h5'}\n" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--array", "1-3"], "%a"),
        (["--latent", "0"], "--latent"),
        (["--nodes", "2 3"], "--nodes"),
        (["--script", "fit", "--cpus-per-task", "2"], "fit-hybrid"),
        (["--write", "nowhere/x.sbatch"], "nowhere"),
        (["--y", "Z", "--submit"], "/Z"),
        (["--threads", "2"], "--threads"),
    ],
)
def test_bad_input_is_refused_before_a_script_is_written(
    words: list[str], said: str, inputs: Inputs, tmp_path: Path
) -> None:
    outcome = run(None, "slurm", "fit", inputs.data, "-o", "model.h5", *OPTIONS, *words, cwd=tmp_path)
    assert (outcome.code, outcome.stdout) == (2, "")
    (line,) = outcome.stderr.splitlines()
    assert said in line
    assert list(tmp_path.iterdir()) == []


def submit(inputs: Inputs, folder: Path, sbatch: str | None) -> Outcome:
    """Run `slurm fit --submit` where sbatch is this."""
    if sbatch is not None:
        program(folder, "sbatch", sbatch)
    words = ["slurm", "fit", inputs.data, "-o", folder / "model.h5", *OPTIONS, "--submit", "--json"]
    return run(None, *words, environment={"PATH": str(folder)}, cwd=folder)


def test_it_prints_the_number_of_the_job(inputs: Inputs, tmp_path: Path) -> None:
    outcome = submit(inputs, tmp_path, 'echo "$@" > told; echo "42;cluster"')
    assert outcome.code == 0, outcome
    assert "job 42" in outcome.stdout.splitlines()
    assert outcome.figures["job"] == "42"
    assert (tmp_path / "told").read_text().split() == ["--parsable", str(tmp_path / "model.sbatch")]


@pytest.mark.parametrize(
    ("sbatch", "said"), [("echo no such partition >&2; exit 1", "no such partition"), (None, "sbatch could not be run")]
)
def test_what_sbatch_refuses_is_said(sbatch: str | None, said: str, inputs: Inputs, tmp_path: Path) -> None:
    outcome = submit(inputs, tmp_path, sbatch)
    assert outcome.code == 2
    (line,) = outcome.stderr.splitlines()
    assert said in line


# what the scripts do


def script(name: str, folder: Path, started: str, does: str) -> subprocess.Popen[str]:
    """Start a script, as Slurm would, where the program that it starts records its words and then does this."""
    program(folder, started, f'printf "%s\\n" "$*" >> {started}.told\n{does}')
    program(folder, "scontrol", 'echo "$@" >> scontrol.told')
    slurm = {"SLURM_JOB_ID": "42", "SLURM_NTASKS": "6", "SLURM_CPUS_PER_TASK": "3", "SLURM_ARRAY_TASK_ID": "8"}
    return subprocess.Popen(["bash", ROOT / "slurm" / f"{name}.sbatch", "d.h5", "-o", "m-%a.h5"], cwd=folder, text=True,
                            env={"PATH": f"{folder}:/usr/bin:/bin", **slurm}, stderr=subprocess.PIPE)  # fmt: skip


def told(folder: Path, name: str) -> list[str]:
    """Return what a stand-in was called with, call by call."""
    path = folder / f"{name}.told"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fit", "--ranks 6 fit d.h5 -o m-8.h5"),
        ("fit-hybrid", "--ranks 6 fit --threads 3 d.h5 -o m-8.h5"),
        ("fit-requeue", "--ranks 6 fit --threads 3 --resume d.h5 -o m-8.h5"),
    ],
)
@pytest.mark.parametrize("code", [0, 2, 75])
def test_what_each_script_starts_and_its_exit_code(name: str, expected: str, code: int, tmp_path: Path) -> None:
    with script(name, tmp_path, "mpigp", f"exit {code}") as process:
        process.communicate(timeout=300)
    assert process.returncode == code
    assert told(tmp_path, "mpigp") == [expected]


@pytest.mark.parametrize(
    ("code", "word", "expected"), [(0, "0", 0), (0, "", 1), (0, "75", 1), (75, "75", 75), (143, "75", 75), (9, "", 9)]
)
def test_under_srun_zero_means_that_rank_0_had_its_last_word(
    code: int, word: str, expected: int, tmp_path: Path
) -> None:
    said = f'printf "{word}" > "$MPIGP_STARTED/done"; ' if word else ""
    with script("fit-srun", tmp_path, "srun", f"{said}exit {code}") as process:
        stderr = process.communicate(timeout=300)[1]
    assert process.returncode == expected, stderr
    assert told(tmp_path, "srun") == ["--cpus-per-task=3 --cpu-bind=cores --wait=60 mpigp fit d.h5 -o m-8.h5"]
    assert not list(tmp_path.glob(".mpigp-*"))


@pytest.mark.parametrize(("code", "requeues"), [(0, 0), (2, 0), (75, 1), (1, 0)])  # done, bad input, stopped, died
def test_each_end_of_a_fit(code: int, requeues: int, tmp_path: Path) -> None:
    with script("fit-requeue", tmp_path, "mpigp", f"exit {code}") as process:
        process.communicate(timeout=300)
    assert process.returncode == code
    assert told(tmp_path, "scontrol") == ["requeue 42"] * requeues


@pytest.mark.parametrize(("number", "requeues"), [(signal.SIGUSR1, 1), (signal.SIGTERM, 0)])
@pytest.mark.parametrize(("name", "started"), [("fit-requeue", "mpigp"), ("fit-srun", "srun")])
def test_a_signal_reaches_the_fit_and_the_script_waits(
    number: signal.Signals, requeues: int, name: str, started: str, tmp_path: Path
) -> None:
    does = "trap 'sleep 0.3; exit 75' USR1\necho up >&2\nwhile true; do sleep 0.1; done"
    with script(name, tmp_path, started, does) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "up\n"
        process.send_signal(number)
        process.communicate(timeout=300)
    assert process.returncode == 75
    assert len(told(tmp_path, started)) == 1
    assert told(tmp_path, "scontrol") == ["requeue 42"] * (requeues if name == "fit-requeue" else 0)
