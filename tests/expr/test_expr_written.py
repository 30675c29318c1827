"""Statements as text, and what they hold: writing changes no tree, and one walk finds what sqlglot finds."""

from __future__ import annotations

import functools

import pytest
from function_cases import Case, build
from sqlglot import exp

from mzsql.expr import functions, spell
from mzsql.expr.engines import to_sql, to_sql_with_numbers
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.nodes import is_tree, nodes, relations_in
from mzsql.repr.errors import Unsupported

CASES = build(size=1)
COLUMNS = [
    Sql(exp.column(exp.to_identifier(f"c{i}", quoted=True)), column.type)
    for i, column in enumerate(CASES.columns)
]


@functools.cache
def spelled(case: Case) -> tuple[exp.Expression, ...]:
    """The value and the error of a function's call, for DuckDB; none where it takes constants only."""
    try:
        made = spell.value(case.expr, COLUMNS, Engine.DUCKDB)
        failure = spell.error(case.expr, COLUMNS, Engine.DUCKDB)
    except Unsupported:
        return ()
    value = spell.typed(made, case.expr.typ, Engine.DUCKDB)
    return (value,) if failure is None else (value, failure)


def test_writing_changes_no_tree() -> None:
    written = 0
    for case in CASES.cases:
        for tree in spelled(case):
            before = tree.copy()
            first = to_sql(tree, Engine.DUCKDB)
            assert tree == before, case.func.key
            assert to_sql(before.copy(), Engine.DUCKDB) == to_sql(tree, Engine.DUCKDB) == first
            written += 1
    assert written > len(functions.all_scalars()) // 2


def test_types_are_written_as_sqlglot_writes_them() -> None:
    for case in CASES.cases:
        for tree in spelled(case):
            for typ in nodes(tree, exp.DataType):
                assert to_sql(typ, Engine.DUCKDB) == typ.sql("duckdb", identify=True)


@pytest.mark.parametrize(
    "kind",
    [exp.Anonymous, exp.AggFunc, exp.Cast, exp.Column, exp.Literal, exp.DataType, exp.Binary],
)
def test_nodes_are_those_that_sqlglot_finds(kind: type[exp.Expr]) -> None:
    for case in CASES.cases:
        for tree in spelled(case):
            found = [id(one) for one in nodes(tree, kind)]
            assert sorted(found) == sorted(id(one) for one in tree.find_all(kind)), case.func.key


def test_relations_are_those_read_and_no_aliases_of_hints() -> None:
    query = (
        exp.select("*").from_("a").join("b", on="a.x = b.x").where("x IN (SELECT y FROM c AS d)")
    )
    query = query.with_("e", as_="SELECT 1 FROM f").hint("BROADCAST(g)", dialect="spark")
    assert list(query.find_all(exp.JoinHint))
    assert relations_in(query) == {"a", "b", "c", "f"}


def test_numbers_are_counted_as_they_are_written() -> None:
    query = exp.select("7", "'7'", "x + 7 AS y7").from_("t7").where("y < 70 AND z = -7")
    text, numbers = to_sql_with_numbers(query, Engine.DUCKDB)
    assert text == """SELECT 7, '7', "x" + 7 AS "y7" FROM "t7" WHERE "y" < 70 AND "z" = -7"""
    assert dict(numbers) == {"7": 3, "70": 1}


def test_a_node_in_two_places_is_written_as_it_is_in_each() -> None:
    part = exp.Mod(this=exp.column("b"), expression=exp.column("c"))
    product = exp.Mul(this=exp.column("a"), expression=part)
    assert is_tree(product)
    # It takes the product's place as what the part stands in.
    exp.Paren(this=part)
    assert not is_tree(product)
    assert to_sql(product, Engine.DUCKDB) == '"a" * ("b" % "c")'
