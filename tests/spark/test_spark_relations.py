"""Relations of mzsql in Spark: through the data source, the session's catalog, and ``con.spark``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

import mzsql
from mzsql.repr.errors import InvalidParameter
from mzsql.spark import rows
from mzsql.spark.options import target
from mzsql.spark.source import MzsqlDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = [
    (1, "one", Decimal("1.50"), dt.date(2026, 1, 1), True),
    (2, None, Decimal("-2.25"), dt.date(1969, 7, 20), None),
    (2, None, Decimal("-2.25"), dt.date(1969, 7, 20), None),
]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark") / "env"


@pytest.fixture(scope="module")
def con(env: Path, spark: SparkSession) -> Iterator[mzsql.Connection]:
    assert spark is not None
    with mzsql.connect(str(env)) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "CREATE TABLE t (a bigint NOT NULL, b text, c numeric(10, 2), d date, e boolean)"
        )
        cursor.execute(
            "INSERT INTO t VALUES (1, 'one', 1.50, '2026-01-01', true), "
            "(2, NULL, -2.25, '1969-07-20', NULL), (2, NULL, -2.25, '1969-07-20', NULL)"
        )
        cursor.execute("CREATE VIEW twos AS SELECT a, c FROM t WHERE a = 2")
        cursor.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT a, sum(c) AS total, count(*) AS n FROM t GROUP BY a"
        )
        connection.spark  # noqa: B018  the first use registers the relations
        yield connection


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def _load(spark: SparkSession, env: Path, relation: str, **options: str) -> DataFrame:
    return spark.read.format("mzsql").option("env", str(env)).options(**options).load(relation)


# --- the data source -------------------------------------------------------------------------------


def test_a_table_with_its_copies_and_nulls(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    assert con
    frame = _load(spark, env, "public.t")
    assert frame.schema.simpleString() == (
        "struct<a:bigint,b:string,c:decimal(38,2),d:date,e:boolean>"
    )
    assert _rows(frame) == sorted(ROWS, key=repr)


def test_a_view_a_materialized_view_and_a_builtin(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    assert con
    assert _rows(_load(spark, env, "twos")) == [(2, Decimal("-2.25"))] * 2
    assert _rows(_load(spark, env, "public.sums")) == [
        (1, Decimal("1.50"), 1),
        (2, Decimal("-4.50"), 2),
    ]
    names = {row.name for row in _load(spark, env, "mz_catalog.mz_tables").collect()}
    assert names == {"t"}


def test_each_read_is_fresh_and_as_of_is_not(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE ticks (n integer NOT NULL)")
    con.execute("INSERT INTO ticks VALUES (1)")
    cursor = con.execute("SELECT * FROM ticks")
    then = str(cursor.timestamp)
    con.execute("INSERT INTO ticks VALUES (2)")
    assert _rows(_load(spark, env, "ticks")) == [(1,), (2,)]
    assert _rows(_load(spark, env, "ticks", as_of=then)) == [(1,)]
    con.execute("DELETE FROM ticks WHERE n = 1")
    assert _rows(_load(spark, env, "ticks")) == [(2,)]


def test_a_large_relation_is_read_in_slices(
    spark: SparkSession, env: Path, con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("CREATE TABLE many (n integer, s text)")
    con.execute("INSERT INTO many SELECT n, 'x' FROM generate_series(1, 1000) AS g (n)")
    con.execute("DELETE FROM many WHERE n % 10 = 0")
    con.execute("INSERT INTO many SELECT NULL, NULL FROM generate_series(1, 3) AS g (n)")
    from mzsql.spark import rows, source

    monkeypatch.setattr(rows, "SLICE_ROWS", 100)
    wanted = target({"env": str(env), "relation": "many"})
    reader = source.RelationReader(wanted, _load(spark, env, "many").schema)
    slices = reader.partitions()
    assert len(slices) > 5
    sizes = [sum(batch.num_rows for batch in reader.read(part)) for part in slices]
    assert sum(sizes) == 903
    assert sum(size > 0 for size in sizes) > 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a relation"),
        ({"relation": "t"}, "needs an environment"),
        ({"relation": "t", "env": "e", "as_of": "now"}, "as_of must be a time in milliseconds"),
        ({"relation": "t", "env": "e", "asof": "1"}, "unknown option 'asof'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        target(options)


def test_what_is_not_there(spark: SparkSession, env: Path, con: mzsql.Connection) -> None:
    assert con
    with pytest.raises(PySparkException, match="unknown catalog item 'nowhere'"):
        _load(spark, env, "nowhere")
    with pytest.raises(PySparkException, match="is not an mzsql environment"):
        _load(spark, env / "inner", "t")


@pytest.fixture
def wrong(con: mzsql.Connection) -> Iterator[None]:
    """A materialized view whose contents are an error."""
    con.execute("CREATE MATERIALIZED VIEW wrong AS SELECT 1 / (a - 1) AS x FROM t")
    yield
    con.execute("DROP MATERIALIZED VIEW wrong")


@pytest.mark.usefixtures("wrong")
def test_errors_are_on_one_line(spark: SparkSession, env: Path) -> None:
    """The first line is the one that notebooks and logs show; Spark's SQLSTATE is on the second."""
    for relation, options, message in [
        ("public.sumz", {}, 'item \'public.sumz\'. HINT: Perhaps you meant "public"."sums".'),
        ("mz_internal.mz_frontier", {}, 'Perhaps you meant "mz_internal"."mz_frontiers".'),
        (
            "t",
            {"asof": "1"},
            "unknown option 'asof' of the data source mzsql. HINT: It knows as_of",
        ),
        (
            "t",
            {"columns": "z"},
            'column "z" does not exist in public.t. HINT: It has the columns a',
        ),
        ("t", {"as_of": "12"}, "Timestamp (12) is not valid for all inputs: ["),
        ("sums", {"as_of": "12"}, "DETAIL: The history of public.sums begins there."),
        ("wrong", {}, "division by zero"),
    ]:
        with pytest.raises(PySparkException) as failed:
            _load(spark, env, relation, **options).collect()
        first, *rest = str(failed.value).splitlines()
        assert message in first
        assert [line.strip() for line in rest] == ["SQLSTATE: 38000"]


