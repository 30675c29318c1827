"""EXPLAIN FILTER PUSHDOWN: how much of each stored input is read, and how much its filter cannot do without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mzsql

NAMES = ["Source", "Total Bytes", "Selected Bytes", "Total Parts", "Selected Parts"]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("env"))) as made:
        # More than travels inline, where there are no statistics.
        made.execute("CREATE TABLE t (a int, b text)")
        made.execute("INSERT INTO t SELECT x, 'x' FROM generate_series(1, 50000) AS x")
        made.execute("CREATE MATERIALIZED VIEW v AS SELECT b FROM t WHERE a > 100000")
        made.execute("CREATE MATERIALIZED VIEW one AS SELECT 1 AS a")
        yield made


def explained(con: mzsql.Connection, of: str) -> list[tuple[Any, ...]]:
    cursor = con.cursor()
    cursor.execute(f"EXPLAIN FILTER PUSHDOWN FOR {of}")
    assert [column[0] for column in cursor.description or ()] == NAMES
    return cursor.fetchall()


@pytest.mark.parametrize(
    "where", ["", " WHERE a = 50", " WHERE a > 49999 AND b = 'x'", " WHERE a % 2 = 0"]
)
def test_a_filter_that_rows_may_pass_selects_their_parts(con: mzsql.Connection, where: str) -> None:
    ((source, total, selected, parts, wanted),) = explained(con, f"SELECT * FROM t{where}")
    assert source == "materialize.public.t"
    assert total == selected > 0
    assert parts == wanted > 0


@pytest.mark.parametrize("of", ["SELECT * FROM t WHERE a > 100000", "MATERIALIZED VIEW v"])
def test_parts_whose_statistics_say_that_no_row_passes_are_not_selected(
    con: mzsql.Connection, of: str
) -> None:
    ((source, total, selected, parts, wanted),) = explained(con, of)
    assert (source, selected, wanted) == ("materialize.public.t", 0, 0)
    assert total > 0
    assert parts > 0


@pytest.mark.parametrize("of", ["SELECT 1", "MATERIALIZED VIEW one", "SELECT * FROM mz_tables"])
def test_what_reads_nothing_stored_has_no_source(con: mzsql.Connection, of: str) -> None:
    assert explained(con, of) == []


def test_only_queries_and_materialized_views_are_explained_so(con: mzsql.Connection) -> None:
    with pytest.raises(mzsql.ProgrammingError, match="t is not a materialized view"):
        explained(con, "MATERIALIZED VIEW t")
    with pytest.raises(mzsql.ProgrammingError, match="not valid for all inputs"):
        explained(con, "SELECT * FROM t AS OF 5")
