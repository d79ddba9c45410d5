"""`--hosts` and `--hostfile`, and the machines that answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpigp.errors import InputError
from mpigp.launch import hosts
from mpigp.launch.hosts import Host, answering, parse_hosts, read_hostfile
from tests.support.launching import run


def test_hosts_with_and_without_numbers() -> None:
    assert parse_hosts("h1:2,h2") == [Host("h1", 2), Host("h2", 1)]


@pytest.mark.parametrize("text", ["", "h1:", "h1:0", "h1:two", "h1,,h2"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no host: write NAME:RANKS"):
        parse_hosts(text)


def test_a_hostfile_of_each_mpi(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# the rack\nh1 slots=2\n\nh2:3  # the new one\nh3 slots = 4 max_slots=8\nh4\n")
    assert read_hostfile(str(path)) == [Host("h1", 2), Host("h2", 3), Host("h3", 4), Host("h4", 1)]


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "h1 slots=0\n", "h1 slot=4\n", b"\xff\xfe"])
def test_a_hostfile_without_hosts_is_refused(text: str | bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=str(path)):
        read_hostfile(str(path))


def test_machines_answer_that_can_be_logged_in_to_and_reach_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login alone is not enough, nor is a name that nobody has."""
    monkeypatch.setattr(hosts, "PATIENCE", 4.0)
    monkeypatch.setattr(hosts, "is_here", lambda host: host.name == "here")
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\n[ "$1" = 127.0.0.2 ] || exec sh -c "$2"\n')
    agent.chmod(0o755)
    asked = [Host("here", 1), Host("localhost", 2), Host("127.0.0.2", 1), Host("nobody.invalid", 1)]
    assert answering(asked, {"PRTE_MCA_plm_ssh_agent": str(agent)}) == asked[:2]


def test_machines_that_do_not_take_the_ranks_are_refused(tmp_path: Path) -> None:
    outcome = run(None, "--hosts", "h1:2,h2:1", "--ranks", 4, "info", tmp_path)
    assert (outcome.code, len(outcome.ours)) == (2, 1), outcome
    assert "--ranks: is 4, but the machines take 3" in outcome.stderr
