"""The names of a result's columns, as PostgreSQL gives them."""

from __future__ import annotations

import pytest

QUERIES = """
SELECT a, t.b, a + 1, -a, 'x', 1, NULL FROM t
SELECT a AS "K", b AS k FROM t
SELECT a NULL, b TRUE, s FALSE FROM t
SELECT (q).*, (q).b FROM (SELECT a, b FROM t) q
SELECT max(a), count(*), sum(b) + 1, lower(max(s)) FROM t
SELECT 1::text, 1::text::int, a::bigint, (a + 1)::numeric, CAST(max(a) AS smallint) FROM t GROUP BY a
SELECT CASE WHEN true THEN 1 ELSE a END, CASE WHEN true THEN a END, CASE a WHEN 1 THEN 2 ELSE 1::int END FROM t
SELECT (SELECT a), (SELECT * FROM (SELECT 1 AS q) z), (SELECT max(c) FROM u), (SELECT 1 + 1) FROM t
SELECT (SELECT a)::text, (SELECT max(c) FROM u)::bigint, CASE WHEN true THEN 1 ELSE (SELECT min(d) FROM u) END FROM t
SELECT EXISTS (SELECT 1), (VALUES (1)), coalesce(a, 1), nullif(a, 2) FROM t
SELECT * FROM t JOIN w USING (a)
SELECT * FROM t NATURAL JOIN w, u
SELECT w.*, t.* FROM t JOIN w USING (a)
SELECT q.* FROM (t JOIN w USING (b)) AS q (one, two)
VALUES (1, 2)
SELECT a FROM t UNION SELECT c FROM u
WITH q (k) AS (SELECT a, b FROM t) SELECT * FROM q
"""


@pytest.mark.parametrize("sql", QUERIES.strip().splitlines())
def test_columns_are_named_as_in_postgres(worlds, sql: str) -> None:
    theirs = worlds.postgres.execute(sql).description
    assert list(worlds.catalog.plan(sql).query.desc.names) == [column.name for column in theirs]


def test_the_name_of_merged_columns_is_kept_quoted(worlds) -> None:
    plan = worlds.catalog.plan(
        "CREATE VIEW merged AS SELECT x.a FROM t JOIN w USING (a) AS x WHERE x.a = 1"
    )
    assert 'USING ("a") AS "x" WHERE "x"."a" = 1' in plan.create_sql
    assert worlds.catalog.plan(plan.create_sql).create_sql == plan.create_sql
