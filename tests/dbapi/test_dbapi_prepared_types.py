"""Parameters of prepared statements without declared types: a cast decides, whatever the type; the value is what the literal would be."""

from __future__ import annotations

import pytest

import mzsql

VALUES = {
    "int[]": "{1,NULL,3}",
    "int[][]": "{{1,2},{3,4}}",
    "text[]": '{a,"b c",NULL}',
    "numeric(10,2)[]": "{1.236,2}",
    "varchar(3)[]": "{abc,d}",
    "timestamptz[]": "{2020-01-01 00:00:00+00}",
    "jsonb": '{"a": [1, 1e2]}',
    "jsonb[]": "{1,null}",
    "int list": "{1,2}",
    "map[text=>int]": "{a=>1}",
    "numeric(10,2)": "1.236",
    "numeric": "1.50",
    "date": "2020-02-29",
    "timestamp": "2020-02-29 01:02:03",
    "interval": "1 day 02:03:04",
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "bytea": "\\x00ff",
    "bool": "yes",
    "float8": "1e10",
    "varchar(3)": "abcd",
    "char(3)": "a",
    "text": "a",
    "oid": "12",
}


@pytest.fixture(scope="module")
def cursor(tmp_path_factory):
    with mzsql.connect(str(tmp_path_factory.mktemp("prepared") / "env")) as connection:
        yield connection.cursor()


@pytest.mark.parametrize("typ", VALUES)
@pytest.mark.parametrize("cast", ["$1::{}", "CAST($1 AS {})"])
def test_a_cast_decides_the_type_of_a_parameter(cursor, typ, cast):
    value = VALUES[typ]
    cursor.execute(f"SELECT ('{value}'::{typ})::text, pg_typeof('{value}'::{typ})::text")
    wanted = cursor.fetchall()
    shown = cast.format(typ)
    cursor.execute(f"PREPARE p AS SELECT ({shown})::text, pg_typeof({shown})::text")
    try:
        cursor.execute(f"EXECUTE p ('{value}')")
        assert cursor.fetchall() == wanted
        cursor.execute("EXECUTE p (NULL)")
        assert cursor.fetchall() == [(None, wanted[0][1])]
    finally:
        cursor.execute("DEALLOCATE p")


def test_a_parameter_among_others_is_an_array(cursor):
    cursor.execute("PREPARE p AS SELECT 2 = ANY($1::int[]), $1 || 3, ($2::jsonb -> 'a')::int")
    try:
        cursor.execute("""EXECUTE p ('{1,2}', '{"a": 7}')""")
        assert cursor.fetchall() == [(True, [1, 2, 3], 7)]
        with pytest.raises(mzsql.DataError, match=r"malformed array literal|invalid input syntax"):
            cursor.execute("EXECUTE p ('1', '{}')")
    finally:
        cursor.execute("DEALLOCATE p")
