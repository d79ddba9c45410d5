"""A full disk: the previous checkpoint stays, and the fit says so and goes on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.mpi.test_same_bits import contents
from tests.support.fits import fit
from tests.support.inputs import write_inputs
from tests.support.launching import mpiexec, run, several

N, M, Q, D = 300, 6, 2, 3
SHORT = ["--max-iter", 3, "--hold", 1]
FULL = """
import resource, signal, sys
from mpigp.fit import checkpoint
from mpigp.mpi import communicator as ranks
from mpigp.cli import main

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails, as on a full disk
save, saves = checkpoint.save, []

def limited(*arguments):
    saves.append(1)
    if len(saves) > {good}:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
    try:
        return save(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

checkpoint.save = limited
main()
"""


@pytest.mark.parametrize(("ranks", "size"), [(1, 9000), (3, 0), (3, 9000)])
def test_a_full_disk_keeps_the_previous_checkpoint_and_says_so(ranks: int, size: int, tmp_path: Path) -> None:
    """The second checkpoint does not fit on the disk, nor do the next; the first does."""
    inputs = write_inputs(tmp_path, "gplvm", N, M, Q, D)
    output, first = tmp_path / "model.h5", tmp_path / "first.h5"
    script = tmp_path / "full.py"
    script.write_text(FULL.format(good=1, size=size))
    settings = ["--hold", 1, "--checkpoint-every", 4]
    command = fit(inputs, output, "gplvm", *settings, m=M, q=Q)
    outcome = mpiexec(ranks, script, *command, "--max-iter", 10)
    assert outcome.code == 1, (outcome.code, outcome.stdout, outcome.stderr)
    lines = [line for line in outcome.ours if str(output) in line]
    assert lines, outcome.stderr
    assert outcome.ours == [f"{lines[-1]}: the fit goes on without this checkpoint", lines[-1]]
    assert "Traceback" not in outcome.stderr
    assert "File too large" in lines[0]
    assert list(tmp_path.glob(".*.part")) == []
    found = contents(output)
    assert len(found["trace/bound"]) == 4
    again = fit(inputs, first, "gplvm", *settings, m=M, q=Q)
    for (each,) in several(tmp_path / "told", 1, [[*again, "--max-iter", 4], [*command, "--max-iter", 10, "--resume"]]):
        assert each.code == 0, each.stderr
    wanted = contents(first)
    for name in ("trace/bound", "checkpoint/vectors/point/shared", "checkpoint/vectors/point/local/0/1"):
        assert found[name].tobytes() == wanted[name].tobytes()
    assert len(contents(output)["trace/bound"]) == 10


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser may mount a small disk")
def test_a_disk_that_really_is_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        inputs = write_inputs(tmp_path, "gplvm", N, M, Q, D)
        output = disk / "model.h5"
        command = fit(inputs, output, "gplvm", "--hold", 1, m=M, q=Q)
        first = run(2, *command, "--max-iter", 3)
        assert first.code == 0, first.stderr
        before = output.read_bytes()
        (disk / "ballast").write_bytes(bytes(2**20 - 3 * len(before) // 2))
        outcome = run(2, *command, "--max-iter", 5, "--resume")
        assert outcome.code == 1, (outcome.stdout, outcome.stderr)
        (line,) = outcome.ours
        assert str(output) in line
        assert "No space left" in line
        assert output.read_bytes() == before
        assert sorted(path.name for path in disk.iterdir()) == ["ballast", "model.h5"]
    finally:
        subprocess.run(["umount", disk], check=True)
