"""A self-contained HTML page: its parts, its style, and the script that draws its figures."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from mpigp.report.figures import Figures


def document(title: str, kind: str, tiles: Iterable[tuple[str, str]], sections: Sequence[str], figures: Figures) -> str:
    """Return the page; tiles are the names and values of its headlines, sections are HTML."""
    headlines = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    style, script, page = (
        files("mpigp.report").joinpath(name).read_text("utf-8") for name in ("page.css", "figures.js", "page.html")
    )
    data = json.dumps(figures.json(), separators=(",", ":"), allow_nan=False)
    return Template(page).substitute(
        title=escape(title), kind=kind, tiles=f'<dl class="tiles">{headlines}</dl>', sections="\n".join(sections),
        style=style, script=script, data=data.replace("<", "\\u003c"),  # fit to stand in a script element
    )  # fmt: skip


def provenance(made: Mapping[str, Any]) -> str:
    """Return the section on how something was made: `command`, `machine` and `versions`, as far as they are known."""
    if not made:
        return section("How it was made", note("The file does not tell."))
    command = f"<pre>{escape(str(made['command']))}</pre>" if "command" in made else ""
    lists = (made.get(key, {}) for key in ("machine", "versions"))
    tables = [table((str(name), str(value)) for name, value in each.items()) for each in lists]
    return section("How it was made", command, grid("two", *tables))


def number(value: float, digits: int = 5) -> str:
    """Return a number for reading: integers and large numbers without decimals, others with some digits."""
    if abs(value) < 1e9 and (float(value).is_integer() or abs(value) >= 10**digits):
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:,.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def section(title: str, *parts: str) -> str:
    return "\n".join([f"<section>\n<h2>{title}</h2>", *(part for part in parts if part), "</section>"])


def grid(kind: str, *parts: str) -> str:
    """Return parts side by side: `two`, `three`, or `wide`, the first twice as wide as the second."""
    return f'<div class="grid {kind}">{"".join(parts)}</div>'


def note(words: str) -> str:
    """Return a paragraph; the words are HTML."""
    return f'<p class="note">{words}</p>' if words else ""


def figure(figures: Figures, name: str, controls: str = "") -> str:
    """Return the element in which the script draws a panel; nothing where there is no such panel."""
    if name not in figures.panels:
        return ""
    controls = f'<div class="controls">{controls}</div>' if controls else ""
    return f'<figure id="{name}"><figcaption>{escape(figures.panels[name].caption)}</figcaption>{controls}</figure>'


def table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = ()) -> str:
    """Return a table whose first column names its rows; with a head, the other columns are numbers."""
    kind = ' class="number"' if head else ""
    top = "".join(f"<th{kind if place else ''}>{escape(name)}</th>" for place, name in enumerate(head))
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    lines = ((name, "".join(f"<td{kind}>{escape(cell)}</td>" for cell in cells)) for name, *cells in rows)
    body = "".join(f"<tr><th>{escape(name)}</th>{cells}</tr>" for name, cells in lines)
    return f'<div class="table"><table>{top}<tbody>{body}</tbody></table></div>'


def choice(name: str, options: Iterable[tuple[int, str]], chosen: int) -> str:
    """Return a drop-down list with its name as a label."""
    items = ""
    for value, words in options:
        items += f'<option value="{value}"{" selected" if value == chosen else ""}>{escape(words)}</option>'
    return f'<label>{name} <select id="{name}">{items}</select></label>'
