"""The errata of the tutorial, by the script that proves them."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.support.launching import ROOT, start

SCRIPT = ROOT / "docs" / "errata.py"


@pytest.fixture(scope="module")
def errata() -> ModuleType:
    spec = importlib.util.spec_from_file_location("errata", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["errata"] = module
    spec.loader.exec_module(module)
    return module


def test_every_mistake_is_one_and_every_correction_right(errata: ModuleType) -> None:
    findings = list(errata.mistakes())
    assert len(findings) == 8
    for finding in findings:
        assert finding.printed > 1e-2, finding
        assert finding.corrected < 1e-9, finding


def test_the_others_are_right_as_printed(errata: ModuleType) -> None:
    findings = list(errata.right_as_printed())
    assert findings
    for finding in findings:
        assert finding.printed < 1e-9, finding


@pytest.mark.parametrize("finding", [("", 1e-3, 0.0), ("", 1.0, 1e-8), ("", 1e-8, None)])
def test_what_is_not_proven_is_told(errata: ModuleType, finding: tuple) -> None:
    assert not errata.proven(errata.Finding(*finding))


def test_as_a_script() -> None:
    outcome = start(sys.executable, SCRIPT)
    assert outcome.code == 0, outcome
    assert "8 of them mistaken" in outcome.stdout
