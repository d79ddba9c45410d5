"""The language in which kernels are composed: `rbf + linear`, or `matern32[0:3] * periodic[hour](period=24) + bias`.

    expression := term {'+' term}
    term       := part {'*' part}
    part       := NAME ['[' item {',' item} ']'] ['(' KEY '=' NUMBER {',' KEY '=' NUMBER} ')']
    item       := INTEGER | INTEGER ':' INTEGER | column name

A range is half open, as in Python. A column name is a word of letters, digits, `_`, `.` and `-`, or any text in single
or double quotes, where a quote of the same sort is written twice. White space is free.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import groupby
from operator import index
from typing import SupportsIndex
from unicodedata import category, east_asian_width

from mpigp.errors import InputError

KINDS = ("rbf", "matern12", "matern32", "matern52", "rq", "periodic", "linear", "bias")
LATENT_KINDS = ("rbf", "linear", "bias")  # those whose ψ statistics are known
MOST_CHARACTERS, MOST_COLUMNS, MOST_NAMES = 2000, 100_000, 10  # of a text, in all its parts, listed in an error

WORD, INTEGER = r"\w[\w.-]*", r"[0-9]+"
QUOTED = r"'(?:[^']|'')*'(?!')" + r'|"(?:[^"]|"")*"(?!")'
VALUE, NUMBER = r"[^\s,()]+", r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
NEXT = rf"{WORD}|\S?"  # a word, a character, or the end
PRODUCTS = "a GPLVM takes products of rbf on different dimensions alone, as in rbf[0:2] * rbf[2]"

Column = int | str
Span = tuple[int, int]  # from the first character up to the one behind the last


class ExpressionError(InputError):
    """An expression that is refused: a line with the reason and the remedy, then its text, and carets below the place.

    A text that is too long is not shown; arguments of the wrong type have none.
    """


@dataclass(frozen=True)
class Part:
    """One kernel of an expression, and the columns of the data that it is a function of, in order; None for all.

    `period` is where a fit starts, in the data's units. `where` is the span of the part in the text it was parsed from,
    and `places` has that of each column; all columns of a range have the range's.
    """

    kind: str
    columns: tuple[Column, ...] | None
    period: float | None = None
    where: Span = field(default=(0, 0), compare=False, repr=False)
    places: tuple[Span, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        columns = "" if self.columns is None else f"[{_written(self.columns)}]"
        return self.kind + columns + ("" if self.period is None else f"(period={str(self.period).removesuffix('.0')})")


@dataclass(frozen=True, repr=False)
class Expression:
    """A sum of products of kernels: from `parse`, or from `RBF()` and the like by `+` and `*`.

    Its `str` is what `parse` takes for the same expression; `text` is what was parsed, empty if it was made in Python.
    """

    terms: tuple[tuple[Part, ...], ...]
    text: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check_length(str(self))

    def __str__(self) -> str:
        return " + ".join(" * ".join(map(str, term)) for term in self.terms)

    __repr__ = __str__

    def __add__(self, other: "Expression") -> "Expression":
        return _made(f"{self} + {other}") if isinstance(other, Expression) else NotImplemented

    def __mul__(self, other: "Expression") -> "Expression":
        if not isinstance(other, Expression):
            return NotImplemented
        return _made(" * ".join(f"({each})" if len(each.terms) > 1 else str(each) for each in (self, other)))

    def resolve(self, q: int, names: Sequence[str] | None) -> "Expression":
        """Return the expression with all columns as numbers, for data of q columns, which may have names."""
        source = self._with_text()
        numbers: dict[str, list[int]] = {}
        for number, name in enumerate([] if names is None else names):
            numbers.setdefault(name, []).append(number)
        terms = (tuple(_resolved(part, q, numbers, source.text) for part in term) for term in source.terms)
        return replace(source, terms=tuple(terms))

    def labels(self) -> list[list[str]]:
        """Return a unique name for each part of each term: `rbf`, or `rbf_1` and `rbf_2` where there are several."""
        total, seen = Counter(part.kind for term in self.terms for part in term), Counter[str]()

        def label(kind: str) -> str:
            seen[kind] += 1
            return f"{kind}_{seen[kind]}" if total[kind] > 1 else kind

        return [[label(part.kind) for part in term] for term in self.terms]

    def check_latent(self) -> None:
        """Refuse what a GPLVM cannot use: kernels without ψ statistics, and products but those of rbf side by side."""
        source = self._with_text()
        for term in source.terms:
            for number, part in enumerate(term):
                if problem := _not_latent(part, term, term[:number]):
                    raise _refusal(problem, source.text, part.where)

    def _with_text(self) -> "Expression":
        """Return the same expression with the text and the spans for errors to point to."""
        return self if self.text else parse(str(self))


def parse(text: str) -> Expression:
    """Return the expression that a text stands for; an error points to the place where it stands for none."""
    _check_length(text)
    reader = _Reader(text)
    terms = [[reader.part()]]
    while operator := reader.take(r"[+*]"):
        if operator == "+":
            terms.append([])
        terms[-1].append(reader.part())
    if character := reader.take(NEXT):
        remedy = "join kernels by + or *, and put columns before settings, as in periodic[3](period=24)"
        raise reader.refusal(f"unexpected {character!r}: {remedy}")
    return Expression(tuple(map(tuple, terms)), text)


class _Reader:
    """A text that is read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0  # of what was taken last
        self.columns_taken = 0

    def take(self, pattern: str) -> str:
        """Return what comes next behind white space if it matches, and go behind it; else return nothing."""
        match = re.compile(rf"\s*({pattern})").match(self.text, self.end)
        self.start, self.end = match.span(1) if match else (self.start, self.end)
        return match[1] if match else ""

    def refusal(self, problem: str, start: int | None = None) -> ExpressionError:
        """Return the error that points to what was taken last, or to all from a place on."""
        return _refusal(problem, self.text, (self.start if start is None else start, self.end))

    def wrong(self, remedy: str, opening: int) -> ExpressionError:
        """Return the error at the next word or character, or at the opening bracket if there is none."""
        if character := self.take(NEXT):
            return self.refusal(f"unexpected {character!r}: {remedy}")
        bracket = self.text[opening]
        problem = f"{bracket} is not closed: add {']' if bracket == '[' else ')'}"
        return _refusal(problem, self.text, (opening, opening + 1))

    def part(self) -> Part:
        before, kind = (self.start, self.end), self.take(WORD)
        start = self.start
        if not kind:
            raise self.no_part(before)
        if kind not in KINDS:
            own = "or name your own alone, as package.module:Name"
            known = f"choose among {', '.join(KINDS)}, {own}"
            raise self.refusal(f"unknown kernel {kind!r}: {_close(kind, KINDS)}{known}")
        columns, places = self.columns(kind) if self.take(r"\[") else (None, ())
        period = self.period(kind) if self.take(r"\(") else None
        return Part(kind, columns, period, (start, self.end), places)

    def no_part(self, before: Span) -> ExpressionError:
        """Return the error that no kernel comes next, given the span of the operator before it."""
        character, operator = self.take(NEXT), self.text[slice(*before)]
        if character == "(":
            return self.refusal("parentheses do not group kernels: write the product out, as in a * c + b * c")
        if character:
            problem = "no kernel stands before" if character in "+*" else "unexpected"
            return self.refusal(f"{problem} {character!r}: here goes a kernel, one of {', '.join(KINDS)}")
        if not operator:
            return self.refusal("the kernel is empty: write one, such as rbf + linear")
        return _refusal(f"no kernel follows {operator!r}: add one, or remove the {operator!r}", self.text, before)

    def columns(self, kind: str) -> tuple[tuple[Column, ...], tuple[Span, ...]]:
        """Return the columns up to the closing bracket, and their places."""
        opening = self.start
        columns: list[Column] = []
        places: list[Span] = []
        while not columns or self.take(","):
            first, start = self.column(opening), self.start
            item = self.range(first, start, opening) if self.take(":") else [first]
            self.columns_taken += len(item)
            if self.columns_taken > MOST_COLUMNS:
                raise self.refusal(f"more than {MOST_COLUMNS} columns: leave the brackets out for all columns", start)
            columns.extend(item)
            places.extend([(start, self.end)] * len(item))
        if not self.take("]"):
            raise self.wrong("separate columns by commas, and close them by ]", opening)
        if kind == "bias":
            raise self.refusal("bias is constant and takes no columns: leave the brackets out", opening)
        return tuple(columns), tuple(places)

    def column(self, opening: int) -> Column:
        """Return a number or a name."""
        before = self.text[self.end - 1]
        if word := self.take(WORD):
            return int(word) if re.fullmatch(INTEGER, word) else word
        if quoted := self.take(QUOTED):
            return quoted[1:-1].replace(quoted[0] * 2, quoted[0])
        if quote := self.take("['\"]"):
            raise self.refusal(f"{quote} is not closed: add another behind the name")
        if self.take(r"-\s*[0-9]+"):
            raise self.refusal("a column has a negative number: count the columns from 0")
        if before == "[" and self.take("]"):
            raise self.refusal("no columns are in the brackets: add some, or leave the brackets out for all", opening)
        raise self.wrong("here goes a column: a number, a range such as 0:3, or a name, if need be in quotes", opening)

    def range(self, first: Column, start: int, opening: int) -> Sequence[int]:
        """Return the columns of a range, given the first and its place."""
        last = self.column(opening)
        if isinstance(first, str) or isinstance(last, str):
            raise self.refusal("a range goes from number to number: list names one by one, as in a,b,c", start)
        if first >= last:
            raise self.refusal("the range is empty: its end is not in it, as in 0:3 for 0, 1 and 2", start)
        return range(first, min(last, first + MOST_COLUMNS + 1))  # one more is refused

    def period(self, kind: str) -> float:
        """Return the setting, up to the closing parenthesis."""
        opening = self.start
        if kind != "periodic":
            raise self.refusal(f"{kind} has no settings: leave the parentheses out, or join kernels by + or *")
        key = self.take(WORD)
        if key not in ("", "period"):
            raise self.refusal(f"periodic has no setting {key!r}: its only one is period, as in (period=24)")
        if not (key and self.take("=") and (value := self.take(VALUE))):
            raise self.wrong("write the setting as in (period=24), or leave the parentheses out", opening)
        period = float(value) if re.fullmatch(NUMBER, value) else math.nan
        if not 0 < period < math.inf:
            raise self.refusal(f"the period is {value!r}: write a positive number, in the units of the data")
        if self.take(","):
            self.take(WORD)
            raise self.refusal("periodic has one setting, its period: leave out what follows")
        if not self.take(r"\)"):
            raise self.wrong("close the setting by )", opening)
        return period


