"""Several hosts on one machine: network namespaces on a bridge, each with a name and processes of its own.

It needs root, and `ip` of iproute2. mpiexec starts its daemons there by tests/hosts/agent instead of ssh.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TextIO

AGENT = Path(__file__).with_name("agent")
RIGS = 200  # at most, on one machine at a time


def missing() -> str:
    """Return why there can be no hosts here; empty where there can."""
    if os.geteuid() != 0:
        return "hosts need root"
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return "hosts need iproute2 and util-linux"
    return "" if _ip("netns", "list").returncode == 0 else "this kernel has no network namespaces"


def _ip(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, timeout=60)


class Rig:
    """Hosts gR-1 to gR-N, up from now on until `down`; R is a number that no other rig of this machine has."""

    def __init__(self, count: int) -> None:
        self._lock, number = self._free()
        self.names = [f"g{number}-{host}" for host in range(1, count + 1)]
        self.bridge, network = f"mpigpbr{number}", f"10.78.{number}"
        self._clear()
        table = "127.0.0.1 localhost\n" + "".join(f"{network}.{at + 1} {name}\n" for at, name in enumerate(self.names))
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{network}.254/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for at, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("link", "add", f"mpigp{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"mpigp{name}", "master", self.bridge, "up")
            _ip("-n", name, "addr", "add", f"{network}.{at + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            folder = Path("/etc/netns", name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(table)

    @staticmethod
    def _free() -> tuple[TextIO, int]:
        """Return the lock of the first number that is free, and the number; the lock ends with this process."""
        for number in range(RIGS):
            lock = open(f"/run/mpigp-hosts-{number}.lock", "w")  # noqa: SIM115
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock, number
            lock.close()
        raise OSError("there are too many rigs")

    def down(self) -> None:
        """Take all hosts away."""
        self._clear()
        self._lock.close()

    def _clear(self) -> None:
        """Take away what is there, also of an earlier run that was killed."""
        for name in self.names:
            self.kill(name)
            _ip("netns", "del", name)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
        _ip("link", "del", self.bridge)

    def command(self, *words: object) -> list[str]:
        """Return the words that run a command on the first host."""
        return [str(AGENT), self.names[0], f"exec {shlex.join(map(str, words))}"]

    def cut(self, name: str) -> None:
        """Take the link of a host down."""
        _ip("link", "set", f"mpigp{name}", "down")

    def heal(self) -> None:
        """Take the links of all hosts up."""
        for name in self.names:
            _ip("link", "set", f"mpigp{name}", "up")

    def kill(self, name: str) -> None:
        """Kill every process of a host at once."""
        for process in _ip("netns", "pids", name).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
