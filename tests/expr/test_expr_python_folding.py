"""Whole numbers and their casts, days, equal and joined texts computed in Python, against the engine's answers."""

from __future__ import annotations

import itertools

import pytest

from mzsql.expr import python_folding
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.functions.cast.casts import CASTS
from mzsql.expr.functions.declare import BOUNDS, INTEGERS
from mzsql.expr.scalar import Call, Literal
from mzsql.repr.datum import Datum
from mzsql.repr.types import BOOLEAN, SqlType

ARITHMETIC = ("add", "sub", "mul", "div")
COMPARISONS = ("eq", "not_eq", "lt", "lte", "gt", "gte")


def by_engine(calls: list[Call]) -> list[Datum | EvalError]:
    """What an engine answers."""
    evaluator = Evaluator(exact_numerics=False)
    try:
        return evaluator.evaluate(calls)
    finally:
        evaluator.close()


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("integer", "uint8") else pytest.param(kind, marks=pytest.mark.long)
        for kind in INTEGERS
    ],
)
def test_the_answer_is_the_engines(kind: str) -> None:
    low, high = BOUNDS[kind]
    typ = SqlType(kind)
    values = sorted({low, 0, 1, 7, high} | ({-1, -7} if low else set()))
    calls = [
        Call(
            f"{name}_{kind}",
            (Literal(a, typ), Literal(b, typ)),
            BOOLEAN if name in COMPARISONS else typ,
        )
        for name in (*ARITHMETIC, *COMPARISONS)
        for a, b in [*itertools.product(values, repeat=2), (None, 1)]
    ]
    for call, wanted in zip(calls, by_engine(calls), strict=True):
        found = python_folding.value(call)
        assert found is not None, call
        got = found.value if isinstance(found, Literal) else EvalError(found.message)
        assert got == wanted, call


def test_days_and_equal_and_joined_texts_are_the_engines() -> None:
    text, date = SqlType("text"), SqlType("date")
    days = ["0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2020-02-29", "9999-12-31"]
    calls = [Call("text_to_date", (Literal(day, text),), date) for day in days]
    texts = ["", "a", "A", "a ", "ä", "a\u0308", "'"]
    calls += [
        Call(name, (Literal(a, text), Literal(b, text)), BOOLEAN)
        for name in ("eq_text", "not_eq_text")
        for a, b in itertools.product(texts, repeat=2)
    ]
    calls += [
        Call("text_to_char_code", (Literal(a, text),), SqlType("text", length=1))
        for a in ("", "a", "Z", " ", "\x01", "\x7f", "~")
    ]
    calls += [
        Call("concat_text", (Literal(a, text), Literal(b, text)), text)
        for a, b in itertools.product([*texts, "\u0308", "\U0001f600"], repeat=2)
    ]
    for call, wanted in zip(calls, by_engine(calls), strict=True):
        found = python_folding.value(call)
        assert isinstance(found, Literal), call
        assert found.value == wanted, call


NUMBERS = (*INTEGERS, "oid")
EXACT = {"real": 1 << 24, "double": 1 << 53}


def conversions() -> list[Call]:
    """Casts of integers near the ends of all types, as far as there are such casts."""
    casts = {one.func.key for one in CASTS}
    ends = {0, 1, -1, 7, *EXACT.values(), *(-one for one in EXACT.values())}
    ends |= {one + by for kind in NUMBERS for one in BOUNDS[kind] for by in (-1, 0, 1)}
    return [
        Call(f"{source}_to_{target}", (Literal(value, SqlType(source)),), SqlType(target))
        for source, target in itertools.product(NUMBERS, (*NUMBERS, *EXACT))
        if f"{source}_to_{target}" in casts
        for value in sorted(ends)
        if BOUNDS[source][0] <= value <= BOUNDS[source][1]
    ]


def test_casts_of_integers_are_the_engines() -> None:
    calls = conversions()
    folded = 0
    for call, wanted in zip(calls, by_engine(calls), strict=True):
        found = python_folding.value(call)
        if found is None:
            # What fails, is rounded or is another number (an OID of a negative one) the engine says.
            (arg,) = call.args
            assert isinstance(arg, Literal)
            assert wanted != arg.value or abs(int(str(arg.value))) > EXACT["real"]
            continue
        folded += 1
        assert isinstance(found, Literal), call
        assert (found.value, type(found.value)) == (wanted, type(wanted)), call
    assert folded > len(calls) / 3


def test_others_are_left_to_the_engine() -> None:
    text = SqlType("text")
    for joined in ((None, "a"), ("a", None), ("a" * (1 << 20), "b")):
        a, b = (Literal(one, text) for one in joined)
        assert python_folding.value(Call("concat_text", (a, b), text)) is None
    assert (
        python_folding.value(Call("lt_text", (Literal("a", text), Literal("b", text)), BOOLEAN))
        is None
    )
    assert (
        python_folding.value(Call("eq_text", (Literal("a", text), Literal(None, text)), BOOLEAN))
        is None
    )
    for several in (None, "ab", "ä"):
        char = Call("text_to_char_code", (Literal(several, text),), SqlType("text", length=1))
        assert python_folding.value(char) is None
    for written in (
        None,
        "2020-02-30",
        "0000-01-01",
        "2020-1-1",
        " 2020-01-01",
        "20200101",
        "٢020-01-01",
    ):
        assert (
            python_folding.value(Call("text_to_date", (Literal(written, text),), SqlType("date")))
            is None
        )
    number = SqlType("integer")
    assert python_folding.value(Call("neg_integer", (Literal(1, number),), number)) is None