def test_an_unknown_relation_in_sql_is_told_with_one_like_it(con: mzsql.Connection) -> None:
    for query, message in [
        ("SELECT * FROM mz_internal.mz_frontier", 'Perhaps you meant "mz_internal"."mz_frontiers"'),
        ("SELECT * FROM public.sumz JOIN t USING (a)", 'Perhaps you meant "public"."sums"'),
    ]:
        with pytest.raises(mzsql.ProgrammingError, match="unknown catalog item") as failed:
            con.spark.sql(query)
        assert message in str(failed.value)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        con.spark.sql("SELECT * FROM sumz")


def test_a_builtin_relation_is_read_once(
    env: Path, con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is small its rows go with the slice, and the task opens nothing; a large one is read by the task."""
    con.execute("CREATE TABLE IF NOT EXISTS told (a bigint)")
    wanted = {"env": str(env), "path": "mz_catalog.mz_tables", "columns": "name"}
    source = MzsqlDataSource(wanted)
    reader = source.reader(source.schema())
    [small] = reader.partitions()
    monkeypatch.setattr(rows, "SENT_BYTES", 10)
    [large] = reader.partitions()
    assert isinstance(small, rows.Slice)
    assert isinstance(large, rows.Slice)
    assert small.rows is not None
    assert large.rows is None

    def names(part: rows.Slice) -> list[str]:
        return [name for batch in reader.read(part) for name in batch.column("name").to_pylist()]

    assert sorted(names(small)) == sorted(names(large))
    assert "told" in names(small)
    monkeypatch.setattr("mzsql.spark.source.reading", None)
    assert "told" in names(small)


def test_columns_that_changed_are_noticed(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE shape (a integer)")
    old = spark.read.format("mzsql").schema("a string").option("env", str(env))
    with pytest.raises(PySparkException, match=r"the columns of public\.shape are"):
        old.load("shape").collect()


def test_changes_say_what_happened_and_when(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE steps (n integer, s text)")
    con.execute("INSERT INTO steps VALUES (1, 'a'), (1, 'a'), (2, 'b')")
    first = con.execute("SELECT * FROM steps").timestamp
    con.execute("UPDATE steps SET s = 'c' WHERE n = 1")
    second = con.execute("SELECT * FROM steps").timestamp
    con.execute("DELETE FROM steps WHERE n = 2")
    later = _load(spark, env, "steps", changes="true", **{"from": str(first + 1)})
    told = _rows(later.select("n", "s", "_change_type"))
    assert told == sorted(
        [(1, "a", "delete")] * 2 + [(1, "c", "insert")] * 2 + [(2, "b", "delete")], key=repr
    )
    until = _load(
        spark, env, "steps", changes="true", to=str(second), **{"from": str(first + 1)}
    ).where("_change_type = 'delete'")
    assert _rows(until.select("n")) == [(1,), (1,)]
    times = {row[0] for row in later.select("_commit_version").collect()}
    assert len(times) == 2
    assert min(times) <= second < max(times)


def test_filters_go_down_to_the_files_and_answers_stay_the_same(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute(
        "CREATE TABLE sieve (a bigint, b text, c numeric(10, 2), d date, e boolean, f double)"
    )
    con.execute(
        "INSERT INTO sieve SELECT n, 'x' || (n % 7)::text, n / 4.0, DATE '2026-01-01' + (n % 30)::int, "
        "n % 2 = 0, n / 3.0 FROM generate_series(1, 300) AS g (n)"
    )
    con.execute("INSERT INTO sieve VALUES (NULL, NULL, NULL, NULL, NULL, 'NaN')")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    whole = _load(spark, env, "sieve").cache()
    assert whole.count() == 301
    for where, pushed in [
        ("a = 17", "a"),
        ("a > 290 AND a <= 295", "a"),
        ("a < 3", "a"),
        ("b = 'x3' AND a >= 100", "b"),
        ("a IN (1, 5, 1000)", "a"),
        ("c <= 2.25", "c"),
        ("d > DATE '2026-01-28'", "d"),
        ("e", "e"),
        ("a IS NULL", "a"),
        ("b IS NOT NULL", None),
        ("f > 99", None),
        ("a <> 17", None),
        ("a = 1 OR a = 2", None),
        ("a % 2 = 1 AND b >= 'x5'", "b"),
        ("b LIKE 'x1%'", None),
    ]:
        found = _load(spark, env, "sieve").where(where)
        # By what is printed: NaN is not equal to itself.
        assert repr(_rows(found)) == repr(_rows(whole.where(where))), where
        plan = spark._jvm.PythonSQLUtils.explainString(found._jdf.queryExecution(), "formatted")
        told = plan.partition("PushedFilters: [")[2].partition("]")[0]
        assert (pushed is not None and pushed in told) or (pushed is None and not told), (
            where,
            plan,
        )
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert _rows(_load(spark, env, "sieve").where("a = 17").select("a")) == [(17,)]
    assert _load(spark, env, "sieve", columns="b,a").columns == ["b", "a"]
    few = _load(spark, env, "sieve", columns="b").where("b = 'x3'")
    assert few.count() == whole.where("b = 'x3'").count()


def test_a_table_of_a_catalog_with_options(
    spark: SparkSession, env: Path, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE shelf (n integer)")
    spark.sql(f"CREATE TABLE on_shelf USING mzsql OPTIONS (env '{env}', relation 'public.shelf')")
    try:
        con.execute("INSERT INTO shelf VALUES (1)")
        assert _rows(spark.sql("SELECT * FROM on_shelf")) == [(1,)]
        con.execute("INSERT INTO shelf VALUES (2)")
        assert _rows(spark.newSession().table("on_shelf").where("n > 1")) == [(2,)]
    finally:
        spark.sql("DROP TABLE on_shelf")


# --- the session's catalog ---------------------------------------------------------------------------


def test_plain_spark_sql_sees_the_relations(spark: SparkSession, con: mzsql.Connection) -> None:
    assert con
    assert _rows(spark.sql("SELECT a, n FROM public.sums")) == [(1, 1), (2, 2)]
    hydrated = spark.sql("SELECT hydrated FROM mz_internal.mz_hydration_statuses")
    assert _rows(hydrated) == [(True,)]
    nodes = spark.sql(
        "SELECT count(*) = sum(CASE WHEN hydrated THEN 1 ELSE 0 END) AS done "
        "FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker"
    )
    assert _rows(nodes) == [(True,)]
    joined = spark.sql("SELECT t.b, s.total FROM public.t AS t JOIN public.sums AS s ON s.a = t.a")
    assert len(_rows(joined)) == 3


def test_another_session_sees_them_too(spark: SparkSession, con: mzsql.Connection) -> None:
    assert con
    assert spark.newSession().sql("SELECT * FROM public.t").count() == 3


def test_the_catalog_follows_ddl(spark: SparkSession, con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE late (a integer)")
    con.execute("INSERT INTO late VALUES (7)")
    assert _rows(spark.sql("SELECT * FROM public.late")) == [(7,)]
    con.execute("DROP TABLE late")
    con.execute("CREATE TABLE late (b text, c text)")
    assert spark.table("public.late").columns == ["b", "c"]
    con.execute("DROP TABLE late")
    assert not spark.catalog.tableExists("public.late")


# --- con.spark ---------------------------------------------------------------------------------------


def test_sql_takes_statements_of_mzsql(con: mzsql.Connection) -> None:
    explained = con.spark.sql("EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW sums")
    assert "node_id: 0" in explained.collect()[0][0]
    assert (
        con.spark.sql("CREATE MATERIALIZED VIEW ones AS SELECT b FROM t WHERE a = 1").count() == 0
    )
    assert _rows(con.spark.sql("-- a comment\nSELECT * FROM ones")) == [("one",)]
    con.spark.sql("DROP MATERIALIZED VIEW ones")
    with pytest.raises(AnalysisException):
        con.spark.sql("SELECT * FROM ones")


def test_sql_writes_to_tables_of_mzsql(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE w (a integer)")
    con.spark.sql("INSERT INTO w VALUES (1), (2)")
    con.spark.sql("UPDATE public.w SET a = a + 10 WHERE a = 1")
    con.spark.sql("DELETE FROM w WHERE a = 2")
    assert _rows(con.spark.sql("SELECT * FROM w")) == [(11,)]


def test_sql_hands_the_rest_to_spark(con: mzsql.Connection) -> None:
    assert _rows(con.spark.sql("SELECT explode(sequence(1, 3)) AS n")) == [(1,), (2,), (3,)]
    assert _rows(con.spark.sql("SELECT :n AS n", args={"n": 5})) == [(5,)]
    con.spark.range(3).createOrReplaceTempView("spark_only")
    assert con.spark.sql("SELECT count(*) AS n FROM spark_only").collect()[0].n == 3


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM t", [(3,)]),
        ("SELECT count(*) FROM public.t", [(3,)]),
        ("SELECT count(*) FROM materialize.public.t AS x WHERE x.a = 2", [(2,)]),
        ("SELECT t.a FROM public.t WHERE t.b = 'one'", [(1,)]),
        ("SELECT count(*) FROM t AS l JOIN t AS r ON l.a = r.a", [(5,)]),
        ("WITH t AS (SELECT 9 AS a) SELECT a FROM t", [(9,)]),
        ("SELECT a FROM sums WHERE n > (SELECT min(n) FROM sums)", [(2,)]),
        ("SELECT c FROM twos", [(Decimal("-2.25"),)] * 2),
        ("SELECT DISTINCT hydrated FROM mz_internal.mz_hydration_statuses", [(True,)]),
    ],
)
def test_names_mean_relations(con: mzsql.Connection, query: str, expected: list[Any]) -> None:
    assert _rows(con.spark.sql(query)) == expected


def test_a_frame_stands_for_its_time(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE still (a integer)")
    con.execute("INSERT INTO still VALUES (1)")
    frame = con.spark.sql("SELECT * FROM still")
    con.execute("INSERT INTO still VALUES (2)")
    assert _rows(frame) == [(1,)]
    assert _rows(con.spark.table("still")) == [(1,), (2,)]


def test_an_error_in_a_view_fails_the_read_and_only_that(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE shares (total integer, parts integer)")
    con.execute("CREATE MATERIALIZED VIEW share AS SELECT total / parts AS each FROM shares")
    con.execute("INSERT INTO shares VALUES (10, 2), (1, 0)")
    with pytest.raises(PySparkException, match="division by zero"):
        con.spark.sql("SELECT * FROM share").collect()
    con.execute("DELETE FROM shares WHERE parts = 0")
    assert _rows(con.spark.sql("SELECT * FROM share")) == [(5,)]


def test_names_that_sparks_catalog_refuses(con: mzsql.Connection) -> None:
    con.execute('CREATE TABLE "odd name" (a integer)')
    con.execute('INSERT INTO "odd name" VALUES (1)')
    assert _rows(con.spark.sql("SELECT * FROM public.`odd name`")) == [(1,)]


# --- temporary tables ------------------------------------------------------------------------------


def test_a_temporary_table_is_read_by_its_connection(
    spark: SparkSession, con: mzsql.Connection
) -> None:
    con.execute("CREATE TEMP TABLE passing (a int)")
    try:
        con.execute("INSERT INTO passing VALUES (1), (2)")
        asked = "SELECT sum(p.a) AS s FROM passing AS p JOIN mz_temp.passing AS q ON p.a = q.a"
        assert _rows(con.spark.sql(asked)) == [(3,)]
        assert sorted(_rows(con.spark.table("mz_temp.passing"))) == [(1,), (2,)]
        assert not [one for one in spark.catalog.listDatabases() if "mz_temp" in one.name]
    finally:
        con.execute("DISCARD TEMP")
    with pytest.raises(AnalysisException):
        con.spark.sql("SELECT * FROM mz_temp.passing")
