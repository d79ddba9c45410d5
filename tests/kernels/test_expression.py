"""Expressions of kernels: what a text stands for, how it is written, what is refused, and where carets point."""

from __future__ import annotations

import inspect
import pickle
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpigp.errors import InputError
from mpigp.kernels.expression import (
    KINDS,
    MOST_CHARACTERS,
    MOST_COLUMNS,
    RBF,
    Bias,
    Expression,
    ExpressionError,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Part,
    Periodic,
    RationalQuadratic,
    parse,
)

NAMES = ["temperature", "wind", "hour", "day of year", "wind"]


def refused(call: Callable[[], object], text: str) -> tuple[str, str, str]:
    """Return the message of a refusal, and what its carets point to in the text that it shows, before and at them."""
    with pytest.raises(ExpressionError) as caught:
        call()
    message, shown, carets = str(caught.value).split("\n")
    assert isinstance(caught.value, InputError)
    assert shown == f"    {text}"
    assert carets.startswith("    ") and set(carets.lstrip(" ")) == {"^"}
    start = len(carets) - len(carets.lstrip(" "))
    return message, shown[4:start], shown[start : len(carets)]


# What a text stands for


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_is_a_kernel_of_all_columns(kind: str) -> None:
    assert parse(kind) == Expression(((Part(kind, None),),))
    assert str(parse(kind)) == repr(parse(kind)) == kind


def test_sums_are_of_products() -> None:
    rbf, linear, bias = Part("rbf", None), Part("linear", None), Part("bias", None)
    assert parse("rbf + linear * bias + rbf").terms == ((rbf,), (linear, bias), (rbf,))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("rbf[3]", (3,)),
        ("rbf[0:3]", (0, 1, 2)),
        ("rbf[007,2:4,0]", (7, 2, 3, 0)),
        ("rbf[temperature,wind]", ("temperature", "wind")),
        ("rbf[température,x_1,2nd,1.5,a-b,_]", ("température", "x_1", "2nd", "1.5", "a-b", "_")),
        ("rbf['day of year',\"12\",'-1','']", ("day of year", "12", "-1", "")),
        ('rbf[\'it\'\'s\',"it\'s",\'say "a"\',"say ""a"""]', ("it's", "it's", 'say "a"', 'say "a"')),
        ("rbf['a]b',')+(']", ("a]b", ")+(")),
        ("\n rbf\t[ 0 : 2 ,\u00a0wind ] ", (0, 1, "wind")),
    ],
)
def test_columns_are_numbers_ranges_and_names(text: str, columns: tuple[int | str, ...]) -> None:
    assert parse(text).terms == ((Part("rbf", columns),),)


@pytest.mark.parametrize(
    ("number", "period"),
    [("24.", 24.0), (".5", 0.5), ("+1e-3", 1e-3), ("2.5E+2", 250.0), ("1e300", 1e300), ("5e-324", 5e-324)],
)
def test_a_periodic_kernel_has_a_period(number: str, period: float) -> None:
    assert parse(f"periodic[3] ( period = {number} )").terms == ((Part("periodic", (3,), period),),)
    assert parse(f"periodic(period={number})") != parse("periodic")


def test_spans_tell_where_parts_and_columns_stand() -> None:
    text = " bias+ rbf[ 0:2 ,'wind']  * periodic [hour] (period = 24 ) "
    expression = parse(text)
    first, second, third = (part for term in expression.terms for part in term)
    assert expression.text == text
    assert [text[slice(*part.where)] for part in (first, second, third)] == [
        "bias",
        "rbf[ 0:2 ,'wind']",
        "periodic [hour] (period = 24 )",
    ]
    assert [text[slice(*place)] for place in second.places] == ["0:2", "0:2", "'wind'"]
    assert [text[slice(*place)] for place in third.places] == ["hour"]
    assert not first.places


