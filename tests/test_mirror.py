"""The tests mirror the package: every folder of the one is a folder of the other."""

from __future__ import annotations

from pathlib import Path

from tests.support.launching import ROOT

# What is tested, or helps, beside it.
BESIDE = {"benchmarks", "docs", "experiments", "fuzz", "hosts", "recorded", "slurm", "support"}


def packages(top: Path) -> set[Path]:
    """Return the folders of Python below one, relative to it."""
    return {path.parent.relative_to(top) for path in top.rglob("__init__.py")}


def test_every_package_has_a_folder_of_tests() -> None:
    for package in packages(ROOT / "mpigp"):
        assert list((ROOT / "tests" / package).glob("test_*.py")), package


def test_every_folder_of_tests_has_a_package() -> None:
    assert {path for path in packages(ROOT / "tests") if path.parts[:1] and path.parts[0] not in BESIDE} <= packages(
        ROOT / "mpigp"
    )
