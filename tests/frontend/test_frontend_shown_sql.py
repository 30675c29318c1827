"""Definitions as SHOW CREATE prints them: what is printed plans to what was kept, and prints the same again."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_catalog import MemoryCatalog

from mzsql.frontend.definitions.shown_sql import shown_defaults, shown_query, shown_sql
from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.plan import ddl_plans

TPCH = Path(__file__).parents[2] / "sql" / "tpch"
QUERIES = {path.stem: path.read_text().strip().rstrip(";") for path in sorted(TPCH.glob("q*.sql"))}
QUERIES |= {
    str(i): text
    for i, text in enumerate(
        [
            "SELECT -1, - n_nationkey, 1-1, 1::bigint-1, (1)-1, 'a'||'b', E'\\t', $$x$$ FROM nation",
            "SELECT date '2020-01-01' - interval '1 day' year, timestamp '2020-01-01', '{1}'::int[] || 2",
            "SELECT CASE WHEN true THEN 1 END, x[1:2], LIST[[1],[2]], MAP['a'=>MAP['b'=>1]] FROM (SELECT ARRAY[1,2] x)",
            "SELECT extract(year FROM now()), position('a' IN 'b'), trim(both 'x' FROM 'y'), substring('a' FROM 1 FOR 2)",
            "SELECT DISTINCT ON (a) a, count(*) FILTER (WHERE a>0) OVER (PARTITION BY a ORDER BY a ROWS 1 PRECEDING) FROM "
            "generate_series(1,2) WITH ORDINALITY t (a, o)",
            "SELECT f.*, EXISTS(SELECT 1), 1 IN (SELECT 1), 1 = ANY (ARRAY[1]), ROW(1,2) FROM ROWS FROM "
            "(generate_series(1,2), pg_catalog.generate_series(1,3)) f",
            "WITH MUTUALLY RECURSIVE (RECURSION LIMIT 5) r (n int, l text list) AS (SELECT 1, LIST['a'] UNION SELECT n+1, l FROM r) "
            "SELECT n::float8, NOT n IS NULL, n BETWEEN 1 AND 2, n IS DISTINCT FROM 1 FROM r",
            "SELECT sum(DISTINCT n_nationkey), array_agg(n_name ORDER BY n_name DESC NULLS LAST) FROM nation "
            "OPTIONS (AGGREGATE INPUT GROUP SIZE = 2)",
            "(SELECT 1 a UNION ALL VALUES (2), (3)) EXCEPT SELECT 4 ORDER BY 1 LIMIT 2 OFFSET 1",
            "SELECT n1.n_name FROM nation n1 LEFT OUTER JOIN nation n2 USING (n_nationkey) AS j WHERE n1.n_name ~~ 'a%'",
        ]
    )
}


_VIEWS = (ddl_plans.CreateViewPlan, ddl_plans.CreateMaterializedViewPlan)


@pytest.fixture(scope="module")
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run((TPCH / "schema.sql").read_text())
    return made


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_shown_means_what_is_kept(catalog: MemoryCatalog, name: str) -> None:
    columns = {"0": 8, "1": 3, "2": 4, "3": 4, "4": 2, "5": 6, "6": 4, "7": 2}.get(name, 0)
    listed = ", ".join(f"c{i}" for i in range(columns))
    head = "" if name.startswith("q") else f"CREATE VIEW made {f'({listed})' if listed else ''} AS "
    kept = catalog.plan(f"{head}{QUERIES[name]}")
    assert isinstance(kept, _VIEWS)
    shown = shown_sql(kept.create_sql)
    again = catalog.plan(shown)
    assert isinstance(again, _VIEWS)
    assert again.query == kept.query
    assert shown_sql(again.create_sql) == shown
    (parsed,) = parse_statements(shown)
    assert isinstance(parsed, st.CreateView)
    start, end = parsed.query.span
    assert shown_query(kept.create_sql) == f"{shown[start:end]};"


def test_tables_and_their_defaults(catalog: MemoryCatalog) -> None:
    text = "CREATE TABLE made (a numeric(12,3) DEFAULT -1.5, b text, c timestamp(3)[] DEFAULT '{}', d int NOT NULL DEFAULT 2*3)"
    kept = catalog.plan(text)
    assert isinstance(kept, ddl_plans.CreateTablePlan)
    again = catalog.plan(shown_sql(kept.create_sql))
    assert isinstance(again, ddl_plans.CreateTablePlan)
    assert (again.desc, again.defaults) == (kept.desc, kept.defaults)
    assert shown_defaults(kept.create_sql) == ("-1.5", None, "'{}'", "2 * 3")
    assert shown_sql("") == ""
