"""Mutated files: no traceback, no exit code but 0 and 2, no output harmed, one line that says what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.launching import ROOT

FILES, SEED = 250, os.environ.get("MPIGP_FUZZ_SEED", "14")  # CI runs two seeds


@pytest.mark.slow
def test_mutated_files_are_read_or_refused() -> None:
    words = [sys.executable, "-m", "tests.fuzz", "--files", str(FILES), "--seed", SEED]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{FILES} files, 0 faults" in ended.stdout
