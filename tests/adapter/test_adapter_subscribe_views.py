"""SUBSCRIBE to a materialized view that Spark maintains: its changes at the times of the writes that cause them."""

from __future__ import annotations

from collections import Counter

import pytest

import mzsql

pytestmark = pytest.mark.spark


def total(rows):
    found = Counter()
    for _, diff, *row in rows:
        found[tuple(row)] += diff
    return +found


def test_a_materialized_view_and_its_query_change_alike(tmp_path, spark):
    query = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"
    with mzsql.connect(tmp_path / "env", spark=spark) as con:
        con.execute("CREATE TABLE t (k int, v int)")
        con.execute("INSERT INTO t VALUES (1, 10), (1, 20), (2, 5)")
        con.execute(f"CREATE MATERIALIZED VIEW mv AS {query}")
        ts = con.execute("SELECT * FROM mv").timestamp
        for statement in ("UPDATE t SET v = 7 WHERE k = 2", "DELETE FROM t WHERE v = 20"):
            con.execute(statement)
        end = con.execute("SELECT * FROM mv").timestamp + 1
        changes = {}
        for what in ("mv", f"({query})", "(SELECT * FROM mv WHERE n > 0)"):
            with con.subscribe(f"SUBSCRIBE {what} AS OF {ts} UP TO {end}") as cursor:
                changes[what] = cursor.fetchall()
        assert len({tuple(rows) for rows in changes.values()}) == 1, changes
        assert total(changes["mv"]) == Counter({(1, 1, 10): 1, (2, 1, 7): 1})
        with con.subscribe("SUBSCRIBE mv ENVELOPE UPSERT (KEY (k))") as cursor:
            assert [r[1:] for r in cursor.fetchmany(9)] == [
                ("upsert", 1, 1, 10),
                ("upsert", 2, 1, 7),
            ]
            con.execute("INSERT INTO t VALUES (1, 1)")
            assert cursor.fetchone()[1:] == ("upsert", 1, 2, 11)
            con.execute("DELETE FROM t WHERE k = 2")
            assert cursor.fetchone()[1:] == ("delete", 2, None, None)
            con.execute("DROP MATERIALIZED VIEW mv")
            with pytest.raises(mzsql.ProgrammingError, match="was dropped"):
                cursor.fetchone()