def test_the_text_and_the_spans_are_not_compared() -> None:
    spaced, dense = parse(" rbf [ 0, 1 ]+bias"), parse("rbf[0:2] + bias")
    assert spaced == dense and hash(spaced) == hash(dense)
    assert spaced.text != dense.text and spaced.terms[0][0].where != dense.terms[0][0].where
    assert repr(dense.terms[0][0]) == "Part(kind='rbf', columns=(0, 1), period=None)"
    assert parse("rbf + bias") != parse("bias + rbf")


# How it is written


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("rbf+linear*bias", "rbf + linear * bias"),
        ("rbf[ 0, 1 ]", "rbf[0:2]"),
        ("rbf[0,2,3,4,1]", "rbf[0,2:5,1]"),
        ("rbf[0:2,2:4]", "rbf[0:4]"),
        ("rbf[2,1,0]", "rbf[2,1,0]"),
        ("rbf[1,1,2]", "rbf[1,1:3]"),
        ("rbf[0,a,1]", "rbf[0,a,1]"),
        ("rbf['wind',\"12\"]", "rbf[wind,'12']"),
        ("rbf[a,a]", "rbf[a,a]"),
        ("rbf[\"it's\",'\"']", "rbf[\"it's\",'\"']"),
        ('rbf["\'"""]', "rbf['''\"']"),
        ("rbf['']", "rbf['']"),
        ("periodic(period=24.0)", "periodic(period=24)"),
        ("periodic[3](period=0.10)", "periodic[3](period=0.1)"),
        ("periodic(period=1e22)", "periodic(period=1e+22)"),
    ],
)
def test_the_canonical_text(text: str, canonical: str) -> None:
    assert str(parse(text)) == repr(parse(text)) == canonical
    assert parse(canonical) == parse(text)


def random_column(generator: random.Random) -> int | str:
    if generator.random() < 0.6:
        return generator.randrange(6)
    return "".join(generator.choices("ab1é_.-'\" []():+*,=\n\x00温\u0301\udc80", k=generator.randrange(5)))


