"""Whole numbers computed in Python, against the engine's answers."""

from __future__ import annotations

import itertools

import pytest

from mzsql.expr import integer_arithmetic
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.functions.declare import BOUNDS, INTEGERS
from mzsql.expr.scalar import Call, Literal
from mzsql.repr.types import BOOLEAN, SqlType

ARITHMETIC = ("add", "sub", "mul", "div")
COMPARISONS = ("eq", "not_eq", "lt", "lte", "gt", "gte")


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
    evaluator = Evaluator(exact_numerics=False)
    try:
        expected = evaluator.evaluate(calls)
    finally:
        evaluator.close()
    for call, wanted in zip(calls, expected, strict=True):
        found = integer_arithmetic.value(call)
        assert found is not None, call
        got = found.value if isinstance(found, Literal) else EvalError(found.message)
        assert got == wanted, call


def test_others_are_left_to_the_engine() -> None:
    text = SqlType("text")
    assert (
        integer_arithmetic.value(Call("eq_text", (Literal("a", text), Literal("a", text)), BOOLEAN))
        is None
    )
    number = SqlType("integer")
    assert integer_arithmetic.value(Call("neg_integer", (Literal(1, number),), number)) is None
