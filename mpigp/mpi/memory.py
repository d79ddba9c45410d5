"""The memory that a rank may take, and whether its rows fit: limits of the process, of its cgroup, and the machine."""

import math
import platform
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from mpigp.types import Comm

CHOICES = ("auto", "all", "stream")
HELP = "hold a rank's rows, or read them from the file in every round (default: as they fit)"
SHARE = 0.7  # of what is free that rows may take

PROCESS = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}  # limits, and what counts against them
CGROUPS = {  # by version: where they are, the limit, what counts against it, and what of that can be given back
    1: ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
}


class Choice(NamedTuple):
    """Whether rows are streamed, and why: a line to print, empty where the user said so."""

    stream: bool
    why: str

    def tell(self, comm: Comm) -> None:
        """Print it on rank 0: once all input is known to be good, since what is refused is refused in one line."""
        if comm.rank == 0 and self.why:
            print(self.why)


def choose(comm: Comm, choice: str, needed: float) -> Choice:
    """Return the same of the CHOICES on all ranks, for that whose memory is shortest. Called by all ranks, each with
    the bytes `needed` to hold its rows."""
    if choice != "auto":
        return Choice(choice == "stream", "")
    each_rank = comm.allgather((needed, available(comm)))
    needed, free = max(each_rank, key=lambda each: each[0] / max(each[1], 1.0))
    stream = needed > SHARE * free
    how = "streamed from the file" if stream else "in memory"
    return Choice(stream, f"rows: {how} ({needed / 1e6:.3g} MB, of {free / 1e6:.3g} MB that a rank may take)")


def available(comm: Comm) -> float:
    """Return the bytes that this rank may still take; ranks on a node share what is the node's. Called by all ranks."""
    nodes = comm.allgather(platform.node())
    return max(0.0, min(of_process(), of_node() / nodes.count(platform.node())))


def of_process(root: Path = Path("/")) -> float:
    """Return the bytes that the limits of this process leave it."""
    taken = _table(root / "proc/self/status")
    limits = {name: resource.getrlimit(kind)[0] for kind, name in PROCESS.items()}
    return min(math.inf if limit == resource.RLIM_INFINITY else limit - 1024 * taken.get(name, 0)
               for name, limit in limits.items())  # fmt: skip


def of_node(root: Path = Path("/")) -> float:
    """Return the bytes that the machine, or the cgroup of this process, leaves its processes together."""
    free = _table(root / "proc/meminfo").get("MemAvailable")
    return min([math.inf if free is None else 1024.0 * free, *_of_cgroups(root)])


def _of_cgroups(root: Path) -> Iterator[float]:
    """Yield the bytes that each cgroup around this process leaves it; inside a container, paths begin at its own."""
    for line in lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        where, limit_name, taken_name, spare_name = CGROUPS[1 if controllers else 2]
        place = Path(path).relative_to("/")
        for folder in (place, *place.parents):
            group = root / where / folder
            limit, taken = (next(iter(lines(group / name)), "") for name in (limit_name, taken_name))
            if limit.isdigit() and taken.isdigit():  # "max" is none
                yield float(limit) - float(taken) + _table(group / "memory.stat").get(spare_name, 0)


def lines(path: Path) -> list[str]:
    """Return the lines of a file; none where there is no such file."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _table(path: Path) -> dict[str, int]:
    """Return the numbers of a file by the word before them: `name: number kB`, or `name number`."""
    words = [line.replace(":", " ").split() for line in lines(path)]
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}