def random_part(generator: random.Random) -> Part:
    kind = generator.choice(KINDS)
    period = generator.choice([None, 10 ** generator.uniform(-300, 300), float(generator.randrange(1, 30))])
    columns = tuple(random_column(generator) for _ in range(generator.randrange(7)))
    return Part(kind, columns if columns and kind != "bias" else None, period if kind == "periodic" else None)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_stands_for_the_same(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(50):
        counts = [generator.randint(1, 3) for _ in range(generator.randint(1, 4))]
        expression = Expression(tuple(tuple(random_part(generator) for _ in range(count)) for count in counts))
        again = parse(str(expression))
        assert again == expression
        assert str(again) == str(expression) == again.text
        assert pickle.loads(pickle.dumps(again)) == again


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_refused_or_written_back(seed: int) -> None:
    generator = random.Random(seed)
    pieces = ["rbf", "periodic", "bias", "period", "[", "]", "(", ")", ":", ",", "=", "+", "*", "-", "'", '"', " ", "1",
              "24", "a", "\n", "\x00", "温", "."]  # fmt: skip
    accepted = 0
    for _ in range(2000):
        text = "".join(generator.choices(pieces, k=generator.randint(1, 7)))
        try:
            expression = parse(text)
        except ExpressionError as error:
            assert str(error).count("\n") == 2 and "^" in str(error).split("\n")[2]
        else:
            accepted += 1
            assert parse(str(expression)) == expression
    assert 0 < accepted < 2000


# What is refused, and where


@pytest.mark.parametrize(
    ("before", "at", "after", "words"),
    [
        ("", "", "", "the kernel is empty: write one"),
        ("  ", "", "", "the kernel is empty: write one"),
        ("", "rbff", "", "unknown kernel 'rbff': did you mean 'rbf'? choose among rbf, matern12, matern32"),
        ("linear + ", "rbff", "[0:3]", "unknown kernel 'rbff': did you mean 'rbf'?"),
        ("", "RBF", " + bias", "unknown kernel 'RBF': did you mean 'rbf'?"),
        ("rbf * ", "zzz", "", "unknown kernel 'zzz': choose among"),
        ("rbf ", "+", "  ", "no kernel follows '+': add one"),
        ("rbf ", "*", "", "no kernel follows '*': add one"),
        ("", "+", " rbf", "no kernel stands before '+'"),
        ("rbf + ", "*", " linear", "no kernel stands before '*'"),
        ("rbf * ", "[", "0]", "unexpected '[': here goes a kernel"),
        ("", "&", "", "unexpected '&': here goes a kernel"),
        ("rbf ", "-", " linear", "unexpected '-': join kernels by + or *"),
        ("rbf ", "linear", "", "unexpected 'linear': join kernels by + or *"),
        ("rbf", ")", "", "unexpected ')'"),
        ("rbf[0]", "]", "", "unexpected ']'"),
        ("rbf[0]", "[", "1]", "unexpected '['"),
        ("periodic(period=24)", "[", "3]", "put columns before settings"),
        ("", "(", "rbf + linear) * bias", "write the product out, as in a * c + b * c"),
        ("bias * ", "(", "rbf + linear)", "write the product out, as in a * c + b * c"),
        ("rbf", "[", "", "[ is not closed: add ]"),
        ("rbf + rbf", "[", "0:3, wind ", "[ is not closed: add ]"),
        ("rbf", "[", "0,", "[ is not closed: add ]"),
        ("rbf", "[", "0:", "[ is not closed: add ]"),
        ("rbf[0 ", "+", " linear", "unexpected '+': separate columns by commas"),
        ("rbf[0 ", "1", "]", "unexpected '1': separate columns by commas"),
        ("rbf[0:3", ":", "2]", "unexpected ':': separate columns by commas"),
        ("rbf[", "'", "wind]", "' is not closed"),
        ("rbf[0,", '"', "wind']", '" is not closed'),
        ("rbf[", "'", "it''s", "' is not closed"),
        ("rbf ", "[]", "", "no columns are in the brackets: add some"),
        ("rbf", "[ ]", " + bias", "no columns are in the brackets: add some"),
        ("rbf[0,", "]", "", "unexpected ']': here goes a column"),
        ("rbf[", ",", "0]", "unexpected ',': here goes a column"),
        ("rbf[", ":", "3]", "a range such as 0:3"),
        ("rbf[3:", "]", "", "a range such as 0:3"),
        ("rbf[", "$", "]", "unexpected '$': here goes a column"),
        ("rbf[0,", ".", "a]", "unexpected '.': here goes a column"),
        ("rbf[", "3:3", "]", "the range is empty"),
        ("rbf[1, ", "5 : 2", "]", "the range is empty"),
        ("rbf[", "a:b", "]", "list names one by one"),
        ("rbf[", "0:b", "]", "list names one by one"),
        ("rbf[7,", "'a' : 3", "]", "list names one by one"),
        ("rbf[", "-1", "]", "count the columns from 0"),
        ("rbf[0:", "-1", "]", "count the columns from 0"),
        ("rbf[0,", "0:999999999999", "]", f"more than {MOST_COLUMNS} columns"),
        ("rbf[", f"0:{MOST_COLUMNS + 1}", "]", f"more than {MOST_COLUMNS} columns"),
        (f"rbf[0:{MOST_COLUMNS}] + rbf[", "0", "]", f"more than {MOST_COLUMNS} columns"),
        ("rbf + bias ", "[0]", "", "bias is constant and takes no columns"),
        ("rbf", "(", "period=24)", "rbf has no settings"),
        ("linear[0]", "(", ")", "linear has no settings"),
        ("bias", "(", "period=24)", "bias has no settings"),
        ("periodic(", "perod", "=24)", "no setting 'perod': its only one is period"),
        ("periodic(", "24", ")", "no setting '24': its only one is period"),
        ("periodic(", ")", "", "write the setting as in (period=24)"),
        ("periodic(period", ")", "", "write the setting as in (period=24)"),
        ("periodic(period ", "24", ")", "write the setting as in (period=24)"),
        ("periodic(period=", ")", "", "write the setting as in (period=24)"),
        ("periodic[0]", "(", "period=24", "( is not closed: add )"),
        ("periodic", "(", "", "( is not closed: add )"),
        ("periodic(period=24 ", "hours", ")", "unexpected 'hours': close the setting by )"),
        ("periodic(period=24, ", "phase", "=1)", "leave out what follows"),
        ("periodic(period=24, ", "period", "=12)", "leave out what follows"),
        ("periodic(period=24", ",", ")", "leave out what follows"),
        *(
            ("rbf + periodic(period= ", value, ")", f"the period is '{value}': write a positive number")
            for value in ("0", "-24", "inf", "nan", "1e999", "1e-999", "a", "1_0", "0x10", "٣", "24+1", "=24")
        ),
    ],
)
def test_a_caret_points_to_what_is_refused(before: str, at: str, after: str, words: str) -> None:
    text = before + at + after
    message, *place = refused(lambda: parse(text), text)
    assert words in message
    assert place == [before, at]


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x7f", "\u202e", "\udc80", "\ue000"])
def test_control_characters_are_shown_by_one_of_the_same_width(character: str) -> None:
    message, before, at = refused(lambda: parse(f"rbf['{character}\n\t'] + rbff"), "rbf['���'] + rbff")
    assert (before, at) == ("rbf['���'] + ", "rbff")
    message, before, at = refused(lambda: parse(f"rbf + {character}"), "rbf + �")
    assert (before, at) == ("rbf + ", "�")
    assert repr(character) in message and message.isprintable()


@pytest.mark.parametrize(("name", "width"), [("wind", 4), ("温度", 4), ("e\u0301te\u0301", 3)])
def test_carets_count_what_a_terminal_shows(name: str, width: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(f"rbf['{name}'] + rbff")
    assert str(caught.value).split("\n")[2] == " " * (4 + len("rbf['") + width + len("'] + ")) + "^^^^"


@pytest.mark.parametrize("text", ["rbf + ", "(", "[", "rbf[", "'", '"', "rbf[''", " ", "\x00", "9", "rbf[0:9] * ", "é"])
def test_a_text_that_is_too_long_is_refused_at_once_and_not_shown(text: str) -> None:
    long = text * 1_000_000
    begun = time.process_time()
    with pytest.raises(ExpressionError) as caught:
        parse(long)
    assert time.process_time() - begun < 0.1
    assert str(caught.value) == f"the kernel has {len(long)} characters: write it in at most {MOST_CHARACTERS}"


@pytest.mark.parametrize(
    "text", ["rbf+", "(", "[", "rbf[", "rbf['", "rbf[''", " ", "\x00", "9", "rbf[0:", "rbf[-", "rbf(("]
)
def test_a_text_as_long_as_allowed_is_refused_soon(text: str) -> None:
    long = (text * MOST_CHARACTERS)[:MOST_CHARACTERS]
    begun = time.process_time()
    with pytest.raises(ExpressionError):
        parse(long)
    assert time.process_time() - begun < 1  # of some milliseconds


def test_a_text_may_be_as_long_as_allowed_but_so_must_the_canonical_one() -> None:
    longest = " " * (MOST_CHARACTERS - 3) + "rbf"
    assert parse(longest) == RBF()
    dense = "+".join(["rbf"] * (MOST_CHARACTERS // 4))
    with pytest.raises(ExpressionError, match="has 2997 characters"):
        parse(dense)
    with pytest.raises(ExpressionError, match="write it in at most"):
        RBF(columns=range(0, MOST_CHARACTERS, 2))


def test_as_many_columns_as_allowed_may_be_written_in_any_way() -> None:
    last = MOST_COLUMNS - 1
    assert parse(f"rbf[0:{last},{last}]") == parse(f"rbf[0:{MOST_COLUMNS}]") == RBF(columns=range(MOST_COLUMNS))


def test_an_error_can_be_pickled() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("rbff")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is ExpressionError and str(again) == str(caught.value)


# In Python


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (RBF(), "rbf"),
        (Matern12(), "matern12"),
        (Matern32([0, 1]), "matern32[0:2]"),
        (Matern52(columns=range(1, 4)), "matern52[1:4]"),
        (RationalQuadratic(columns=["wind", 3]), "rq[wind,3]"),
        (Periodic(), "periodic"),
        (Periodic(columns=["hour"], period=24), "periodic[hour](period=24)"),
        (Periodic(period=np.float64(0.5)), "periodic(period=0.5)"),
        (Linear(columns=np.array([2, 0])), "linear[2,0]"),
        (Linear(columns=np.array(["day of year", "12"])), "linear['day of year','12']"),
        (Bias(), "bias"),
        (RBF() + Linear(), "rbf + linear"),
        (Matern32(columns=[0, 1]) * Periodic(columns=["hour"]) + Bias(), "matern32[0:2] * periodic[hour] + bias"),
        (RBF() + RBF() * Linear() * Bias() + RBF(), "rbf + rbf * linear * bias + rbf"),
        (RBF() + (Linear() + Bias()), "rbf + linear + bias"),
    ],
)
def test_python_composes_what_the_text_says(made: Expression, text: str) -> None:
    assert made == parse(text)
    assert repr(made) == text and made.text == ""
    for part in (part for term in made.terms for part in term):
        assert all(type(column) in (int, str) for column in part.columns or ())
        assert part.period is None or type(part.period) is float


def test_a_column_is_whatever_python_takes_for_an_index() -> None:
    class Second:
        def __index__(self) -> int:
            return 1

    columns: Any = [0, Second(), np.uint8(0)]
    assert RBF(columns=columns) == parse("rbf[0,1,0]")


def test_the_functions_show_their_parameters() -> None:
    for function in (RBF, Matern12, Matern32, Matern52, RationalQuadratic, Periodic, Linear):
        assert inspect.signature(function).parameters["columns"].default is None
        assert (function.__doc__ or "").startswith("Return the ")
    assert list(inspect.signature(Periodic).parameters) == ["columns", "period"]
    assert not inspect.signature(Bias).parameters


@pytest.mark.parametrize(
    ("left", "right", "before", "after"),
    [
        (RBF() + Linear(), Bias(), "", "rbf + linear) * bias"),
        (Bias(), RBF([0]) + Linear(), "bias * ", "rbf[0] + linear)"),
        (RBF() + Bias(), RBF() + Linear(), "", "rbf + bias) * (rbf + linear)"),
    ],
)
def test_a_product_of_sums_is_refused_as_parentheses_are(
    left: Expression, right: Expression, before: str, after: str
) -> None:
    text = f"{before}({after}"
    message, *place = refused(lambda: left * right, text)
    assert message == refused(lambda: parse(text), text)[0]
    assert "write the product out" in message
    assert place == [before, "("]


@pytest.mark.parametrize(
    ("call", "text", "before", "at"),
    [
        (lambda: RBF(columns=[-1]), "rbf[-1]", "rbf[", "-1"),
        (lambda: RBF(columns=[3, -2, -1]), "rbf[3,-2:0]", "rbf[3,", "-2"),
        (lambda: RBF(columns=[]), "rbf[]", "rbf", "[]"),
        (lambda: Periodic(period=0), "periodic(period=0)", "periodic(period=", "0"),
        (lambda: Periodic(period=float("nan")), "periodic(period=nan)", "periodic(period=", "nan"),
        (lambda: Periodic(period=10**400), f"periodic(period=1{'0' * 400})", "periodic(period=", f"1{'0' * 400}"),
    ],
)
def test_python_refuses_what_the_text_may_not_say(call: Callable[[], object], text: str, before: str, at: str) -> None:
    assert refused(call, text)[1:] == (before, at)


@pytest.mark.parametrize("columns", ["hour", 3, 1.5])
def test_columns_are_a_list(columns: Any) -> None:
    with pytest.raises(ExpressionError, match=r"give a list, as in columns=\["):
        RBF(columns=columns)


@pytest.mark.parametrize("column", [True, np.bool_(True), 1.0, None, b"a"])
def test_a_column_is_a_number_or_a_name(column: Any) -> None:
    with pytest.raises(ExpressionError, match="give its number or its name"):
        RBF(columns=[0, column])


@pytest.mark.parametrize("other", [1, "linear", None])
def test_expressions_are_composed_with_expressions_alone(other: object) -> None:
    with pytest.raises(TypeError, match=r"\+"):
        RBF() + other  # type: ignore[operator]
    with pytest.raises(TypeError):
        RBF() * other  # type: ignore[operator]


# Columns of data


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("rbf", "rbf"),
        ("rbf[4]", "rbf[4]"),
        ("rbf[temperature,hour]", "rbf[0,2]"),
        ("rbf['day of year',0:2] * periodic[hour](period=24) + bias", "rbf[3,0:2] * periodic[2](period=24) + bias"),
        ("rbf[hour] + linear[hour]", "rbf[2] + linear[2]"),
    ],
)
def test_names_are_resolved(text: str, resolved: str) -> None:
    expression = parse(text)
    assert expression.resolve(5, NAMES) == parse(resolved)
    assert str(expression.resolve(5, tuple(np.array(NAMES)))) == resolved
    assert expression == parse(text), "it is changed"
    assert Expression(expression.terms).resolve(5, NAMES) == parse(resolved)
    assert expression.resolve(5, NAMES).resolve(5, None) == parse(resolved)


