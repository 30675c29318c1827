"""Views that join every row with every row: of a side of which no column is needed all rows are one."""

from __future__ import annotations

from pathlib import Path

import mzsql


def test_rows_of_no_columns_are_counted_through_merges_of_their_runs(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int)")
        con.execute("CREATE TABLE u (b int)")
        con.execute("INSERT INTO t VALUES (1)")
        con.execute("INSERT INTO u VALUES (0)")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a FROM t, u")
        assert con.execute("SELECT count(*) FROM v").fetchall() == [(1,)]
        for number in range(24):
            con.execute("INSERT INTO u VALUES (%s)", [number])
            assert con.execute("SELECT count(*) FROM v").fetchall() == [(number + 2,)]
        con.execute("INSERT INTO t VALUES (7)")
        assert con.execute("SELECT a, count(*) FROM v GROUP BY a ORDER BY a").fetchall() == [
            (1, 25),
            (7, 25),
        ]
