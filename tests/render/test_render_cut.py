"""Cutting a statement: what is shared is computed once, and little is written out."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp, parse_one

from mzsql.render.rewrites.cut import MINIMUM_GAIN, pieces


def doubling(depth: int) -> exp.Expression:
    """A chain in which every CTE names the one before it twice: 2^depth when written out."""
    ctes = ['"n0" AS (SELECT "x" FROM "t")']
    ctes += [
        f'"n{i}" AS (SELECT "a"."x" + "b"."x" AS "x" FROM "n{i - 1}" AS "a" CROSS JOIN "n{i - 1}" AS "b")'
        for i in range(1, depth + 1)
    ]
    return parse_one(f'WITH {", ".join(ctes)} SELECT "x" FROM "n{depth}"', dialect="duckdb")


def written_out(query: exp.Expression) -> int:
    ctes = {cte.alias: cte.this for cte in query.find_all(exp.CTE)}
    body = query.copy()
    body.set("with_", None)

    def size(one: exp.Expression) -> int:
        return sum(1 + size(ctes[t.name]) for t in one.find_all(exp.Table) if t.name in ctes)

    return size(body)


@pytest.mark.parametrize("depth", [3, 8, 12])
def test_pieces_mean_the_whole_and_stay_small(depth):
    statement = doubling(depth)
    made = pieces(statement)
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE "t" AS SELECT 1 AS "x"')
        for piece in made[:-1]:
            text = piece.statement.sql("duckdb", identify=True)
            connection.execute(f'CREATE TEMP TABLE "{piece.name}" AS {text}')
        answer = connection.sql(made[-1].statement.sql("duckdb", identify=True)).fetchall()
    assert answer == [(2**depth,)]
    assert [piece.name for piece in made].count(None) == 1
    assert made[-1].name is None
    assert all(written_out(piece.statement) <= 2 * MINIMUM_GAIN for piece in made)


def test_what_is_named_once_is_not_cut():
    statement = parse_one(
        'WITH "a" AS (SELECT * FROM "t"), "b" AS (SELECT * FROM "a") SELECT * FROM "b"',
        dialect="duckdb",
    )
    (only,) = pieces(statement)
    assert only.name is None
    assert only.reads == ("t",)
    assert only.statement.sql("duckdb") == statement.sql("duckdb")


def test_a_piece_names_what_it_reads():
    made = pieces(doubling(10))
    known = {"t"}
    for piece in made:
        assert set(piece.reads) <= known
        if piece.name is not None:
            known.add(piece.name)