def _resolved(part: Part, q: int, numbers: dict[str, list[int]], text: str) -> Part:
    """Return a part with its columns as numbers, given those of each name."""
    found: dict[int, None] = {}
    for column, place in zip(part.columns or (), part.places, strict=True):
        try:
            number = _number(column, q, numbers)
        except InputError as error:
            raise _refusal(str(error), text, place) from None
        if number in found:
            raise _refusal(f"column {number} stands twice in one kernel: leave one out", text, place)
        found[number] = None
    return replace(part, columns=part.columns and tuple(found))


def _number(column: Column, q: int, numbers: dict[str, list[int]]) -> int:
    """Return the number of a column of the data."""
    having = numbers.get(column, []) if isinstance(column, str) else [column]
    if len(having) > 1:
        raise InputError(f"{len(having)} columns are named {column!r}: use a number, {having[0]} for the first")
    if having and having[0] >= q:
        raise InputError(f"there is no column {having[0]}: columns are numbered 0 to {q - 1}")
    if having:
        return having[0]
    if not numbers:
        raise InputError(f"no column is named {column!r}: the data have no column names, use numbers from 0")
    listed = ", ".join(map(repr, list(numbers)[:MOST_NAMES])) + ", ..." * (len(numbers) > MOST_NAMES)
    raise InputError(f"no column is named {column!r}: {_close(str(column), numbers)}the names are {listed}")


