"""What a rank may take, and whether rows are streamed."""

from __future__ import annotations

import math
import resource
from pathlib import Path

import pytest
from mpi4py import MPI

from mpigp.mpi import memory

GB = 10**9


def tree(root: Path, **files: str) -> Path:
    """Write files by their paths, in which `__` is a slash, below a folder that stands for the root."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n"


def test_the_machine_alone(tmp_path: Path) -> None:
    assert memory.of_node(tree(tmp_path, proc__meminfo=MEMINFO)) == 8000000 * 1024


def test_a_machine_that_says_nothing_sets_no_limit(tmp_path: Path) -> None:
    assert memory.of_node(tmp_path) == math.inf


def test_the_second_version_of_cgroups_and_the_groups_around(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/slurm/job\n")
    job, parent = root / "sys/fs/cgroup/slurm/job", root / "sys/fs/cgroup/slurm"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job / "memory.current").write_text("1\n")
    assert memory.of_node(root) == 8000000 * 1024
    (parent / "memory.max").write_text(f"{2 * GB}\n")
    (parent / "memory.current").write_text(f"{GB}\n")
    (parent / "memory.stat").write_text("anon 5\ninactive_file 300\n")
    assert memory.of_node(root) == GB + 300  # what files take can be given back


def test_the_first_version_of_cgroups_in_a_container(tmp_path: Path) -> None:
    """The path is that of the machine outside: only the group at the top is there."""
    root = tree(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="9:cpu:/a\n4:memory:/docker/b\n0::/\n")
    top = root / "sys/fs/cgroup/memory"
    top.mkdir(parents=True)
    (top / "memory.limit_in_bytes").write_text(f"{3 * GB}\n")
    (top / "memory.usage_in_bytes").write_text(f"{GB}\n")
    (top / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 700\n")
    assert memory.of_node(root) == 2 * GB + 700


@pytest.mark.parametrize("kind", list(memory.PROCESS))
def test_limits_of_the_process(kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path, proc__self__status="VmSize: 1000 kB\nVmData: 1000 kB\nName: python\n")
    none = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda asked: (GB, GB) if asked == kind else (none, none))
    assert memory.of_process(root) == GB - 1000 * 1024


def test_this_machine_leaves_something() -> None:
    assert 0 < memory.available(MPI.COMM_SELF) < 2**60


@pytest.mark.parametrize(
    ("choice", "needed", "wanted", "said"),
    [
        ("auto", 69.0, False, "rows: in memory (6.9e-05 MB, of 0.0001 MB that a rank may take)\n"),
        ("auto", 71.0, True, "rows: streamed from the file (7.1e-05 MB, of 0.0001 MB that a rank may take)\n"),
        ("all", 1e18, False, ""),
        ("stream", 1.0, True, ""),
    ],
)
def test_the_choice(
    choice: str, needed: float, wanted: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(memory, "available", lambda comm: 100.0)
    made = memory.choose(MPI.COMM_SELF, choice, needed)
    assert made.stream is wanted
    made.tell(MPI.COMM_SELF)
    assert capsys.readouterr().out == said