@pytest.mark.parametrize(
    ("before", "at", "after", "names", "words"),
    [
        ("bias + rbf[0,", "5", "]", NAMES, "there is no column 5: columns are numbered 0 to 4"),
        ("rbf[", "3:9", "]", None, "there is no column 5: columns are numbered 0 to 4"),
        ("rbf[0,", "temprature", "]", NAMES, "did you mean 'temperature'? the names are 'temperature', 'wind', 'hour'"),
        ("rbf[", "Hour", "]", NAMES, "no column is named 'Hour': did you mean 'hour'?"),
        ("rbf[", "'a b'", "]", None, "no column is named 'a b': the data have no column names, use numbers"),
        ("rbf[", "hour", "]", [], "no column is named 'hour': the data have no column names, use numbers"),
        ("rbf[", "wind", "]", NAMES, "2 columns are named 'wind': use a number, 1 for the first"),
        ("rbf[0,1,", "0", "]", NAMES, "column 0 stands twice in one kernel"),
        ("rbf[2,", "0:3", "]", None, "column 2 stands twice in one kernel"),
        ("rbf[0,", "temperature", "]", NAMES, "column 0 stands twice in one kernel"),
        ("rbf[hour] * rbf[hour,", '"hour"', "]", NAMES, "column 2 stands twice in one kernel"),
    ],
)
def test_columns_that_the_data_do_not_have_are_refused(
    before: str, at: str, after: str, names: list[str] | None, words: str
) -> None:
    text = before + at + after
    message, *place = refused(lambda: parse(text).resolve(5, names), text)
    assert words in message
    assert place == [before, at]


