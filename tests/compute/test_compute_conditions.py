"""Conditions that are evaluated without DuckDB are true of the rows of which DuckDB says so."""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from mzsql.compute.replica.step.conditions import evaluated, is_known
from mzsql.compute.replica.step.deltas import Delta, Deltas
from mzsql.persist import duck

_SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("j", pa.int32()),
        ("l", pa.int64()),
        ("t", pa.string()),
        ("u", pa.string()),
        ("d", pa.date32()),
        ("e", pa.date32()),
        ("n", pa.decimal128(38, 2)),
        ("f", pa.float64()),
    ]
)
_TEXTS = ("", "a", "A", "ä", "a b", "Ω", "aa", "it's")
_DAYS = ("1970-01-01", "1995-03-15", "1995-03-16", "0001-01-01", "9999-12-31")
_NUMBERS = ("0", "-0.05", "0.05", "0.5", "12345678901234567890123456789.12")
_WHOLE = ("0", "1", "7", "2147483647")


def _rows(rng: random.Random, many: int) -> pa.Table:
    def some(values: list[object]) -> list[object]:
        return [rng.choice([*values, None]) for _ in range(many)]

    whole: list[object] = [int(one) for one in _WHOLE]
    days: list[object] = [datetime.date.fromisoformat(one) for one in _DAYS]
    values = {
        "i": some([*whole, -1]),
        "j": some([*whole, -1]),
        "l": some([*whole, 1 << 62]),
        "t": some(list(_TEXTS)),
        "u": some(list(_TEXTS)),
        "d": some(days),
        "e": some(days),
        "n": some([Decimal(one) for one in _NUMBERS]),
        "f": some([0.0, float("nan")]),
    }
    rows = pa.table(values, schema=_SCHEMA)
    return pa.concat_tables([rows.slice(0, many // 3), rows.slice(many // 3)])


def _condition(rng: random.Random, depth: int) -> str:
    if depth and rng.random() < 0.7:
        one, other = _condition(rng, depth - 1), _condition(rng, depth - 1)
        return rng.choice([f"({one} AND {other})", f"({one} OR {other})", f"(NOT ({one}))"])
    quoted = rng.choice(_TEXTS).replace("'", "''")
    one, other = rng.choice(
        [
            ("i", "j"),
            ("t", "u"),
            ("d", "e"),
            ("i", rng.choice(_WHOLE)),
            ("l", rng.choice(_WHOLE)),
            ("t", f"CAST('{quoted}' AS TEXT)"),
            ("d", f"CAST('{rng.choice(_DAYS)}' AS DATE)"),
            ("n", f"CAST('{rng.choice(_NUMBERS)}' AS DECIMAL(38, 2))"),
        ]
    )
    compared = rng.choice(("=", "<>", "<", "<=", ">", ">="))
    right = f'"{other}"' if other in _SCHEMA.names else other
    return rng.choice([f'("{one}" {compared} {right})'] * 4 + [f'(("{one}") IS NULL)'])


def _duckdb(condition: str, table: pa.Table) -> list[bool]:
    with duck.connection() as connection:
        connection.register("rows", table)
        found = connection.execute(f"SELECT coalesce({condition}, false) FROM rows").fetchall()
        connection.unregister("rows")
    return [one for (one,) in found]


@pytest.mark.parametrize("seed", range(150))
def test_a_condition_is_true_of_the_rows_of_which_duckdb_says_so(seed: int) -> None:
    rng = random.Random(seed)
    table, condition = _rows(rng, 40), _condition(rng, 3)
    found = evaluated(condition, table)
    assert found is not None, condition
    assert found.tolist() == _duckdb(condition, table), condition


@pytest.mark.parametrize("seed", range(3))
def test_of_no_rows_nothing_is_true(seed: int) -> None:
    found = evaluated(_condition(random.Random(seed), 3), _SCHEMA.empty_table())
    assert found is not None
    assert len(found) == 0


@pytest.mark.parametrize(
    "condition",
    [
        "(\"t\" LIKE '%a%' ESCAPE '\\')",
        '("i" = ',
        "(\"d\" = CAST('infinity' AS DATE))",
        "(\"n\" = CAST('0.055' AS DECIMAL(38, 2)))",
        "(\"n\" = TRY_CAST('0.05' AS DECIMAL(38, 2)))",
        '(("t" || "t") = "u")',
        "(" + " OR ".join(f'("i" = {one})' for one in range(400)) + ")",
    ],
)
def test_what_is_not_known_is_left_to_duckdb(condition: str) -> None:
    assert not is_known(condition)
    assert evaluated(condition, _rows(random.Random(1), 10)) is None


@pytest.mark.parametrize(
    "condition",
    [
        '("f" = 0)',
        '("f" = "f")',
        "(\"t\" = CAST('1995-03-15' AS DATE))",
        "(\"n\" = CAST('0.5' AS DECIMAL(38, 1)))",
    ],
)
def test_columns_of_other_types_are_left_to_duckdb(condition: str) -> None:
    assert is_known(condition)
    assert evaluated(condition, _rows(random.Random(1), 10)) is None


class _NoDriver:
    """Runs nothing."""

    def simple(self, text: str, _relations: Mapping[str, pa.Table]) -> pa.Table:
        raise AssertionError(f"a statement was run: {text}")


class _View:
    """As much of a rendered dataflow as is asked here."""

    is_rendered = True

    def __init__(self, condition: str) -> None:
        self.inputs = (SimpleNamespace(id="u1"),)
        self.relevance = {"delta_u1": condition}


def test_no_statement_tells_which_updates_pass_a_comparison() -> None:
    table = _rows(random.Random(1), 40)
    source = SimpleNamespace(spec=SimpleNamespace(id="u1"), schema=table.schema)
    delta = Delta(cast("Any", source), table.num_rows, table.nbytes, table)
    deltas = Deltas(cast("Any", _NoDriver()))
    simple, other = _View('(("i" > 0))'), _View("((\"t\" LIKE 'a%' ESCAPE '\\'))")
    for view in (simple, other):
        deltas.enroll(cast("Any", view))
    deltas.prepare(cast("Any", source), cast("Any", simple))
    passed = deltas.relevant(delta, cast("Any", simple))
    assert passed is not None
    assert passed.num_rows == sum(_duckdb('("i" > 0)', table))
    with pytest.raises(AssertionError, match="was run: SELECT") as raised:
        deltas.relevant(delta, cast("Any", other))
    assert '"i" > 0' not in str(raised.value)
