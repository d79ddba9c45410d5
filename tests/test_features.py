"""What the README claims beside others: its column of mpigp is what the command there prints."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

import pytest
from launching import ROOT, start

COMMAND = "python -m benchmarks.features"


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


def test_our_column_is_what_the_command_prints() -> None:
    outcome = start(sys.executable, "-m", "benchmarks.features", cwd=ROOT, timeout=120)
    assert outcome.code == 0, outcome
    printed = cells(outcome.stdout)
    claimed = {what: row for what, row in cells((ROOT / "README.md").read_text()).items() if COMMAND in row[-1]}
    assert claimed
    for what, row in claimed.items():
        assert row[0] == printed[what][0] == "yes", what


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
        found = {"version": "1", "gplvm": "G", "communicator": False, "bits": bits[int(command[-1]) - 1]}
        line = features.json.dumps(found)
        return features.subprocess.CompletedProcess(command, 0, f"noise\n{line}\n", "")

    monkeypatch.setattr(features.subprocess, "run", answered)
    table = cells(features.table({"GPy": features.ask("gpy", "python")}))
    assert table["the same bits with one thread and two"] == [told]
    assert table["models take a communicator of MPI"] == ["no"]
