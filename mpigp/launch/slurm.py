"""Batch scripts of Slurm: those that people copy and edit, filled in and submitted."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from mpigp.errors import InputError

SCRIPTS = ("fit", "fit-srun", "fit-hybrid", "fit-requeue")
PATIENCE = 120  # seconds for sbatch to answer

DEFAULTS = re.compile(r"(?<=\|\| set -- ).*")  # the arguments of a script that is given none
SETUP = re.compile(r"^# module load .*", re.MULTILINE)


def template(name: str) -> str:
    """Return the text of a script: from the package where it is installed, or from the checkout that it is in."""
    package = Path(__file__).parents[1]
    installed = package / "slurm" / f"{name}.sbatch"
    return (installed if installed.exists() else package.parent / "slurm" / f"{name}.sbatch").read_text("utf-8")


def filled(text: str, options: Mapping[str, str], setup: str, words: list[str]) -> str:
    """Return a script with these options of sbatch, commands to begin with, and arguments."""
    for name, value in options.items():
        line = f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}"
        place = re.search(rf"^##?SBATCH --{re.escape(name)}(=\S*)?(?!\S) *", text, re.MULTILINE)
        if place is None:
            text = text.replace("\n#SBATCH", f"\n{line}\n#SBATCH", 1)
        else:
            behind = text[place.end() :]
            gap = " " * max(1, len(place.group()) - len(line)) if behind.startswith("#") else ""
            text = text[: place.start()] + line + gap + behind
    text = SETUP.sub(lambda _: setup, text)
    return DEFAULTS.sub(lambda _: shlex.join(words), text)


def environment() -> str:
    """Return the command that finds this mpigp, and the mpiexec beside it, where there is one."""
    return f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"


def sbatch(words: list[str]) -> str:
    """Give sbatch a script, or options with a command to wrap; return the number of the job."""
    command = ["sbatch", "--parsable", *words]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"sbatch could not be run: {error}: is this a machine of the cluster?") from None
    if answer.returncode != 0:
        raise InputError(f"sbatch refused {words[-1]}: {' '.join(answer.stderr.split())}")
    return answer.stdout.strip().partition(";")[0]
