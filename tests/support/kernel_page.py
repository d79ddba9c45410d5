"""The example of docs/kernels.md, as a reader would have it: a module in a folder, and commands."""

from __future__ import annotations

from pathlib import Path

from tests.support.launching import ROOT
from tests.support.pages import blocks

NAME = "gaussian:Gaussian"


def write_module(folder: Path) -> Path:
    """Write the page's module, as the page names it, to a folder; return the folder."""
    (block,) = [block for block in blocks(ROOT / "docs" / "kernels.md") if block.tag == "python"]
    assert block.file == "gaussian.py"
    (folder / block.file).write_text(block.text + "\n")
    return folder
