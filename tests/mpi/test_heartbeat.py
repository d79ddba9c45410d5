"""The rings of heartbeats: who monitors whom."""

from __future__ import annotations

import pytest

from mpigp.mpi.heartbeat import Address, neighbors


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
