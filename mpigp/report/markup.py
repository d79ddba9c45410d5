"""Pieces of HTML: numbers for reading, tables, drop-down lists, and places for figures."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def number(value: float, digits: int = 5) -> str:
    """Return a number for reading: of whole numbers and large ones all that is before the point, else some digits."""
    if abs(value) < 1e9 and (float(value).is_integer() or abs(value) >= 10**digits):
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:,.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Return seconds as a person says them."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def section(title: str, *parts: str) -> str:
    return "\n".join([f"<section>\n<h2>{title}</h2>", *(part for part in parts if part), "</section>"])


def grid(kind: str, *parts: str) -> str:
    """Return parts side by side: `two`, `three`, or `wide`, the first twice as wide as the second."""
    return f'<div class="grid {kind}">{"".join(parts)}</div>'


def stack(*parts: str) -> str:
    """Return parts one below the other."""
    return f'<div class="stack">{"".join(parts)}</div>'


def note(words: str) -> str:
    """Return a paragraph; the words are HTML."""
    return f'<p class="note">{words}</p>' if words else ""


def figure(name: str, caption: str, controls: str = "") -> str:
    """Return the place of a figure, to be filled by the script."""
    controls = f'<div class="controls">{controls}</div>' if controls else ""
    return f'<figure id="{name}"><figcaption>{escape(caption)}</figcaption>{controls}</figure>'


def table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...] = ()) -> str:
    """Return a table whose first column names its rows; with a head, the other columns are numbers."""
    number = ' class="number"' if head else ""
    top = "".join(f"<th{number if place else ''}>{escape(name)}</th>" for place, name in enumerate(head))
    top = f"<thead><tr>{top}</tr></thead>" if head else ""
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>{''.join(f'<td{number}>{escape(cell)}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    return f'<div class="table"><table>{top}<tbody>{body}</tbody></table></div>'


def choice(name: str, label: str, options: Iterable[tuple[int, str]], chosen: int) -> str:
    """Return a drop-down list."""
    items = "".join(
        f'<option value="{value}"{" selected" if value == chosen else ""}>{escape(words)}</option>'
        for value, words in options
    )
    return f'<label>{label} <select id="{name}">{items}</select></label>'
