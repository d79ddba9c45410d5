"""A self-contained HTML page: its head, tiles, sections, style, and the script that draws its figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from mpigp.report import palette
from mpigp.report.markup import grid, note, section, table

COLORS = {"labels": palette.COLORS, "pale": palette.PALE, "inside": palette.INSIDE, "outside": palette.OUTSIDE,
           "phases": palette.PHASES}  # fmt: skip


def document(
    title: str,
    kind: str,
    tiles: Sequence[tuple[str, str]],
    sections: Sequence[str],
    script: str,
    drawn: Mapping[str, Any],
) -> str:
    """Return the page.

    tiles : names and values of the figures that matter most;   sections : HTML
    script : draws the figures of `drawn`, with the functions of drawing.js
    """
    shown = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    data = json.dumps({"colours": COLORS, **drawn}, separators=(",", ":"), allow_nan=False)
    return Template(resource("mpigp.report", "page.html")).substitute(
        title=escape(title),
        kind=kind,
        tiles=f'<dl class="tiles">{shown}</dl>',
        sections="\n".join(sections),
        style=resource("mpigp.report", "page.css"),
        script=resource("mpigp.report", "drawing.js") + script,
        data=data.replace("<", "\\u003c"),  # fit to stand in a script element
    )


def resource(package: str, name: str) -> str:
    """Return a file that lies in a package."""
    return files(package).joinpath(name).read_text("utf-8")


def made(found: Mapping[str, Any]) -> str:
    """Return the section on how something was made: `command`, `machine` and `versions`, as far as they are known."""
    if not found:
        return section("How it was made", note("The file does not tell."))
    command = f"<pre>{escape(str(found['command']))}</pre>" if "command" in found else ""
    lists = (found.get(key, {}) for key in ("machine", "versions"))
    tables = [table((str(name), str(value)) for name, value in each.items()) for each in lists]
    return section("How it was made", command, grid("two", *tables))
