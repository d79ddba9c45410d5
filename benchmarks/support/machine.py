"""What a measurement ran on: the processor and the versions, for the head of a result file."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("mpigp", "numpy", "scipy", "h5py", "mpi4py")


def describe() -> dict[str, object]:
    """Return the processor, its cores, the memory, the versions and the date."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def available_memory() -> int:
    """Return the bytes that a new process can take without swapping."""
    return int(_field("/proc/meminfo", "MemAvailable").split()[0]) * 1024


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
