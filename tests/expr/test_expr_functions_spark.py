"""Every scalar function in Spark and in DuckDB: the same values, the same errors, to the last bit.

What is declared portable is spelled for each engine; the rest is the in-process evaluator's, which Spark has to hand values to and take
answers from without changing them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from function_cases import AWKWARD, Case, build, identical, is_alias, same

from mzsql.compute.engines.statements import register
from mzsql.expr import functions, spell
from mzsql.expr.engines import SPARK_STEP_SETTINGS, to_sql
from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.repr.datum import Datum
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import SqlType, arrow_schema
from mzsql.repr.values import arrow_value, datums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = build(size=110, seed=11, more=AWKWARD)
#: Functions in one statement.
_CHUNK = 60


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    mine = spark.newSession()
    for key, value in SPARK_STEP_SETTINGS.items():
        mine.conf.set(key, value)
    # Looking for common parts of hundreds of unlike expressions is most of the time and changes no value.
    mine.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    schema = arrow_schema(CASES.columns)
    columns = [
        pa.array([arrow_value(row[i], column.type) for row in CASES.rows], field.type)
        for i, (column, field) in enumerate(zip(CASES.columns, schema, strict=True))
    ]
    table = pa.Table.from_arrays(columns, schema=schema)
    frame = mine.createDataFrame(table, schema=from_arrow_schema(schema, prefer_timestamp_ntz=True))
    frame.createOrReplaceTempView("v")
    return mine


def _columns() -> list[Sql]:
    from sqlglot import exp

    return [
        Sql(exp.column(exp.to_identifier(f"c{i}", quoted=True)), column.type)
        for i, column in enumerate(CASES.columns)
    ]


def _spark_answers(session: SparkSession, cases: list[Case]) -> list[list[Datum | EvalError]]:
    items, columns = [], _columns()
    for n, case in enumerate(cases):
        value = spell.typed(
            spell.value(case.expr, columns, Engine.SPARK), case.expr.typ, Engine.SPARK
        )
        failure = spell.error(case.expr, columns, Engine.SPARK)
        message = s.string(s.null() if failure is None else failure)
        for ast in (value, message):
            register(session, ast)
        items.append(
            f"{to_sql(value, Engine.SPARK)} AS v{n}, {to_sql(message, Engine.SPARK)} AS e{n}"
        )
    result = session.sql(f"SELECT {', '.join(items)} FROM v").toArrow()
    answers = []
    for n, case in enumerate(cases):
        values = datums(result.column(f"v{n}"), case.expr.typ)
        messages = result.column(f"e{n}").to_pylist()
        answers.append(
            [v if m is None else EvalError(m) for v, m in zip(values, messages, strict=True)]
        )
    return answers


def _in_spark(case: Case) -> bool:
    """Whether it can be spelled; some take constants only."""
    try:
        spell.value(case.expr, _columns(), Engine.SPARK)
        spell.error(case.expr, _columns(), Engine.SPARK)
    except Unsupported:
        return False
    return True


def _own_spelling(key: str) -> bool:
    """Not one that only wraps another: a field as a double, a text cut to length."""
    if is_alias(key):
        return False
    if "uint2" in key:  # goes the way of uint4
        return False
    wrapped = key.startswith("date_part_") and "epoch" not in key and "second" not in key
    source = key.partition("_to_")[0]
    cut = key.endswith(("_to_varchar", "_to_char")) and source not in ("text", "varchar", "char")
    return not wrapped and not cut


@pytest.mark.spark
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 4])
def test_every_function_is_the_same_in_spark_and_duckdb(session: SparkSession, every: int) -> None:
    evaluator = Evaluator(exact_numerics=False)
    cases = [case for case in CASES.cases if _own_spelling(case.func.key) and _in_spark(case)]
    assert len(cases) > 500
    cases = cases[::every]
    wrong: list[str] = []
    for start in range(0, len(cases), _CHUNK):
        chunk = cases[start : start + _CHUNK]
        in_spark = _spark_answers(session, chunk)
        in_duckdb = evaluator.evaluate_rows([c.expr for c in chunk], CASES.rows, CASES.columns)
        for n, case in enumerate(chunk):
            for row, left, right in zip(
                CASES.rows, in_spark[n], (r[n] for r in in_duckdb), strict=True
            ):
                if not identical(left, right):
                    args = tuple(row[i] for i in case.columns)
                    wrong.append(f"{case.func.key}{args}: Spark {left!r}, DuckDB {right!r}")
    assert not wrong, "\n".join(wrong[:40])


@pytest.mark.spark
def test_aggregates_are_the_same_in_spark_and_duckdb(session: SparkSession) -> None:
    """Accumulated, finished and failed, over all rows as one group; basic ones and extremes likewise."""
    evaluator = Evaluator(exact_numerics=False)
    from mzsql.expr.scalar import AggregateExpr, Column

    items, expected, types = [], [], []
    columns = _columns()
    for func in functions.all_aggregates():
        if len(func.args) != 1 or "order_by" in func.key:
            continue  # the latter collect rows made for them
        wanted = "integer" if func.args[0].kind == "any" else func.args[0].kind
        index = next(i for i, column in enumerate(CASES.columns) if column.type.kind == wanted)
        source = columns[index]
        typ = func.result_type([source.typ])
        aggregate = AggregateExpr(func.key, Column(index), False, typ, func.nullable)
        found = evaluator.aggregate_rows(
            [], [aggregate], [(row, 1) for row in CASES.rows], CASES.columns
        )
        try:
            value, message = _aggregate_asts(func, source, typ)
        except Unsupported:
            continue
        expected.append(found if isinstance(found, EvalError) else found[0][0])
        items.append(
            f"{to_sql(value, Engine.SPARK)} AS v{len(types)}, {to_sql(message, Engine.SPARK)} AS e{len(types)}"
        )
        types.append((func.key, typ))
    result = session.sql(f"SELECT {', '.join(items)} FROM v").toArrow()
    for n, (key, typ) in enumerate(types):
        message = result.column(f"e{n}")[0].as_py()
        answer = EvalError(message) if message else datums(result.column(f"v{n}"), typ)[0]
        assert same(answer, expected[n]), (key, answer, expected[n])


def _aggregate_asts(
    func: functions.AggregateFunc, source: Sql, typ: SqlType
) -> tuple[s.Ast, s.Ast]:
    if func.accumulate is None:
        assert func.value is not None
        return spell.typed(func.value(Engine.SPARK, [source], typ), typ, Engine.SPARK), s.string(
            s.null()
        )
    kinds = [kind for _, kind in func.accumulator_types(source.typ)]
    sums = [
        Sql(s.cast(s.call("SUM", summand), kind, Engine.SPARK), kind)
        for summand, kind in zip(
            func.accumulate(Engine.SPARK, source, s.big(s.num(1))), kinds, strict=True
        )
    ]
    assert func.finish is not None
    failure = spell.rules_error(func.errors, sums, typ, Engine.SPARK, strict=False)
    finished = spell.typed(func.finish(Engine.SPARK, sums, typ), typ, Engine.SPARK)
    return finished, s.string(s.null() if failure is None else failure)