def _not_latent(part: Part, term: Sequence[Part], before: Sequence[Part]) -> str:
    """Return why a GPLVM cannot use a part of a term, given those before it, or nothing if it can."""
    if part.kind not in LATENT_KINDS:
        return f"{part.kind} has no psi statistics, it serves regression alone: use {', '.join(LATENT_KINDS)}"
    if len(term) == 1:
        return ""
    if part.kind != "rbf":
        return f"{part.kind} stands in a product: {PRODUCTS}"
    if any(isinstance(column, str) for column in part.columns or ()):
        return "a GPLVM's dimensions have no names: use numbers from 0"
    own = set(part.columns or ())
    if any(each.columns is None or part.columns is None or not own.isdisjoint(each.columns) for each in before):
        return f"this rbf shares dimensions with one before it: {PRODUCTS}"
    return ""


def _check_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"the kernel has {len(text)} characters: write it in at most {MOST_CHARACTERS}")


def _refusal(problem: str, text: str, span: Span) -> ExpressionError:
    """Return the error that points to a span of a text."""
    start, end = span
    shown = "".join(each if each.isprintable() else "\ufffd" for each in text)
    carets = " " * _width(shown[:start]) + "^" * max(_width(shown[start:end]), 1)
    return ExpressionError(f"{problem}\n    {shown}\n    {carets}")


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    return sum(0 if category(each) in ("Mn", "Me") else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def _close(word: str, known: Iterable[str]) -> str:
    """Return a question for the known word that is closest, if any is close."""
    by_lower = {each.lower(): each for each in known}
    return "".join(f"did you mean {by_lower[each]!r}? " for each in get_close_matches(word.lower(), by_lower, 1))


def _written(columns: Sequence[Column]) -> str:
    """Return columns as an expression has them: runs of numbers as ranges, names in quotes where they need them."""
    items: list[str] = []
    keys = (each if isinstance(each, str) else each - place for place, each in enumerate(columns))  # equal along a run
    for key, run in groupby(enumerate(keys), lambda each: each[1]):
        places = [place for place, _ in run]
        if isinstance(key, str):
            items.extend([_quoted(key)] * len(places))
        else:
            first, last = key + places[0], key + places[-1]
            items.append(f"{first}:{last + 1}" if first < last else f"{first}")
    return ",".join(items)


def _quoted(name: str) -> str:
    if re.fullmatch(WORD, name) and not re.fullmatch(INTEGER, name):
        return name
    quote = '"' if "'" in name and '"' not in name else "'"
    return quote + name.replace(quote, quote * 2) + quote


def _made(text: str) -> Expression:
    return Expression(parse(text).terms)


def _part(kind: str, columns: Iterable[Column] | None, period: float | None = None) -> Expression:
    """Return the expression of one part, from the arguments of the functions below."""
    if isinstance(columns, str) or not (columns is None or isinstance(columns, Iterable)):
        raise ExpressionError(f"columns are {columns!r}: give a list, as in columns=[{columns!r}]")
    return _made(str(Part(kind, None if columns is None else tuple(map(_checked, columns)), period)))


def _checked(column: Column) -> Column:
    if isinstance(column, bool) or not isinstance(column, str | SupportsIndex):
        raise ExpressionError(f"a column is {column!r}: give its number or its name")
    return column if isinstance(column, str) else index(column)


def RBF(columns: Iterable[Column] | None = None) -> Expression:
    """Return the squared exponential kernel of some columns, by number or name, or of all: smooth functions."""
    return _part("rbf", columns)


def Matern12(columns: Iterable[Column] | None = None) -> Expression:
    """Return the Matérn 1/2 kernel of some columns, or of all: continuous functions, not differentiable."""
    return _part("matern12", columns)


def Matern32(columns: Iterable[Column] | None = None) -> Expression:
    """Return the Matérn 3/2 kernel of some columns, or of all: functions that are once differentiable."""
    return _part("matern32", columns)


def Matern52(columns: Iterable[Column] | None = None) -> Expression:
    """Return the Matérn 5/2 kernel of some columns, or of all: functions that are twice differentiable."""
    return _part("matern52", columns)


def RationalQuadratic(columns: Iterable[Column] | None = None) -> Expression:
    """Return the rational quadratic kernel of some columns, or of all: smooth functions of many lengthscales."""
    return _part("rq", columns)


def Periodic(columns: Iterable[Column] | None = None, period: float | None = None) -> Expression:
    """Return the periodic kernel of some columns, or of all; a fit starts at `period`, in the data's units."""
    return _part("periodic", columns, period)


def Linear(columns: Iterable[Column] | None = None) -> Expression:
    """Return the linear kernel of some columns, or of all: linear functions through the origin."""
    return _part("linear", columns)


def Bias() -> Expression:
    """Return the kernel of constant functions."""
    return _part("bias", None)
