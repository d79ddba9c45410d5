"""Several hosts on one machine: network namespaces on a bridge, each with a name and processes of its own.

It needs root, and `ip` of iproute2. mpiexec starts its daemons there by tests/hosts/agent instead of ssh.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

AGENT = Path(__file__).with_name("agent")
BRIDGE, NETWORK = "mpigpbr", "10.78.0"


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
    """Hosts g1 to gN, up from now on until `down`."""

    def __init__(self, count: int) -> None:
        self.names = [f"g{number}" for number in range(1, count + 1)]
        self.down()
        table = "127.0.0.1 localhost\n" + "".join(f"{NETWORK}.{at + 1} {name}\n" for at, name in enumerate(self.names))
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for at, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("link", "add", f"mpigp{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", f"mpigp{name}", "master", BRIDGE, "up")
            _ip("-n", name, "addr", "add", f"{NETWORK}.{at + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")
            folder = Path("/etc/netns", name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text(table)

    def down(self) -> None:
        """Take all hosts away, also those that an earlier run left."""
        for name in self.names:
            self.kill(name)
            _ip("netns", "del", name)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)
        _ip("link", "del", BRIDGE)

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
