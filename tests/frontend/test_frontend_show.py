"""SHOW where a query stands."""

from __future__ import annotations

import pytest
from memory_catalog import MemoryCatalog

from mzsql.frontend import hir, lower_query
from mzsql.frontend.plan import plans
from mzsql.frontend.plan.refresh import scheduled
from mzsql.repr.errors import SqlError, SqlSyntaxError
from mzsql.repr.refresh import RefreshEvery, RefreshSchedule


def planned(text: str) -> hir.Query:
    catalog = MemoryCatalog()
    catalog.run("CREATE TABLE t (a int, b int)")
    plan = catalog.plan(text)
    assert isinstance(plan, plans.SelectPlan)
    return plan.query


_OBJECTS = "FROM mz_internal.mz_show_all_objects WHERE"


@pytest.mark.parametrize(
    ("shown", "meant"),
    [
        (
            "SHOW TABLES FROM public LIKE 'x%'",
            f"SELECT name, comment {_OBJECTS} database = 'materialize' AND schema = 'public' "
            "AND type = 'table' AND name LIKE 'x%' ORDER BY name, comment",
        ),
        (
            "SHOW OBJECTS FROM mz_internal",
            f"SELECT name, type, comment {_OBJECTS} schema = 'mz_internal' ORDER BY name, type",
        ),
        (
            "SHOW MATERIALIZED VIEWS IN CLUSTER quickstart",
            f"SELECT name, cluster, comment {_OBJECTS} database = 'materialize' AND schema = 'public' "
            "AND cluster = 'quickstart' AND type = 'materialized-view' ORDER BY name, cluster",
        ),
        (
            "SHOW COLUMNS FROM t",
            "SELECT name, nullable, type, comment FROM mz_internal.mz_show_columns "
            "WHERE id = 'u1' ORDER BY position",
        ),
        (
            "SHOW INDEXES ON t",
            """SELECT name, "on", cluster, key, comment FROM mz_internal.mz_show_indexes """
            """WHERE on_id = 'u1' ORDER BY name, "on" """,
        ),
        (
            "SHOW CREATE CLUSTER other",
            "SELECT name, create_sql FROM mz_internal.mz_show_create_clusters WHERE name = 'other'",
        ),
        ("SELECT name FROM (SHOW ROLES)", "SELECT name FROM mz_internal.mz_show_roles"),
        (
            "SHOW SCHEMAS WHERE name = 'x'",
            "SELECT * FROM (SELECT name, comment FROM mz_internal.mz_show_schemas "
            "WHERE database IS NULL OR database = 'materialize') WHERE name = 'x' ORDER BY 1",
        ),
        (
            "WITH c AS (SELECT * FROM (SHOW CONNECTIONS)) SELECT count(*) FROM c",
            f"WITH c AS (SELECT name, type, comment {_OBJECTS} database = 'materialize' AND "
            "schema = 'public' AND type = 'connection') SELECT count(*) FROM c",
        ),
    ],
)
def test_show_is_a_query_over_the_system_catalog(shown: str, meant: str) -> None:
    found, wanted = planned(shown), planned(meant)
    assert lower_query(found) == lower_query(wanted)
    assert found.desc == wanted.desc


def test_a_table_may_be_called_show() -> None:
    catalog = MemoryCatalog()
    catalog.run("CREATE TABLE show (tables int)")
    plan = catalog.plan("SELECT show.tables FROM (show)")
    assert plan.query.desc.names == ("tables",)
    assert catalog.plan("SELECT tables FROM show").query.desc.names == ("tables",)


@pytest.mark.parametrize("shown", ["CLUSTER", "cluster replica", "MATERIALIZED"])
def test_a_from_clause_shows_no_variables(shown: str) -> None:
    with pytest.raises(SqlSyntaxError, match="Expected what SHOW lists, found") as raised:
        planned(f"SELECT * FROM (SHOW {shown})")
    assert raised.value.position == len("SELECT * FROM (SHOW ") + 1


@pytest.mark.parametrize("view", ["VIEW", "MATERIALIZED VIEW"])
def test_views_may_not_show(view: str) -> None:
    with pytest.raises(SqlError, match="SHOW commands are not allowed in views"):
        MemoryCatalog().plan(f"CREATE {view} v AS SELECT name FROM (SHOW DATABASES)")


def test_a_subscription_shows_by_itself_only() -> None:
    with pytest.raises(SqlError, match="SHOW is not supported within"):
        MemoryCatalog().plan("SUBSCRIBE (SELECT * FROM (SHOW TABLES))")
    assert MemoryCatalog().plan("SUBSCRIBE (SHOW TABLES)").row.names == ("name", "comment")


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
        ("REFRESH EVERY '10 microseconds'", "must be at least one millisecond"),
        ("REFRESH EVERY '213503982001' days", "Overflows maximum days"),
    ],
)
def test_options_that_cannot_be_are_refused(
    catalog: MemoryCatalog, options: str, message: str
) -> None:
    with pytest.raises(SqlError) as raised:
        catalog.plan(f"CREATE MATERIALIZED VIEW m WITH ({options}) AS SELECT a, b FROM t")
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("options", "shown", "everies", "ats"),
    [
        ("REFRESH AT CREATION", "REFRESH = AT {now}", (), (7000,)),
        (
            "REFRESH = AT mz_now()::text::int8 + 5, REFRESH AT greatest('1970-01-01', MZ_NOW ())",
            "REFRESH = AT {now}::text::int8 + 5, REFRESH = AT greatest('1970-01-01', {now})",
            (),
            (7000, 7005),
        ),
        (
            "REFRESH EVERY '1 minute', ASSERT NOT NULL a, REFRESH EVERY '2' HOURS ALIGNED TO (9)",
            "ASSERT NOT NULL a, REFRESH = EVERY '1 minute' ALIGNED TO {now}, REFRESH = EVERY '2' HOUR ALIGNED TO (9)",
            (RefreshEvery(60_000, 7000), RefreshEvery(7_200_000, 9)),
            (),
        ),
    ],
)
def test_times_of_refreshes_are_known_once_the_time_is(
    catalog: MemoryCatalog,
    options: str,
    shown: str,
    everies: tuple[RefreshEvery, ...],
    ats: tuple[int, ...],
) -> None:
    text = f"CREATE MATERIALIZED VIEW m WITH ({options}) AS SELECT a, b FROM t"
    made, sql = scheduled(catalog.plan(text).refresh, 7000)
    assert made == RefreshSchedule(everies, ats)
    now = '7000::"mz_catalog"."mz_timestamp"'
    plain = sql.replace('"a"', "a").lower().replace(" ", "")
    assert f"with({shown.format(now=now)})".lower().replace(" ", "") in plain
    # What is kept says the same whenever it is read.
    again = catalog.plan(sql)
    assert scheduled(again.refresh, 9999)[0] == made


def test_every_view_is_refreshed_on_commit(catalog: MemoryCatalog) -> None:
    said = catalog.plan("CREATE MATERIALIZED VIEW m WITH (REFRESH ON COMMIT) AS SELECT a FROM t")
    left_out = catalog.plan("CREATE MATERIALIZED VIEW m AS SELECT a FROM t")
    assert said.create_sql == left_out.create_sql
    assert "WITH (REFRESH = ON COMMIT)" in said.create_sql
