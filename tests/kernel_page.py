"""The example of docs/kernels.md, as a reader would have it: a module in a folder, and commands."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
NAME = "gaussian:Gaussian"


def blocks(language: str) -> list[str]:
    """Return the page's blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def write_module(folder: Path) -> Path:
    """Write the page's module, as the page names it, to a folder; return the folder."""
    (code,) = blocks("python")
    assert "This is `gaussian.py`:" in PAGE.read_text()
    (folder / "gaussian.py").write_text(code)
    return folder
