"""No float is -0.0: what would be is 0.0, so views of what shows a zero's sign are what their queries answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_steps import in_process

import mzsql

_VIEWS = {
    "joined": "SELECT e.f::text AS a, g.f::text AS b FROM e LEFT JOIN g ON e.f = g.f",
    "shown": "SELECT f::text AS a, r::text AS b, l::text AS c, ARRAY[-f, t::float8]::text AS d, (r / -2)::text AS e FROM e",
    "grouped": "SELECT l::text AS a, count(*) AS n, max(-f)::text AS b, avg(-r)::text AS c FROM e GROUP BY l",
}


def _bag(con: mzsql.Connection, query: str) -> Counter[str]:
    return Counter(repr(row) for row in con.execute(query).fetchall())


def test_no_zero_has_a_sign(tmp_path: Path) -> None:
    path, text = tmp_path / "signed.parquet", tmp_path / "signed.csv"
    columns = {
        "k": pa.array([6], pa.int32()),
        "f": pa.array([-0.0]),
        "r": pa.array([-0.0], pa.float32()),
        "l": pa.array([[-0.0, 1.0]]),
        "t": pa.array(["-0"]),
    }
    pq.write_table(pa.table(columns), path)
    text.write_text('7,-0,-0.0,"{-0}",-0\n')
    with in_process(), mzsql.connect(tmp_path / "env") as con:
        con.execute("SET statement_timeout = '10min'")
        con.execute("CREATE TABLE e (k int, f double precision, r real, l float8[], t text)")
        con.execute("CREATE TABLE g (f double precision)")
        for name, query in _VIEWS.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        con.execute("INSERT INTO e VALUES (1, '-0', '-0', '{-0,0}', '-0'), (2, 0, 0, '{0,0}', '0')")
        con.execute("INSERT INTO g VALUES ('-0'), (-0.0::float8), (-(0::float8))")
        con.execute("INSERT INTO e SELECT k + 2, -f, f * r, ARRAY[-f], '-0.0' FROM e")
        con.execute(f"COPY e FROM '{path}' (FORMAT parquet)")
        con.execute(f"COPY e FROM '{text}' (FORMAT csv)")
        con.execute("UPDATE e SET f = -f, r = -r WHERE k > 1")
        found = {name: _bag(con, f"SELECT * FROM {name}") for name in _VIEWS}
        assert found == {name: _bag(con, query) for name, query in _VIEWS.items()}
        assert found["joined"] == Counter({repr(("0", "0")): 18})
        assert not any("-0" in row for rows in found.values() for row in rows)
        update = "UPDATE e SET f = -f WHERE f = %s RETURNING f::text, f, -r"
        returned = con.execute(update, [-0.0]).fetchall()
        assert repr(returned) == repr([("0", 0.0, 0.0)] * 6)
        shown = con.execute("SELECT '-0'::float8, -0.0::float4, '{-0}'::float8[], %s", [-0.0])
        assert repr(shown.fetchall()) == "[(0.0, 0.0, [0.0], 0.0)]"
        # What was written with one sign is taken back with the other.
        con.execute("DELETE FROM e WHERE f = '-0' AND l[1] = -0.0::float8")
        con.execute("DELETE FROM g WHERE f = 0")
        assert not any(con.execute(f"SELECT * FROM {name}").fetchall() for name in _VIEWS)
