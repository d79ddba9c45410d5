"""A rank that dies while the others are in MPI_Init: they end, with one line, also under plain mpiexec."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mpigp.launch.mpiexec import find_mpiexec, outlives
from tests.support.inputs import Inputs, write_inputs
from tests.support.launching import ROOT, Outcome, mpi_version, mpiexec, needed_flags, start

# The victim dies once all have come that far; the slow one takes long to get there.
CODE = """\
import os, signal, time
from mpigp.mpi import startup
rank = os.environ.get("OMPI_COMM_WORLD_RANK")
folder = os.path.dirname(__file__)
if rank is not None and "VICTIM" in os.environ:
    def initialize(initialize=startup.initialize):
        open(f"{folder}/{rank}.there", "w").close()
        if rank != os.environ["VICTIM"]:
            return initialize()
        while sum(name.endswith(".there") for name in os.listdir(folder)) < 3:
            time.sleep(0.02)
        time.sleep(1)  # for them to see it beside them
        os.kill(os.getpid(), signal.SIGKILL)
    startup.initialize = initialize
if rank is not None and rank == os.environ.get("SLOW"):
    def initialize(initialize=startup.initialize):
        time.sleep(3600)
    startup.initialize = initialize
"""


def evaluated(inputs: Inputs, folder: Path, **environment: str) -> Outcome:
    """Evaluate on three ranks of plain mpiexec, with fault tolerance."""
    (folder / "sitecustomize.py").write_text(CODE)
    needed = needed_flags(3, survive=True)
    words = [sys.executable, ROOT / "run.py", "evaluate", inputs.data, "--params", inputs.params]
    return start(find_mpiexec(), *needed, "-n", 3, *words, environment={"PYTHONPATH": str(folder), **environment})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return write_inputs(tmp_path_factory.mktemp("inputs"), "regression", 20, 3, 2, 1)


@pytest.mark.parametrize(("victim", "speaker"), [(0, 1), (2, 0)])
def test_a_rank_that_dies_in_mpi_init_ends_the_others(
    victim: int, speaker: int, inputs: Inputs, tmp_path: Path
) -> None:
    outcome = evaluated(inputs, tmp_path, VICTIM=str(victim))
    said = f"mpigp: rank {speaker}: rank {victim} of this machine ended while others were in MPI_Init: the job ends"
    assert outcome.code == 1 and said in outcome.ours, outcome


def test_mpi_init_may_not_take_for_ever(inputs: Inputs, tmp_path: Path) -> None:
    outcome = evaluated(inputs, tmp_path, SLOW="1", MPIGP_INIT_TIMEOUT="3")
    said = "mpigp: rank 0: MPI_Init did not finish within 3 s (MPIGP_INIT_TIMEOUT changes that): the job ends"
    assert said in outcome.ours and outcome.code == 1, outcome


@pytest.mark.parametrize("survive", [True, False])
def test_collectives_that_hide_failures_are_left_out_where_failures_are_to_be_survived(survive: bool) -> None:
    """Open MPI's HAN is chosen by itself where a communicator spans machines; a choice of the user's own counts."""
    program = "import os; from mpigp.mpi.communicator import connected; connected(); print(os.environ['OMPI_MCA_coll'])"
    environment = {"OMPI_MCA_mpi_ft_enable": "1"} if survive else {"OMPI_MCA_coll": "basic,self,libnbc"}
    outcome = start(sys.executable, "-c", program, environment=environment)
    assert outcome.stdout == ("^han\n" if survive else "basic,self,libnbc\n"), outcome


SLOW_TO_LEAVE = """\
import ctypes, os, sys, time
from mpigp.mpi import startup

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        function = self[name]
        if name != "MPI_Init_thread" or os.environ["OMPI_COMM_WORLD_RANK"] != "0":
            return function
        def slow(*words):
            code = function(*words)
            time.sleep(1)
            open(sys.argv[1], "w").close()
            return code
        return slow

startup.ctypes.CDLL = Library
startup.initialize()
assert os.path.exists(sys.argv[1])
"""


@pytest.mark.skipif(not outlives(mpi_version()), reason="Open MPI 5 crashes there")
def test_nobody_sends_messages_before_all_have_left_mpi_init(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLOW_TO_LEAVE)
    outcome = mpiexec(2, script, tmp_path / "left")
    assert outcome.code == 0, outcome


@pytest.mark.skipif(not outlives(mpi_version()), reason="Open MPI 5 has that driver")
@pytest.mark.parametrize(("chosen", "used"), [({}, "^ofi"), ({"OMPI_MCA_btl": "self"}, "self")])
def test_no_second_is_lost_in_a_driver_for_one_sided_messages(chosen: dict[str, str], used: str) -> None:
    code = "from mpigp.mpi.startup import initialize; initialize(); import os; print(os.environ['OMPI_MCA_btl'])"
    assert start(sys.executable, "-c", code, environment=chosen).stdout.strip() == used
