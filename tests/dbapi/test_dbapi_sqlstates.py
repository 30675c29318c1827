"""The SQLSTATEs of expressions that fail, against PostgreSQL's: folded, and computed from a table's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import mzsql

if TYPE_CHECKING:
    import psycopg

EXPRESSIONS = {
    "1 / n": "22012",
    "1.5 % n": "22012",
    "2147483647 + 1 + n": "22003",
    "(n + 40000)::smallint": "22003",
    "'x'::text::integer + n": "22P02",
    "(s || 'y')::date": "22007",
    "(s || 'y')::interval": "22007",
    "(s || 'y')::uuid": "22P02",
    "substring(s FROM 1 FOR n - 1)": "22011",
    "ln((n)::double precision)": "2201E",
    "sqrt(n - 1.0)": "2201F",
    "power(0.0::double precision, n - 1)": "2201F",
    "(s || 'z') LIKE (s || '\\')": "22025",
    "s ~ (s || '(')": "2201B",
    "(SELECT v FROM (VALUES (1 + n), (2)) AS w (v))": "21000",
    "trim_array(ARRAY[n], n + 2)": "2202E",
    "jsonb_set((s = s)::text::jsonb, '{a}', '1')": "22023",
    "jsonb_set('[]', ARRAY[s], '1')": "22P02",
    "get_byte(convert_to(s, 'UTF8'), n + 4)": "2202E",
    "decode(s || 'z', 'hex')": "22023",
    "split_part(s, ',', n)": "22023",
    "chr(n)": "54000",
    "acos(2.0::double precision + n)": "22003",
    "width_bucket(n, n, n, 1)": "2201G",
    "ntile(n) OVER ()": "22014",
    "timezone(s || 'z', now())": "22023",
    "date_bin(n * interval '1 day', timestamp '2020-01-01', timestamp '2001-01-01')": "22008",
    "('99999999990' || n)::integer": "22003",
    "timestamp '200000-01-01' + n * interval '1 day' + interval '290000 years'": "22008",
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("states") / "env") as con:
        con.execute("CREATE TABLE t (n integer, s text)")
        con.execute("INSERT INTO t VALUES (0, 'x')")
        yield con


@pytest.fixture(scope="module")
def postgres_table(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    postgres.execute("CREATE TABLE t (n integer, s text)")
    postgres.execute("INSERT INTO t VALUES (0, 'x')")
    return postgres


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("source", ["t", "(SELECT 0 AS n, 'x'::text AS s) AS t"])
def test_what_fails_has_the_sqlstate_of_postgresql(con, postgres_table, expression, source):
    import psycopg

    query = f"SELECT {expression} FROM {source}"
    with pytest.raises(psycopg.Error) as expected:
        postgres_table.execute(query)
    with pytest.raises(mzsql.DatabaseError) as found:
        con.execute(query).fetchall()
    assert (found.value.sqlstate, expected.value.sqlstate) == (EXPRESSIONS[expression],) * 2
