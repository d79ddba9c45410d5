"""Latency and bandwidth between ranks: of some networks by name, or as `mpigp scaling probe` measured them."""

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


RATE = "bandwidth: the line rate of the standard"
NETWORKS = {
    each.name: each
    for each in (
        Interconnect("ethernet-10g", 25e-6, 1.25e9, f"{RATE} (10 Gb/s); latency: a usual one of MPI over TCP"),
        Interconnect("ethernet-100g", 15e-6, 12.5e9, f"{RATE} (100 Gb/s); latency: a usual one of MPI over TCP"),
        Interconnect("infiniband-hdr", 1.2e-6, 25e9, f"{RATE} (200 Gb/s); latency: a usual one of MPI across a switch"),
        Interconnect("slingshot", 2e-6, 25e9, f"{RATE} (Slingshot 11, 200 Gb/s); latency: a usual one of MPI"),
    )
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
        found = json.loads(path.read_text("utf-8"))
        measured = Interconnect(path.name, float(found["latency"]), float(found["bandwidth"]), "measured by a probe")
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