def test_an_expression_from_python_is_shown_in_its_canonical_text() -> None:
    made = RBF(columns=["hour"]) + Linear(columns=[0, 1, 7])
    assert refused(lambda: made.resolve(5, NAMES), "rbf[hour] + linear[0:2,7]")[1:] == ("rbf[hour] + linear[0:2,", "7")


def test_at_most_ten_names_are_listed() -> None:
    message = refused(lambda: parse("rbf[zzz]").resolve(11, [f"x{n}" for n in range(11)]), "rbf[zzz]")[0]
    assert message.endswith("'x8', 'x9', ...") and "x10" not in message
    message = refused(lambda: parse("rbf[zzz]").resolve(10, [f"x{n}" for n in range(10)]), "rbf[zzz]")[0]
    assert message.endswith("'x8', 'x9'")


def test_names_cannot_break_the_line_of_the_message() -> None:
    message = refused(lambda: parse("rbf['a\nb']").resolve(1, ["c\nd"]), "rbf['a�b']")[0]
    assert "'a\\nb'" in message and "'c\\nd'" in message


# Labels


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("rbf", [["rbf"]]),
        ("rbf + linear", [["rbf"], ["linear"]]),
        ("rbf[0] * rbf[1] + bias", [["rbf_1", "rbf_2"], ["bias"]]),
        ("rbf + linear * rbf + rbf * linear", [["rbf_1"], ["linear_1", "rbf_2"], ["rbf_3", "linear_2"]]),
    ],
)
def test_labels_are_kinds_numbered_where_there_are_several(text: str, labels: list[list[str]]) -> None:
    assert parse(text).labels() == labels


