"""A failure of one rank is everybody's: no rank waits for one that will never come."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpigp import native
from mpigp.launch.mpiexec import without_banners
from tests.support.inputs import write_inputs
from tests.support.launching import Outcome, mpiexec


def scripted(tmp_path: Path, text: str, *arguments: object, ranks: int = 3) -> Outcome:
    """Run a script under plain mpiexec."""
    script = tmp_path / "script.py"
    script.write_text(text)
    return mpiexec(ranks, script, *arguments)


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_on_one_rank_ends_all(rank: int, tmp_path: Path) -> None:
    outcome = scripted(
        tmp_path,
        "from mpigp.mpi.communicator import world\n"
        "comm = world()\n"
        f"if comm.rank == {rank}:\n"
        "    raise ValueError('a reason\\nin two lines')\n"
        "comm.Barrier()\n",
    )
    assert outcome.code != 0
    lines = [line for line in without_banners(outcome.stderr.splitlines(keepends=True)) if line.strip()]
    assert lines == [f"mpigp: rank {rank}: ValueError: a reason in two lines ({tmp_path / 'script.py'}:4)\n"]


def test_a_rank_that_meets_an_error_over_a_dead_one_leaves_the_last_word_to_the_launcher(tmp_path: Path) -> None:
    outcome = scripted(
        tmp_path,
        "import os\n"
        "from mpi4py import MPI\n"
        "from mpigp.mpi.communicator import world\n"
        "comm = world()\n"
        "comm.Barrier()\n"
        "if comm.rank == 1:\n"
        "    raise MPI.Exception(MPI.ERR_OTHER)\n"
        "os.kill(os.getpid(), 9)\n",
        ranks=2,
    )
    assert "signal 9" in outcome.stderr
    assert outcome.ours == []


def test_an_error_of_mpi_itself_is_said(tmp_path: Path) -> None:
    outcome = scripted(
        tmp_path,
        "from mpi4py import MPI\n"
        "from mpigp.mpi.communicator import world\n"
        "comm = world()\n"
        "if comm.rank == 1:\n"
        "    comm.Send(bytearray(1), dest=7)\n"
        "comm.Barrier()\n",
        ranks=2,
    )
    assert outcome.code != 0
    (line,) = outcome.ours
    assert line.startswith("mpigp: rank 1: Exception: MPI_ERR_RANK")


def test_a_line_and_its_end_are_written_at_once(tmp_path: Path) -> None:
    """Else mpiexec's banner comes between them now and then, and is glued to the line."""
    outcome = scripted(
        tmp_path,
        "import sys\n"
        "from mpigp.mpi.communicator import world\n"
        "comm = world()\n"
        "class Log:\n"
        "    def write(self, text): print(repr(text))\n"
        "    def flush(self): sys.stdout.flush()\n"
        "sys.stderr = Log()\n"
        "if comm.rank == 0:\n"
        "    sys.excepthook(ValueError, ValueError('a reason'), None)\n"
        "comm.Barrier()\n",
        ranks=2,
    )
    assert outcome.stdout.splitlines() == [repr("mpigp: rank 0: ValueError: a reason\n")]


def test_the_way_to_an_exception_is_shown_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPIGP_TRACEBACK", "1")
    outcome = scripted(
        tmp_path,
        "from mpigp.mpi.communicator import world\n"
        "def deep():\n"
        "    raise KeyError('lost')\n"
        "comm = world()\n"
        "if comm.rank == 1:\n"
        "    deep()\n"
        "comm.Barrier()\n",
        ranks=2,
    )
    assert outcome.code != 0
    assert "Traceback" in outcome.stderr
    assert "in deep" in outcome.stderr


def test_input_errors_of_some_ranks_are_raised_on_all(tmp_path: Path) -> None:
    outcome = scripted(
        tmp_path,
        "import sys\n"
        "from pathlib import Path\n"
        "from mpigp.errors import InputError\n"
        "from mpigp.mpi.communicator import raise_on_all_ranks, world\n"
        "comm = world()\n"
        "try:\n"
        "    with raise_on_all_ranks(comm):\n"
        "        if comm.rank > 0:\n"
        "            raise InputError(f'rank {comm.rank} is unhappy')\n"
        "except InputError as error:\n"
        "    Path(sys.argv[1], f'{comm.rank}.txt').write_text(str(error))\n",
        tmp_path,
    )
    assert outcome.code == 0, outcome.stderr
    found = {path.name: path.read_text() for path in tmp_path.glob("*.txt")}
    assert found == {f"{rank}.txt": "rank 1 is unhappy" for rank in range(3)}


def test_an_output_folder_that_goes_while_the_job_runs_ends_it(tmp_path: Path) -> None:
    """Rank 0 alone writes, so it alone meets this error, while the others send it their rows."""
    inputs = write_inputs(tmp_path, "gplvm", 100_003, 3, 2, 1)
    folder = tmp_path / "folder"
    folder.mkdir()
    outcome = scripted(
        tmp_path,
        "import os\n"
        "from mpigp.cli import main\n"
        "from mpigp.commands import evaluate\n"
        "write = evaluate.write\n"
        "def late(path, comm, *rest):\n"
        "    if comm.rank == 0:\n"
        "        os.rmdir(os.path.dirname(path))\n"
        "    write(path, comm, *rest)\n"
        "evaluate.write = late\n"
        "main()\n",
        "evaluate",
        *inputs.arguments,
        "-o",
        folder / "gradient.h5",
    )
    assert outcome.code not in (0, None)
    (line,) = outcome.ours
    assert str(folder) in line


@pytest.mark.parametrize("command", ["evaluate", "fit"])
def test_ranks_on_cpus_of_different_kinds_are_refused(command: str, tmp_path: Path) -> None:
    inputs = write_inputs(tmp_path, "regression", 300, 3, 2, 1)
    output = tmp_path / "output.h5"
    words = inputs.arguments if command == "evaluate" else [inputs.data, "--model", "regression", "--inducing", 3]
    outcome = scripted(
        tmp_path,
        "import os\n"
        "if os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK')) == '1':\n"
        "    os.environ['MPIGP_INSTRUCTION_SET'] = 'baseline'\n"
        "from mpigp.cli import main\n"
        "main()\n",
        command, *words, "-o", output,
    )  # fmt: skip
    if native.instruction_set == "baseline":
        assert outcome.code == 0
        return
    assert outcome.code == 2, outcome
    (line,) = outcome.ours
    assert "different kinds of CPU" in line and "MPIGP_INSTRUCTION_SET=baseline" in line
    assert not output.exists()
