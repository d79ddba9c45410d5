"""The rings of heartbeats: who monitors whom."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from mpigp.mpi import heartbeat
from mpigp.mpi.heartbeat import ADDRESS, STALL, Address, Heartbeat, neighbors


def ranks(*hosts: str) -> list[Address]:
    """Return the addresses of ranks 0, 1, ... on these hosts."""
    return [Address(b"", rank, 5000 + rank, 100 + rank, 7, host.encode()) for rank, host in enumerate(hosts)]


def before(addresses: list[Address]) -> dict[int, list[int]]:
    """Return the ranks that each one monitors."""
    return {each.rank: [ring.before.rank for ring in neighbors(addresses, each)] for each in addresses}


def test_ranks_of_a_machine_are_in_a_ring_and_so_are_the_first_of_all_machines() -> None:
    assert before(ranks("a", "a", "a", "b", "b", "c")) == {0: [2, 5], 1: [0], 2: [1], 3: [4, 0], 4: [3], 5: [3]}


def test_a_rank_alone_monitors_nobody() -> None:
    assert before(ranks("a")) == {0: []}


@pytest.mark.parametrize("hosts", ["aabbcc", "abcabc", "aaaaaa", "abbbbb", "abcdef"])
def test_everybody_is_monitored_and_sends_to_those_that_monitor_it(hosts: str) -> None:
    addresses = ranks(*hosts)
    monitored = {rank for others in before(addresses).values() for rank in others}
    assert monitored == set(range(len(hosts)))
    pairs = {(each.rank, ring.before.rank) for each in addresses for ring in neighbors(addresses, each)}
    assert pairs == {(ring.behind.rank, each.rank) for each in addresses for ring in neighbors(addresses, each)}


def test_without_a_rank_that_failed_the_next_takes_its_place() -> None:
    addresses = [each for each in ranks("a", "a", "b", "b") if each.rank != 2]
    assert before(addresses) == {0: [1, 3], 1: [0], 3: [0]}


class Gathered:
    """A communicator of two ranks, of which the other is on some host."""

    rank, size = 0, 2

    def __init__(self, host: str) -> None:
        self.host = host

    def Allgather(self, mine: np.ndarray, gathered: np.ndarray) -> None:
        own = Address(*ADDRESS.unpack(mine.tobytes()))
        host = self.host.encode() or own.host
        gathered[:] = mine, np.frombuffer(ADDRESS.pack(*own._replace(rank=1, host=host)), np.uint8)


@pytest.mark.parametrize(
    ("host", "asked", "timeout"), [("", None, 0), ("elsewhere.invalid", None, STALL), ("elsewhere.invalid", 7.0, 7.0)]
)
def test_ranks_on_several_machines_monitor_each_other_unless_told_otherwise(
    host: str, asked: float | None, timeout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "confirm", lambda comm: None)
    with closing(Heartbeat(Gathered(host), asked)) as found:
        assert found.timeout == timeout
        assert found._thread.is_alive() is (timeout > 0)
