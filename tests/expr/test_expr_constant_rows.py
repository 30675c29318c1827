"""Functions that take constants only, over rows of constants: each row is computed by itself."""

from __future__ import annotations

import hashlib
import zlib

import pytest

from mzsql.expr import functions
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column, If, Literal, Scalar
from mzsql.repr.datum import Datum
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BOOLEAN, BYTEA, TEXT, ColumnType


def _call(key: str, *args: Scalar) -> Call:
    result = functions.scalar(key).result
    assert not callable(result)
    return Call(key, args, result)


def _computed(expr: Scalar, values: list[str | None]) -> list[Datum]:
    mfp = MapFilterProject(1, (expr,), (), (1,))
    rows = Evaluator().evaluate_mfp(mfp, [((v,), 1) for v in values], [ColumnType(TEXT)])
    assert not isinstance(rows, EvalError), rows
    return [row[0] for row, _ in rows]


_BYTES = _call("text_to_bytea", Column(0))


@pytest.mark.parametrize("name", ["sha224", "sha384", "sha512"])
def test_digests_of_rows(name: str) -> None:
    assert _computed(_call(name, _BYTES), ["a", "", None]) == [
        hashlib.new(name, b"a").hexdigest(),
        hashlib.new(name, b"").hexdigest(),
        None,
    ]


def test_only_the_branch_that_is_taken_counts() -> None:
    known = Call("eq_text", (Column(0), Literal("zz", TEXT)), BOOLEAN)
    broken = _call("sha224", _call("decode", Column(0), Literal("hex", TEXT)))
    expr = If(known, Literal(None, BYTEA), broken)
    assert _computed(expr, ["zz", "61"]) == [None, hashlib.sha224(b"a").hexdigest()]


def test_a_row_that_fails_says_so() -> None:
    broken = _call("sha224", _call("decode", Column(0), Literal("hex", TEXT)))
    mfp = MapFilterProject(1, (broken,), (), (1,))
    found = Evaluator().evaluate_mfp(mfp, [(("zz",), 1)], [ColumnType(TEXT)])
    assert found == EvalError('invalid hexadecimal digit: "z"')


def test_many_rows_are_left_to_engines() -> None:
    with pytest.raises(Unsupported, match="sha512 of anything but constants"):
        _computed(_call("sha512", _BYTES), [str(i) for i in range(501)])


def test_checksums_of_rows() -> None:
    (key,) = {f.key for f in functions.scalars_named("crc32") if f.args == (TEXT,)}
    assert _computed(_call(key, Column(0)), ["abc"]) == [zlib.crc32(b"abc")]
