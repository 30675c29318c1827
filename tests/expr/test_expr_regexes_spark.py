"""Regular expressions and table functions of texts in Spark and in DuckDB: the same matches, groups, pieces and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from sqlglot import exp

from mzsql.compute.engines.statements import register
from mzsql.expr import functions, spell
from mzsql.expr.engines import duckdb_connection, to_sql
from mzsql.expr.evaluate import Evaluator
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.scalar import Call, Column, Literal
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import BOOLEAN, INTEGER, TEXT, ColumnType, SqlType
from mzsql.repr.values import datums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    "", "a", "aXbXc", "foobarbaz", "héllo wörld", "line\nbreak", "end\n", "2024-02-29", "a1b22c333", "[x]{2}", "ÄÖ", "x&y", "_under score_",
    'a,"b,""c"\nd,e\nonly\n',
]  # fmt: skip
PATTERNS = [
    "b", "^a", "c$", "d$", "a.c", "(o+)(b)?", "([0-9]+)-([0-9]+)", "(x)|(y)", "[[:digit:][:space:]]", "[^a-z]", "[[]", "\\w+", "\\d\\d",
    "\\W", "[\\w&]+$", "(a)(b)?(c)?", "a{1,2}", "\\[x\\]\\{2\\}", "^$", "Ä", "X*", "(?P<a_b>x)y?", "\\bworld\\b", "\\Bo", "(?i)ä", "e{",
    "a|b$", "[a&&b]", "(?m)^[a-z]+$",
]  # fmt: skip
_ARRAY = SqlType("array", element=TEXT)


def _text(value: str) -> Literal:
    return Literal(value, TEXT)


def _calls() -> list[Call]:
    found = []
    for pattern in PATTERNS:
        given = (Column(0), _text(pattern))
        found += [
            Call("regex_match", given, BOOLEAN),
            Call("regex_not_imatch", given, BOOLEAN),
            Call("regexp_match", given, _ARRAY),
            Call("regexp_match_flags", (*given, _text("in")), _ARRAY),
            Call("regexp_replace", (*given, _text("<$1>")), TEXT),
            Call("regexp_replace_flags", (*given, _text("<$1>"), _text("g")), TEXT),
            Call("regexp_split_to_array", given, _ARRAY),
        ]
    return found


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    mine = spark.newSession()
    mine.createDataFrame(pa.table({"c0": TEXTS})).createOrReplaceTempView("texts")
    return mine


def _column() -> Sql:
    return Sql(exp.column(exp.to_identifier("c0", quoted=True)), TEXT)


@pytest.mark.spark
def test_patterns_are_the_same_in_spark_and_duckdb(session: SparkSession) -> None:
    items: list[str] = []
    kept: list[Call] = []
    for call in _calls():
        try:
            value = spell.value(call, [_column()], Engine.SPARK)
        except Unsupported:
            continue  # every match of what matches the empty text
        register(session, value)
        shown = to_sql(spell.typed(value, call.typ, Engine.SPARK), Engine.SPARK)
        items.append(f"{shown} AS v{len(kept)}")
        kept.append(call)
    result = session.sql(f"SELECT c0, {', '.join(items)} FROM texts").toArrow()
    rows = [(text,) for text in result.column("c0").to_pylist()]
    expected = Evaluator().evaluate_rows(kept, rows, [ColumnType(TEXT)])
    wrong = []
    for n, call in enumerate(kept):
        found = datums(result.column(f"v{n}"), call.typ)
        for row, ours, theirs in zip(rows, found, (e[n] for e in expected), strict=True):
            if ours != theirs:
                wrong.append((call.func, call.args[1], row, ours, theirs))
    assert len(kept) > 190
    assert not wrong, wrong[:20]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("regexp_matches", [], ["([a-z])([0-9]+)?"]),
        ("regexp_matches_flags", [], ["([a-z])([0-9]+)?", "g"]),
        ("regexp_split_to_table", [], ["[ ,]"]),
        ("regexp_extract/a/b", ["([a-z])([0-9])?"], []),
        ("csv_extract/2", [2], []),
    ],
)
def test_table_functions_are_the_same_in_spark_and_duckdb(
    session: SparkSession, key: str, before: list[str | int], after: list[str | int]
) -> None:
    func = functions.table_func(key)

    def query(engine: Engine) -> str:
        def constant(value: str | int) -> Sql:
            typ = TEXT if isinstance(value, str) else INTEGER
            return Sql(spell.literal(value, typ, engine), typ)

        args = [*map(constant, before), _column(), *map(constant, after)]
        rows = func.rows(engine, args, func.output.columns[0].type)
        return f"SELECT c0, {to_sql(rows, engine)} AS r FROM texts ORDER BY c0"

    duck = duckdb_connection()
    duck.register("texts", pa.table({"c0": TEXTS}))
    ours = session.sql(query(Engine.SPARK)).toArrow().to_pylist()
    theirs = duck.sql(query(Engine.DUCKDB)).to_arrow_table().to_pylist()
    assert {row["c0"]: row["r"] or [] for row in ours} == {
        row["c0"]: row["r"] or [] for row in theirs
    }
    assert any(row["r"] for row in ours)
