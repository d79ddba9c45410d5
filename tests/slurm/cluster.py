"""A real Slurm with four virtual nodes, n1 to n4, in a folder of its own: nothing of the machine is changed."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.launching import LAUNCHERS, end_marked, start

NODES, CPUS = 4, 4
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "setpriv")
SBIN = "/usr/sbin:/sbin"  # where the daemons are
UP = 300  # seconds for the daemons to come up
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")
# A requeued job waits until its credential has expired, and it is the scheduler's turn: here, a few seconds. A job that
# has ended is told of for an hour.
CONFIGURATION = """\
ClusterName=mpigp
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=20
MinJobAge=3600
NodeName=n[1-{nodes}] NodeHostName={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Return why there can be no cluster here, or nothing."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}") is None]
    return f"there is no {', '.join(absent)}: apt install slurm-wlm munge" if absent else ""


class Job(NamedTuple):
    """What Slurm knows of a job."""

    number: str
    state: str
    code: int
    restarts: int
    nodes: int


class Cluster:
    """Submits, watches and cancels jobs.

    environment : of every command and job; its PATH begins with the folder of `python`
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = folder / "slurm.conf"

    def environment(self, python: str = sys.executable, **more: str) -> dict[str, str]:
        """Return the environment of a user whose mpigp and MPI are those beside this Python."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
        return inherited | {
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}:{SBIN}",
            "SLURM_CONF": str(self.configuration),
            # Open MPI refuses root unless told; its ranks, of all nodes on this machine, are more than the cores.
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            # MPICH's other netmod, UCX, has addresses that Slurm's pmi2 sometimes fails to take apart.
            "MPIR_CVAR_CH4_NETMOD": "ofi",
            **more,
        }

    def call(self, *words: object, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """Run a command of Slurm; return what it prints."""
        outcome = start(*words, environment=environment or self.environment(), cwd=cwd)
        assert outcome.code == 0, (words, outcome)
        return outcome.stdout

    def sbatch(self, *words: object, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """Submit a job; return its number."""
        return self.call("sbatch", "--parsable", *words, environment=environment, cwd=cwd).strip()

    def known(self, number: str) -> dict[str, str]:
        """Return all that Slurm tells of a job."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.call("scontrol", "--oneliner", "show", "job", number)))

    def job(self, number: str) -> Job:
        """Return what is to be known of a job."""
        known = self.known(number)
        return Job(number, known["JobState"], int(known["ExitCode"].partition(":")[0]), int(known["Restarts"]),
                   int(known["NumNodes"].partition("-")[0]))  # fmt: skip

    def wait(self, number: str, seconds: float = 600) -> Job:
        """Wait for the end of a job; after so many seconds cancel it and fail."""
        with suppress(TimeoutError):
            wait_until(lambda: self.job(number).state in ENDED, seconds)
            return self.job(number)
        self.call("scancel", number)
        raise AssertionError(f"not done after {seconds:g} s: {self.job(number)}")

    def launched(self, number: str) -> int:
        """Return on how many nodes a step of the job was launched."""
        step = f"launch task StepId={self.known(number)['JobId']}.0 request"
        return sum(step in log.read_text() for log in self.folder.glob("slurmd-*.log"))


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition, not for ever."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.2)


def free_ports(count: int) -> int:
    """Return the first of so many ports, one after another, that nobody listens at; tests beside these get others."""
    for first in range(21000 + os.getpid() % 1000 * count, 32000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as each:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    each.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports")


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Start the daemons; end them, and all that they started, at the end."""
    cluster = Cluster(folder)
    first = free_ports(NODES + 1)
    cluster.configuration.write_text(
        CONFIGURATION.format(folder=folder, host=platform.node().partition(".")[0], control=first, first=first + 1,
                             last=first + NODES, nodes=NODES, cpus=CPUS)
    )  # fmt: skip
    (folder / "state").mkdir()
    for number in range(1, NODES + 1):
        (folder / f"spool-n{number}").mkdir()
        (folder / f"tmp-n{number}").mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    daemons: list[subprocess.Popen[bytes]] = []

    def daemon(*words: str) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", *words]  # also when these tests are killed
        with (folder / "daemons.log").open("ab") as log:
            daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=cluster.environment(), start_new_session=True))  # fmt: skip

    try:
        daemon("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge)
        wait_until((folder / "munge.socket").exists, UP)
        daemon("slurmctld", "-D")
        for number in range(1, NODES + 1):
            daemon("slurmd", "-D", "-N", f"n{number}")
        wait_until(lambda: idle(cluster) == NODES, UP)
        yield cluster
        cluster.call("scancel", "--user=root")
    except TimeoutError:
        raise AssertionError((folder / "daemons.log").read_text()) from None
    finally:
        for process in reversed(daemons):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
        end_marked(f"SLURM_CONF={cluster.configuration}")
        for process in daemons:
            process.wait(5)


def idle(cluster: Cluster) -> int:
    """Return how many nodes wait for jobs; none while the controller does not answer."""
    outcome = start("sinfo", "--noheader", "--states=idle", "--format=%D", environment=cluster.environment())
    return sum(map(int, outcome.stdout.split())) if outcome.code == 0 else 0
