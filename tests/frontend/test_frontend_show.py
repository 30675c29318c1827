"""SHOW where a query stands."""

from __future__ import annotations

import pytest
from memory_catalog import MemoryCatalog

from mzsql.frontend import hir
from mzsql.frontend.catalog import ShownObjects
from mzsql.frontend.plan import plans
from mzsql.repr.errors import SqlError
from mzsql.repr.types import TEXT, ColumnType, RelationDesc, RelationType


class Shown(MemoryCatalog):
    """Answers each SHOW with what was asked for."""

    def shown(self, plan: ShownObjects) -> tuple[RelationDesc, list[tuple[str, str]]]:
        column = ColumnType(TEXT, True)
        desc = RelationDesc(("name", "comment"), RelationType((column, column)))
        return desc, [(plan.kind, plan.like or "")]


def constants(rel: hir.Relation) -> list[tuple]:
    found = [rel] if isinstance(rel, hir.Constant) else []
    return [r for f in found for r in f.rows] + [
        r for part in hir.relation_inputs(rel) for r in constants(part)
    ]


@pytest.mark.parametrize(
    ("text", "kind", "like"),
    [
        ("SELECT name FROM (SHOW TABLES)", "tables", ""),
        (
            "SELECT s.name FROM (SHOW CLUSTER REPLICAS LIKE 'r%') AS s, (VALUES (1)) AS v (x)",
            "cluster replicas",
            "r%",
        ),
        ("SHOW MATERIALIZED VIEWS WHERE name = 'x'", "materialized views", ""),
        ("SELECT * FROM (SHOW SCHEMAS WHERE name LIKE 'p%') WHERE comment = ''", "schemas", ""),
        ("WITH c AS (SELECT * FROM (SHOW CONNECTIONS)) SELECT count(*) FROM c", "connections", ""),
    ],
)
def test_show_is_a_relation(text: str, kind: str, like: str) -> None:
    plan = Shown().plan(text)
    assert isinstance(plan, plans.SelectPlan)
    assert (kind, like) in constants(plan.query.relation)


def test_a_table_may_be_called_show() -> None:
    catalog = Shown()
    catalog.run("CREATE TABLE show (tables int)")
    plan = catalog.plan("SELECT show.tables FROM (show)")
    assert plan.query.desc.names == ("tables",)
    assert catalog.plan("SELECT tables FROM show").query.desc.names == ("tables",)


@pytest.mark.parametrize("view", ["VIEW", "MATERIALIZED VIEW"])
def test_views_may_not_show(view: str) -> None:
    with pytest.raises(SqlError, match="SHOW commands are not allowed in views"):
        Shown().plan(f"CREATE {view} v AS SELECT name FROM (SHOW DATABASES)")


def test_a_subscription_shows_by_itself_only() -> None:
    with pytest.raises(SqlError, match="SHOW is not supported within"):
        Shown().plan("SUBSCRIBE (SELECT * FROM (SHOW TABLES))")
    assert Shown().plan("SUBSCRIBE (SHOW TABLES)").show is not None


# --- options of materialized views ----------------------------------------------------------------


@pytest.fixture
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run("CREATE TABLE t (a int, b int)")
    return made


def test_what_is_asserted_not_null_fails_where_it_is(catalog: MemoryCatalog) -> None:
    plan = catalog.plan("CREATE MATERIALIZED VIEW m (x, y) WITH (ASSERT NOT NULL y) AS TABLE t")
    assert [c.nullable for c in plan.query.desc.typ.columns] == [True, False]
    assert 'column "y" must not be null' in repr(plan.query.relation)
    assert "WITH (ASSERT NOT NULL" in plan.create_sql
    again = catalog.plan(plan.create_sql)
    assert (again.query, again.create_sql) == (plan.query, plan.create_sql)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("ASSERT NOT NULL a, ASSERT NOT NULL a", 'duplicate column "a" in non-null assertions'),
        ("ASSERT NOT NULL c", 'column "c" in ASSERT NOT NULL option not found'),
        ("REFRESH 5", "Expected one of ON or AT or EVERY, found number"),
        ("REFRESH ON COMMIT, REFRESH ON COMMIT", "cannot be specified multiple times"),
        ("REFRESH ON COMMIT, REFRESH AT CREATION", "not compatible with any of the other"),
        ("REFRESH AT row(1, 2)", "REFRESH AT does not support casting from record"),
        ("REFRESH AT 'soon'", "REFRESH AT argument must be an expression that can be simplified"),
        ("REFRESH AT a", 'column "a" does not exist'),
        ("REFRESH AT now()", "REFRESH AT argument must be"),
        ("REFRESH AT max(5)", "aggregate functions are not allowed in REFRESH AT"),
        ("REFRESH AT (SELECT 1)", "REFRESH AT does not allow subqueries"),
        ("REFRESH EVERY 7", "Expected literal string, found number"),
        ("REFRESH EVERY '3 dayy'", "invalid input syntax for type interval"),
        ("REFRESH EVERY '-3 minutes'", "REFRESH interval must be positive; got: -00:03:00"),
        ("REFRESH EVERY '2 months'", "must not involve units larger than days"),
        ("REFRESH EVERY '1 h' ALIGNED TO 'x'", "REFRESH EVERY ... ALIGNED TO argument must be"),
        ("REFRESH EVERY '1 h' ALIGNED TO mz_now()", "is not available"),
        ("REFRESH AT CREATION", "is not available"),
    ],
)
def test_options_that_cannot_be_are_refused(
    catalog: MemoryCatalog, options: str, message: str
) -> None:
    with pytest.raises(SqlError) as raised:
        catalog.plan(f"CREATE MATERIALIZED VIEW m WITH ({options}) AS SELECT a, b FROM t")
    assert message in raised.value.message


def test_every_view_is_refreshed_on_commit(catalog: MemoryCatalog) -> None:
    said = catalog.plan("CREATE MATERIALIZED VIEW m WITH (REFRESH ON COMMIT) AS SELECT a FROM t")
    left_out = catalog.plan("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    assert said.create_sql == left_out.create_sql
    assert "WITH (REFRESH = ON COMMIT)" in said.create_sql
