"""The machines of a job: `--hosts` and `--hostfile`, and which of them answer."""

import os
import re
import shlex
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mpigp.errors import InputError

PATIENCE = 10.0  # seconds for a machine to answer
# The variables that name the program which mpiexec starts its daemons with, in place of ssh.
AGENTS = ("PRTE_MCA_plm_ssh_agent", "PRTE_MCA_plm_rsh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC")
LINE = re.compile(r"(?P<name>[^\s:]+)(:(?P<slots>\d+)|(\s+slots\s*=\s*(?P<more>\d+)))?(\s+max[-_]slots\s*=\s*\d+)?")


class Host(NamedTuple):
    """A machine, and how many ranks it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> list[Host]:
    """Return the hosts of `h1:2,h2:2`; one without a number takes one rank."""
    return [_host(item, text) for item in text.split(",")]


def read_hostfile(path: str) -> list[Host]:
    """Return the hosts of a file with one on each line: `h1 slots=2`, or `h1:2`; `#` begins a comment."""
    try:
        lines = [line.partition("#")[0].strip() for line in Path(path).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}: check the path of --hostfile") from None
    hosts = [_host(line, path) for line in lines if line]
    if not hosts:
        raise InputError(f"{path}: names no host: write one on each line, like `h1 slots=2`")
    return hosts


def _host(text: str, where: str) -> Host:
    match = LINE.fullmatch(text.strip())
    slots = int(match["slots"] or match["more"] or 1) if match else 0
    if match is None or slots < 1:
        raise InputError(f"{where}: {text!r} is no host: write NAME:RANKS, like h1:2")
    return Host(match["name"], slots)


def is_here(host: Host) -> bool:
    """Return whether a host is this machine."""
    return host.name in ("localhost", "127.0.0.1", socket.gethostname(), socket.gethostname().partition(".")[0])


def answering(hosts: Sequence[Host], environment: Mapping[str, str] = os.environ) -> list[Host]:
    """Return this machine, and those that can be logged in to and reach this one back, as mpiexec's daemons must."""
    agent = next((environment[name] for name in AGENTS if environment.get(name)), "ssh -o BatchMode=yes")
    answers: dict[Host, bool] = {}

    def ask(host: Host) -> None:
        answers[host] = is_here(host) or _answers(host, agent.partition(":")[0])

    threads = [threading.Thread(target=ask, args=(host,), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    return [host for host in hosts if answers.get(host)]


def _answers(host: Host, agent: str) -> bool:
    """Return whether a process of that host can connect to a port of this one."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route, socket.socket() as server:
        route.connect((host.name, 9))  # nothing is sent: it tells the address that the host sees of this machine
        server.bind(("", 0))
        server.listen(1)
        server.settimeout(PATIENCE)
        address, port = route.getsockname()[0], server.getsockname()[1]
        command = [*shlex.split(agent), host.name, f"bash -c 'exec 3<>/dev/tcp/{address}/{port}'"]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True) as process:
            try:
                server.accept()[0].close()
                return True
            finally:
                process.kill()
    return False
