"""An environment registered in a session that knows nothing else of mzsql: its catalog, and its own ``sql``."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException

import mzsql
from mzsql.repr.errors import InvalidParameter, SqlError
from mzsql.spark import register, registration
from mzsql.threads import Supervised

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def _rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_plain_spark_sql_takes_relations_and_statements_of_mzsql(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = str(tmp_path / "env")
    session, other = spark.newSession(), spark.newSession()
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE r_t (a bigint, u uint8, v uint2)")
        con.execute("INSERT INTO r_t VALUES (1, 18446744073709551615, 65535), (2, 2, 2)")
        con.execute('CREATE TABLE "r odd" (a bigint)')
        with register(session, env) as registered:
            assert _rows(session.sql("SELECT a, v FROM public.r_t")) == [(1, 65535), (2, 2)]
            types = dict(session.table("public.r_t").dtypes)
            assert types["v"] in ("int", "bigint")
            assert types["u"].startswith("decimal(20,0)")
            assert _rows(other.sql("SELECT a FROM public.r_t WHERE a > 1")) == [(2,)]
            assert _rows(other.sql("SELECT name FROM mz_catalog.mz_tables")) == [
                ("r odd",),
                ("r_t",),
            ]
            assert _rows(session.sql("SELECT count(*) FROM `r odd`")) == [(0,)]
            session.sql("CREATE MATERIALIZED VIEW r_sum AS SELECT sum(a) AS s FROM r_t")
            explained = session.sql(
                "EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW r_sum"
            )
            assert "node_id: 0" in explained.collect()[0][0]
            assert "r_sum" in {row[0] for row in session.sql("SHOW MATERIALIZED VIEWS").collect()}
            assert _rows(session.sql("SELECT s FROM r_sum")) == [(3,)]
            assert _rows(other.sql("SELECT s FROM public.r_sum")) == [(3,)]
            con.execute("CREATE TABLE r_late (b text)")  # elsewhere, as far as the session knows
            assert _rows(session.sql("SELECT count(*) FROM r_late")) == [(0,)]
            assert other.catalog.tableExists("public.r_late")
            con.execute("DROP TABLE r_late")
            session.sql("SELECT 1")
            assert not other.catalog.tableExists("public.r_late")
            assert _rows(session.sql("SELECT :n AS n", args={"n": 5})) == [(5,)]
            with pytest.raises(SqlError, match="unknown catalog item 'nothing'"):
                session.sql("CREATE MATERIALIZED VIEW r_bad AS SELECT * FROM nothing")
            with pytest.raises(InvalidParameter, match="registered already"):
                register(session, env)
            registered.close()
        assert not other.catalog.tableExists("public.r_t")
        with pytest.raises(AnalysisException):
            session.sql("SELECT * FROM public.r_t")


def test_what_is_cached_of_a_relation_goes_with_it(spark: SparkSession, tmp_path: Path) -> None:
    """Tables of the next environment have the same names; many are dropped without statements, which would see to it."""

    def kept() -> bool:
        return not spark._jsparkSession.sharedState().cacheManager().isEmpty()

    spark.catalog.clearCache()  # other tests of the application have left something there
    for cached in (False, True):
        session, env = spark.newSession(), tmp_path / str(cached)
        mzsql.connect(str(env)).close()
        with register(session, str(env), lead=False):
            assert len(session.catalog.listTables("mz_internal")) > 50
            if cached:
                session.catalog.cacheTable("mz_catalog.mz_tables")
                assert kept()
        assert not session.catalog.listTables("mz_internal")
        assert not kept()


def test_a_python_of_spark_that_has_no_data_source_is_told_of(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's answer is real: it is asked for a format that nobody has."""
    env = str(tmp_path / "env")
    monkeypatch.setattr(registration, "FORMAT", "mzsql_nobody_has")
    session = spark.newSession()
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE r_t (a bigint)")
        with pytest.raises(InvalidParameter, match="does not find the format") as refused:
            register(session, env)
    assert f"the Python that it runs, {sys.executable}, has no" in str(refused.value)
    assert f"Set PYSPARK_PYTHON={sys.executable} before Spark starts" in str(refused.value.hint)


def test_the_catalog_is_followed_after_an_error_that_nobody_expects(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of kind "spark-catalog" goes on, and says that it failed."""
    env = str(tmp_path / "env")
    well, planted, failed = Supervised.well, threading.Event(), threading.Event()

    def failing(own: Supervised) -> None:
        if own.status.name == "spark-catalog" and planted.is_set():
            planted.clear()
            failed.set()
            raise RuntimeError("planted")
        well(own)

    monkeypatch.setattr(Supervised, "well", failing)
    session = spark.newSession()
    with mzsql.connect(env) as con, register(session, env):
        planted.set()
        con.execute("CREATE TABLE r_one (a bigint)")
        assert failed.wait(_HANG)
        con.execute("CREATE TABLE r_two (a bigint)")
        assert _until(lambda: session.catalog.tableExists("public.r_two"))


#: Seconds after which something hangs.
_HANG = 60.0


def _until(holds: Callable[[], bool]) -> bool:
    """Wait for something, which is looked at again and again."""
    end = time.monotonic() + _HANG
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
