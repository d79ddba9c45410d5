"""Latency and bandwidth between ranks: those of known networks, or as `mpigp scaling probe` measured them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from mpigp.errors import InputError


class Interconnect(NamedTuple):
    """latency : seconds of a short message one way;   bandwidth : bytes in a second;   source : of the two numbers."""

    name: str
    latency: float
    bandwidth: float
    source: str


RATES = {  # name: latency, Gb/s of the standard, where the latency is from
    "ethernet-10g": (25e-6, 10, "typical of MPI over TCP"),
    "ethernet-100g": (15e-6, 100, "typical of MPI over TCP"),
    "infiniband-hdr": (1.2e-6, 200, "typical of MPI across a switch"),
    "slingshot": (2e-6, 200, "typical of MPI on Slingshot 11"),
}
NETWORKS = {
    name: Interconnect(name, latency, rate * 1e9 / 8, f"bandwidth: the line rate, {rate} Gb/s; latency: {source}")
    for name, (latency, rate, source) in RATES.items()
}


def find_interconnect(name: str) -> Interconnect:
    """Return the network of this name, or what a probe wrote to a file of this name."""
    if name in NETWORKS:
        return NETWORKS[name]
    path = Path(name)
    if not path.exists():
        raise InputError(
            f"`interconnect`: {name} is neither a file of `mpigp scaling probe` nor one of {', '.join(NETWORKS)}"
        )
    try:
        probe = json.loads(path.read_text("utf-8"))
        measured = Interconnect(path.name, float(probe["latency"]), float(probe["bandwidth"]), "measured by a probe")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{name}: is no file of `mpigp scaling probe`: give one, or a network's name") from error
    return checked(measured)


def checked(interconnect: Interconnect) -> Interconnect:
    """Refuse numbers that no network has."""
    if not (0 <= interconnect.latency < float("inf") and interconnect.bandwidth > 0):
        raise InputError(
            f"{interconnect.name}: has a latency of {interconnect.latency:g} s and {interconnect.bandwidth:g} bytes/s: "
            "give a latency ≥ 0 in seconds and a bandwidth > 0 in bytes per second"
        )
    return interconnect
