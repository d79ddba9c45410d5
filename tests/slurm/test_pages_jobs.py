"""The commands of the pages that need Slurm, run in a real one as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.support.pages import Block, checkout, run_block, tagged

COMMANDS = tagged("sh slurm")


@pytest.mark.parametrize(("page", "command"), COMMANDS.values(), ids=list(COMMANDS))
def test_a_command_of_a_page_that_needs_slurm(page: Path, command: Block, cluster: Cluster, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    outcome = run_block(command, folder, environment=cluster.environment())
    assert outcome.code == 0, outcome
    jobs = re.findall(r"\bjob (\d+)", outcome.stdout)
    assert len(jobs) == len(re.findall(r"(?m)^sbatch | --submit$", command.text)), outcome
    for number in jobs:
        job = cluster.wait(number, 600)
        assert (job.state, job.code) == ("COMPLETED", 0), [log.read_text() for log in folder.glob("*.out")]
    for model in re.findall(r" -o (\S+\.h5)", command.text):
        assert (folder / model).is_file(), outcome
