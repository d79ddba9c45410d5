"""A scaling study as jobs of a real Slurm, one for each number of ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.support.launching import ROOT, run, start


@pytest.mark.slow
def test_a_job_for_each_count(cluster: Cluster, tmp_path: Path) -> None:
    """Those of more than one rank on two nodes; the bits are those of any other number."""
    folder = tmp_path / "a study"
    words = ["scaling", "strong", "--ranks", "1,2,4", "--rows", 2000, "--inducing", 10, "--rounds", 1, "--repeat", 1]
    sbatch = "--time=5 --nodes=1-2 --spread-job"
    outcome = start(sys.executable, ROOT / "run.py", *words, "-o", folder, f"--slurm={sbatch}", "--json", cwd=tmp_path,
                    environment=cluster.environment())  # fmt: skip
    assert outcome.code == 0, outcome.stderr
    jobs = {int(ranks): number for ranks, number in outcome.figures["jobs"].items()}
    assert list(jobs) == [1, 2, 4]
    found = {}
    for ranks, number in jobs.items():
        job = cluster.wait(number)
        log = (folder / f"strong-{ranks:05d}.log").read_text()
        assert (job.state, job.code) == ("COMPLETED", 0), log
        (found[ranks],) = json.loads((folder / f"strong-{ranks:05d}.json").read_text())["runs"]
    assert {ranks: told["ranks"] for ranks, told in found.items()} == {1: 1, 2: 2, 4: 4}
    assert len({told["bound"] for told in found.values()}) == 1
    assert len({(told["messages"], told["bytes"]) for told in found.values()}) == 1
    assert cluster.job(jobs[4]).nodes == 2
    assert run(None, "scaling", "report", folder).code == 0