# The GPLVM


@pytest.mark.parametrize(
    "text",
    ["rbf + linear + bias", "rbf[0:2] + rbf[1:3] + linear[0]", "rbf[0:2] * rbf[2]", "rbf[1] * rbf[0] * rbf[2] + rbf"],
)
def test_a_gplvm_takes_sums_and_products_of_rbf_side_by_side(text: str) -> None:
    parse(text).check_latent()
    Expression(parse(text).terms).check_latent()
    with pytest.raises(ExpressionError):
        (parse(text) + Matern52()).check_latent()


@pytest.mark.parametrize(
    ("before", "at", "after", "words"),
    [
        *(
            ("rbf + ", f"{kind}[0:2]", " + bias", f"{kind} has no psi statistics, it serves regression alone")
            for kind in ("matern12", "matern32", "matern52", "rq", "periodic")
        ),
        ("rbf + ", "periodic[0](period=24)", "", "periodic has no psi statistics"),
        ("rbf[0] * ", "matern32[1]", "", "matern32 has no psi statistics"),
        ("", "linear[0]", " * rbf[1]", "linear stands in a product: a GPLVM takes products of rbf"),
        ("rbf[0] * ", "bias", "", "bias stands in a product: a GPLVM takes products of rbf"),
        ("rbf[0:2] * ", "rbf[1:3]", " + bias", "shares dimensions with one before it: a GPLVM takes products"),
        ("rbf[0] * rbf[1] * ", "rbf[0]", "", "shares dimensions"),
        ("rbf * ", "rbf[0]", "", "shares dimensions"),
        ("rbf[0] * ", "rbf", " * rbf[1]", "shares dimensions"),
        ("rbf * ", "rbf", "", "shares dimensions"),
        ("rbf[0] * ", "rbf[b]", "", "dimensions have no names: use numbers"),
    ],
)
def test_a_gplvm_refuses_what_has_no_psi_statistics(before: str, at: str, after: str, words: str) -> None:
    text = before + at + after
    for expression in (parse(text), Expression(parse(text).terms)):
        message, *place = refused(expression.check_latent, text)
        assert words in message
        assert place == [before, at]


def test_a_resolved_expression_points_to_the_text_that_was_parsed() -> None:
    text = "rbf [hour]  * rbf[0, 2]"
    parse("rbf [hour]  * rbf[0]").resolve(5, NAMES).check_latent()
    assert refused(parse(text).resolve(5, NAMES).check_latent, text)[1:] == ("rbf [hour]  * ", "rbf[0, 2]")
