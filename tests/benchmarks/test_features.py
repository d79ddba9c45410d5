"""What the README claims beside others is what the command there prints."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.support.launching import ROOT, start

COMMAND = "python -m benchmarks.features"
PEERS = {"gpy": "GPy", "gpflow": "GPflow", "gpytorch": "GPyTorch"}


def cells(text: str) -> dict[str, list[str]]:
    """Return the rows of a table in Markdown, by their first cell."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture(scope="module")
def features() -> ModuleType:
    spec = importlib.util.spec_from_file_location("features", ROOT / "benchmarks" / "features.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(*options: str) -> dict[str, list[str]]:
    """Return the table that the command prints."""
    outcome = start(sys.executable, "-m", "benchmarks.features", *options, cwd=ROOT, timeout=600)
    assert outcome.code == 0, outcome
    return cells(outcome.stdout)


def claimed() -> dict[str, list[str]]:
    """Return the rows of the README's table that are by this command."""
    found = {what: row for what, row in cells((ROOT / "README.md").read_text()).items() if COMMAND in row[-1]}
    assert len(found) == 4
    return found


@pytest.mark.slow
def test_our_column_is_what_the_command_prints() -> None:
    table = printed()
    for what, row in claimed().items():
        assert row[0] == table[what][0] == "yes", what
    assert table["the same bits on one rank and on two"] == ["yes"]


@pytest.mark.slow
@pytest.mark.long
def test_the_columns_of_the_peers_are_what_the_command_prints() -> None:
    """Their versions too, which stand in the table's head."""
    pythons = {peer: os.environ.get(f"{peer.upper()}_PYTHON") for peer in PEERS}
    if missing := [peer for peer, python in pythons.items() if not python]:
        pytest.skip(f"{missing[0].upper()}_PYTHON names no Python")
    table = printed(*(word for peer, python in pythons.items() for word in ("--peer", peer, "--python", str(python))))
    for what, row in claimed().items():
        assert row[1:4] == table[what][1:4], what
    heads = [f"{name} {version}" for name, version in zip(PEERS.values(), table["version"][1:], strict=True)]
    assert cells((ROOT / "README.md").read_text())[""][1:4] == heads


def test_no_claim_is_without_a_command() -> None:
    rows = cells((ROOT / "README.md").read_text())
    for what, row in rows.items():
        if what and not what.startswith("-"):
            assert re.fullmatch(r"`(python|mpigp) [^`]+`", row[-1]), what


@pytest.mark.parametrize(("bits", "told"), [(["a", "a"], "yes"), (["a", "b"], "no")])
def test_peers_whose_bits_differ_are_told_from_those_whose_do_not(
    bits: list[str], told: str, features: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answered(command: list[str], **_: Any) -> Any:
        found = {"version": "1", "gplvm": "G", "communicator": False, "finite": True}
        line = features.json.dumps(found | {"bits": bits[int(command[-1]) - 1]})
        return features.subprocess.CompletedProcess(command, 0, f"noise\n{line}\n", "")

    monkeypatch.setattr(features.subprocess, "run", answered)
    table = cells(features.table({"GPy": features.ask("gpy", "python")}))
    assert table["the same bits on one thread and on two"] == [told]
    assert table["models take an MPI communicator"] == ["no"]
