"""Statements: what each becomes, and texts that survive a round trip."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal

import pytest
from memory_catalog import MemoryCatalog
from worlds_kit import Worlds, plain

from mzsql.expr.scalar import Call, Column, Literal
from mzsql.frontend import bind_parameters, hir, lower_query, parse_statements
from mzsql.frontend.catalog import FullName
from mzsql.frontend.plan import ddl_plans, plans, session_plans
from mzsql.repr.errors import InvalidParameter, SqlError, Unsupported
from mzsql.repr.types import INTEGER, SqlType

SCHEMA = """
CREATE TABLE t (a int, b int NOT NULL DEFAULT 3, s text);
CREATE TABLE "Odd Name" ("A" varchar(5), n numeric(10, 2), at timestamptz, d double precision);
CREATE VIEW v AS SELECT a, b FROM t;
"""


@pytest.fixture
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run(SCHEMA)
    return made


def test_create_table(catalog: MemoryCatalog) -> None:
    plan = catalog.plan(
        "CREATE TABLE IF NOT EXISTS x (a int, b numeric(10, 2) NOT NULL, c timestamp DEFAULT NULL)"
    )
    assert plan.name == FullName("materialize", "public", "x")
    assert plan.if_not_exists
    assert plan.desc.names == ("a", "b", "c")
    assert [c.nullable for c in plan.desc.typ.columns] == [True, False, True]
    assert plan.desc.typ.columns[1].type == SqlType("numeric", scale=2)
    assert plan.defaults[0] is None
    assert plan.desc.typ.keys == ()


def test_keys_of_tables(catalog: MemoryCatalog) -> None:
    documented = catalog.plan("CREATE TABLE x (a int, b int, PRIMARY KEY (a) NOT ENFORCED)")
    assert documented.desc.typ.keys == ()
    assert [c.nullable for c in documented.desc.typ.columns] == [False, True]
    trusted = catalog.plan("CREATE TABLE x (a int PRIMARY KEY, b int UNIQUE)", table_keys=True)
    assert trusted.desc.typ.keys == ((0,), (1,))
    assert [c.nullable for c in trusted.desc.typ.columns] == [False, True]


UNENFORCED = [
    ("CREATE TABLE x (a int CHECK (a > 0), b int)", "check constraint"),
    ("CREATE TABLE x (a int, b int, CONSTRAINT c CHECK (a > 0 AND b < a))", "check constraint"),
    ("CREATE TABLE x (a int REFERENCES t (a), b int)", "foreign key"),
    ("CREATE TABLE x (a int REFERENCES t NOT NULL, b int)", "foreign key"),
    ("CREATE TABLE x (a int, b int, FOREIGN KEY (a, b) REFERENCES t (a, b))", "foreign key"),
]


@pytest.mark.parametrize(("text", "kind"), UNENFORCED)
def test_constraints_that_nothing_enforces_are_taken_where_keys_are(
    catalog: MemoryCatalog, text: str, kind: str
) -> None:
    with pytest.raises(Unsupported, match=f"CREATE TABLE with a {kind} is not supported"):
        catalog.plan(text)
    taken = catalog.plan(text, table_keys=True)
    assert taken.desc.names == ("a", "b")
    assert catalog.plan(taken.create_sql).desc == taken.desc
    assert taken.desc.typ.keys == ()
    assert taken.desc.typ.columns[0].nullable == ("NOT NULL" not in text)


VIEWS = [
    "CREATE VIEW x AS SELECT a, t.b AS Y, 'It''s' AS q FROM t -- comment\n WHERE a > 1",
    "create view other.x (p, q) as select t.* from public.t as t limit 3",
    "CREATE VIEW x AS WITH q (k) AS (SELECT a FROM t) SELECT q.k FROM q JOIN v ON v.a = q.k",
    'CREATE VIEW x AS SELECT "A" AS "B c", n::numeric(12, 3) FROM "Odd Name" o WHERE o."A" LIKE \'x%\'',
    "CREATE VIEW x AS SELECT (SELECT max(b) FROM t t2 WHERE t2.a = t.a) AS m FROM t",
    "CREATE VIEW x AS SELECT count(*) AS n, sum(b) FILTER (WHERE a > 0) AS m FROM t GROUP BY a OPTIONS (AGGREGATE INPUT GROUP SIZE = 5)",
    "CREATE VIEW x AS SELECT date '2020-01-01' + interval '90' day AS d, extract(year FROM current_date) AS e",
    "CREATE VIEW x AS WITH MUTUALLY RECURSIVE (RECURSION LIMIT 10) r (n int) AS (SELECT 1 UNION SELECT n + 1 FROM r) TABLE r",
    "CREATE MATERIALIZED VIEW x IN CLUSTER other WITH (ASSERT NOT NULL a) AS SELECT a FROM t UNION ALL VALUES (1)",
    "CREATE MATERIALIZED VIEW x AS SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b DESC NULLS LAST",
    "CREATE TABLE x (a int NOT NULL DEFAULT 1 + 2, b varchar(3), c timestamp with time zone, d double precision, e numeric(10,2))",
    "CREATE INDEX ON t (a, b + 1, upper(s))",
    "CREATE DEFAULT INDEX IN CLUSTER other ON v",
]


@pytest.mark.parametrize("sql", VIEWS)
def test_normalized_text_means_the_same_and_is_stable(catalog: MemoryCatalog, sql: str) -> None:
    first = catalog.plan(sql)
    again = catalog.plan(first.create_sql)
    assert again.create_sql == first.create_sql
    assert again.name == first.name
    if hasattr(first, "query"):
        assert again.query == first.query
    elif hasattr(first, "desc"):
        assert (again.desc, again.defaults) == (first.desc, first.defaults)
    else:
        assert again.keys == first.keys


def test_normalized_text_is_materializes(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("create materialized view mv as select a from t where b>1")
    assert plan.create_sql == (
        'CREATE MATERIALIZED VIEW "materialize"."public"."mv" IN CLUSTER "quickstart" WITH (REFRESH = ON COMMIT) AS '
        'SELECT "a" FROM "materialize"."public"."t" WHERE "b">1'
    )


def test_views_limit_inside_and_drop_their_order(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("CREATE VIEW x AS SELECT a FROM t ORDER BY b LIMIT 2")
    assert plan.query.finishing.is_trivial(1)
    assert any(isinstance(node, hir.TopK) for node in hir.walk(plan.query.relation))
    plan = catalog.plan("SELECT a FROM t ORDER BY b LIMIT 2")
    assert plan.query.finishing.limit == 2
    assert plan.query.desc.names == ("a",)


def test_create_index(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("CREATE INDEX ON t (a, b + 1)")
    assert plan.name.item == "t_a_expr_idx"
    assert plan.keys == (
        Column(0),
        Call("add_integer", (Column(1), Literal(1, INTEGER)), INTEGER),
    )
    assert catalog.plan("CREATE DEFAULT INDEX ON t").keys == (Column(0), Column(1), Column(2))
    catalog.run("CREATE INDEX ON t (a)")
    assert catalog.plan("CREATE INDEX ON t (a)").name.item == "t_a_idx1"
    catalog.run("CREATE VIEW g AS SELECT a, count(*) AS n FROM t GROUP BY a")
    assert catalog.plan("CREATE DEFAULT INDEX ON g").keys == (Column(0),)


def test_drop(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("DROP TABLE IF EXISTS t, nope CASCADE")
    assert [i.name.item for i in plan.items] == ["t"]
    assert plan.missing == ("nope",)
    assert plan.cascade


def test_session_statements(catalog: MemoryCatalog) -> None:
    expected = {
        "SHOW cluster": session_plans.ShowVariablePlan("cluster"),
        "SET cluster = quickstart": session_plans.SetVariablePlan("cluster", ("quickstart",)),
        "SET LOCAL search_path TO public, 'Other'": session_plans.SetVariablePlan(
            "search_path", ("public", "Other"), local=True
        ),
        "RESET cluster": session_plans.SetVariablePlan("cluster", None),
        "SET TIME ZONE 'UTC'": session_plans.SetVariablePlan("timezone", ("UTC",)),
        "ALTER SYSTEM SET enable_eager_delta_joins = true": session_plans.AlterSystemPlan(
            "enable_eager_delta_joins", ("true",)
        ),
        "BEGIN": session_plans.BeginPlan(),
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY": session_plans.BeginPlan(
            "serializable", read_only=True
        ),
        "COMMIT": session_plans.CommitPlan(),
        "END": session_plans.CommitPlan(),
        "ROLLBACK WORK": session_plans.RollbackPlan(),
    }
    assert {sql: catalog.plan(sql) for sql in expected} == expected
    created = catalog.plan("SHOW CREATE TABLE t").query
    assert created.desc.names == ("name", "create_sql")
    assert "materialize.public.t" in repr(created.relation)


def test_explain(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("EXPLAIN PHYSICAL PLAN WITH (node_ids, arity = false) AS JSON FOR SELECT 1")
    assert (plan.stage, plan.format) == ("physical", "json")
    assert plan.options == (("node identifiers", True), ("arity", False))
    assert isinstance(plan.explainee, plans.SelectPlan)
    assert catalog.plan("EXPLAIN SELECT 1").stage == "optimized"
    created = catalog.plan("EXPLAIN RAW PLAN FOR CREATE MATERIALIZED VIEW x AS SELECT 1").explainee
    assert isinstance(created, ddl_plans.CreateMaterializedViewPlan)
    catalog.run("CREATE MATERIALIZED VIEW m AS SELECT 1 AS x")
    replanned = catalog.plan("EXPLAIN OPTIMIZED PLAN FOR REPLAN MATERIALIZED VIEW m")
    assert replanned.replan
    assert replanned.explainee.name.item == "m"


def test_copy(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("COPY t (s, a) FROM '/data/x.csv' (FORMAT CSV, HEADER, DELIMITER '|')")
    assert (plan.columns, plan.format, plan.header, plan.delimiter) == ((2, 0), "csv", True, "|")
    assert catalog.plan("COPY t FROM '/data/x.parquet'").format == "parquet"


def test_several_statements_in_a_text() -> None:
    parsed = parse_statements("SELECT 1; ; SELECT ';' -- x;y\n; COMMIT;")
    assert [type(s).__name__ for s in parsed] == ["Select", "Select", "Transaction"]
    assert parsed[1].source.statement == "SELECT ';'"
    assert parse_statements("  -- nothing\n") == []


# --- writing, against PostgreSQL ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO target VALUES (1, 2, 'x'), (2, DEFAULT, NULL)",
        "INSERT INTO target (s, a) VALUES ('q', 1), (DEFAULT, 3)",
        "INSERT INTO target (s) SELECT s FROM t",
        "INSERT INTO target SELECT a, b FROM t WHERE b IS NOT NULL",
        "INSERT INTO target SELECT '7', 8.6, 9",
        "INSERT INTO target VALUES ('7', 8.6, 9)",
        "INSERT INTO target (b) VALUES (1 + 1), ((SELECT max(a) FROM t))",
        "INSERT INTO target DEFAULT VALUES",
    ],
)
def test_insert_yields_the_rows_postgres_inserts(worlds: Worlds, sql: str) -> None:
    schema = "CREATE TABLE target (a int, b int DEFAULT 3, s text DEFAULT 'd' || 'd')"
    worlds.postgres.execute(f"DROP TABLE IF EXISTS target; {schema}")
    worlds.postgres.execute(sql)
    expected = worlds.postgres.execute("SELECT * FROM target").fetchall()
    if FullName("materialize", "public", "target") not in worlds.catalog.items:
        worlds.catalog.run(schema)
    got = worlds.evaluate(worlds.catalog.plan(sql).source)
    assert Counter(tuple(map(plain, r)) for r in got) == Counter(
        tuple(map(plain, r)) for r in expected
    )


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "WHERE a = 1",
        "WHERE a IN (SELECT c FROM u)",
        "WHERE b > (SELECT avg(b) FROM t x WHERE x.a = t.a)",
    ],
)
def test_delete_and_update_select_what_postgres_changes(worlds: Worlds, tail: str) -> None:
    before = Counter(worlds.postgres.execute("SELECT * FROM t").fetchall())
    deleted = Counter(worlds.evaluate(worlds.catalog.plan(f"DELETE FROM t {tail}").selection))
    update = f"UPDATE t SET b = a + 1, s = DEFAULT {tail}"
    pairs = worlds.evaluate(worlds.catalog.plan(update).selection)
    updated = before - Counter(p[:3] for p in pairs) + Counter(p[3:] for p in pairs)
    assert Counter(p[:3] for p in pairs) == deleted
    with worlds.postgres.transaction(force_rollback=True):
        worlds.postgres.execute(update)
        assert updated == Counter(worlds.postgres.execute("SELECT * FROM t").fetchall())
    with worlds.postgres.transaction(force_rollback=True):
        worlds.postgres.execute(f"DELETE FROM t {tail}")
        after = Counter(worlds.postgres.execute("SELECT * FROM t").fetchall())
    assert before - deleted == after


def test_delete_using_counts_a_row_once(worlds: Worlds) -> None:
    plan = worlds.catalog.plan("DELETE FROM t USING u WHERE t.a = u.c")
    got = Counter(worlds.evaluate(plan.selection))
    expected = worlds.postgres.execute(
        "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.c = t.a)"
    ).fetchall()
    assert got == Counter(expected)


# --- parameters --------------------------------------------------------------------------------------

VALUES = [
    None,
    True,
    7,
    -7,
    2**70,
    1.5,
    float("inf"),
    Decimal("-12.50"),
    'it\'s \\ "x" %s',
    dt.date(2020, 2, 29),
    dt.datetime(2020, 2, 29, 1, 2, 3, 456),
    dt.datetime(2020, 2, 29, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    dt.time(1, 2, 3),
    dt.timedelta(days=3, seconds=7),
    b"\x00\xff",
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_parameter_is_the_literal_postgres_reads(worlds: Worlds, value: object) -> None:
    bound = bind_parameters("SELECT %s AS x", [value])
    (theirs,) = worlds.postgres.execute(bound).fetchone()
    assert theirs == value
    assert lower_query(worlds.catalog.plan(bound).query).desc.arity == 1


def test_placeholders() -> None:
    assert bind_parameters("SELECT 10 % 3") == "SELECT 10 % 3"
    assert bind_parameters("SELECT '%s', %%, %s -- %s", [1]) == "SELECT '%s', %, 1 -- %s"
    assert bind_parameters("%(a)s + %(b)s + %(a)s", {"a": 1, "b": "x'y"}) == "1 + 'x''y' + 1"


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT %s", []),
        ("SELECT 1", [1]),
        ("SELECT %(a)s", {"b": 1}),
        ("SELECT %(a)s", [1]),
        ("SELECT %s", {"a": 1}),
        ("SELECT %d", [1]),
        ("SELECT %s", [object()]),
        ("SELECT %s", ["\0"]),
        ("SELECT %s", "abc"),
    ],
)
def test_wrong_parameters_are_refused(text: str, params: object) -> None:
    with pytest.raises(InvalidParameter):
        bind_parameters(text, params)


def test_a_bound_text_cannot_break_out(catalog: MemoryCatalog) -> None:
    hostile = "x'; DROP TABLE t; --"
    (statement,) = parse_statements(bind_parameters("SELECT %s", [hostile]))
    assert type(statement).__name__ == "Select"
    with pytest.raises(SqlError):
        parse_statements("SELECT $1 FROM")
    del catalog
