"""Texts of columns as arrays, lists and maps, and what is wrong with those that are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import mzsql

_ARRAYS = {
    "int[]": ["{1,2,NULL}", "{}", " { 1 , 2 } ", "{-7}", "{NULL}", '{"1",2}', "{null,Null}"],
    "text[]": [
        '{a,"b c",NULL,"NULL"}',
        '{"",x}',
        '{"a\\"b","c\\\\d"}',
        "{a b , c}",
        "{\\{a,b\\,c}",
        '{"{}","[1]"}',
        "{=>,a=b}",
        "{nu\\ll}",
        "{[1],x}",
        '{"üñ","\u65e5"}',
    ],
    "numeric[]": ["{1.50,2}", "{-0.001}"],
    "boolean[]": ["{t,f,true}"],
    "date[]": ["{2020-01-01,NULL}"],
    "timestamp[]": ['{"2020-01-01 10:00:00"}'],
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(tmp_path_factory.mktemp("texts") / "env")
    connection.execute("CREATE TABLE x (k integer, t text)")
    yield connection
    connection.close()


def _texts(con: mzsql.Connection, texts: list[str]) -> None:
    con.execute("DELETE FROM x")
    for k, text in enumerate(texts):
        con.execute("INSERT INTO x VALUES (%s, %s)", [k, text])
    con.execute("INSERT INTO x VALUES (100, NULL)")


@pytest.mark.parametrize("typ", list(_ARRAYS))
def test_columns_as_arrays(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], typ: str
) -> None:
    _texts(con, _ARRAYS[typ])
    found = con.execute(f"SELECT t::{typ}::text, t::varchar::{typ} = t::{typ} FROM x ORDER BY k")
    values = [tuple(row) for row in found.fetchall()]
    literals = [f"SELECT %s::{typ}::text" for _ in _ARRAYS[typ]]
    expected = [
        postgres.execute(query.encode(), [text]).fetchall()[0][0]
        for query, text in zip(literals, _ARRAYS[typ], strict=True)
    ]
    if typ == "numeric[]":  # zeros at the end are no part of our numerics
        expected = [text.replace("1.50", "1.5") for text in expected]
    assert values == [*((text, True) for text in expected), (None, None)]
    # A constant is read to the same.
    for text, shown in zip(_ARRAYS[typ], expected, strict=True):
        ((constant,),) = con.execute(f"SELECT %s::{typ}::text", [text]).fetchall()
        assert constant == shown


_OTHERS = {
    "int list": {"{1,2,NULL}": "{1,2,NULL}", "{}": "{}"},
    "int list list": {"{{1,2},{},NULL}": "{{1,2},{},NULL}", "{}": "{}"},
    "text list": {'{a,"b c"}': '{a,"b c"}'},
    "map[text=>int]": {"{b=>2,a=>1,b=>3}": "{a=>1,b=>3}", "{}": "{}", '{"x y"=>NULL}': '{"x y"=>NULL}'},
    "map[text=>map[text=>int]]": {"{a=>{b=>1},c=>{}}": "{a=>{b=>1},c=>{}}"},
    "map[text=>int list]": {"{a=>{1,2},b=>{}}": "{a=>{1,2},b=>{}}"},
}  # fmt: skip


@pytest.mark.parametrize("typ", list(_OTHERS))
def test_columns_as_lists_and_maps(con: mzsql.Connection, typ: str) -> None:
    cases = _OTHERS[typ]
    _texts(con, list(cases))
    found = con.execute(f"SELECT t::{typ}::text FROM x ORDER BY k").fetchall()
    assert [row[0] for row in found] == [*cases.values(), None]
    for text, shown in cases.items():
        ((constant,),) = con.execute(f"SELECT %s::{typ}::text", [text]).fetchall()
        assert constant == shown


@pytest.mark.parametrize(
    ("typ", "text", "message"),
    [
        ("int[]", "1,2", 'type array: Array value must start with "{": "1,2"'),
        ("int[]", "[1:2]={1,2}", "type array: Specifying array lower bounds is not supported: "),
        ("int[]", "{1,x}", "type array: invalid input syntax for type integer: invalid digit "),
        ("int list", "1", "type list: expected '{', found 1: "),
        ("int list", "", "type list: expected '{', found empty string: "),
        ("int list", "{{1}}", "type list: unescaped '{' at beginning of element; perhaps you "),
        ("int list", "{1,x}", "type list: invalid input syntax for type integer: invalid digit "),
        ("map[text=>int]", "{a=>x}", "type map: invalid input syntax for type integer: "),
    ],
)
def test_constants_and_columns_say_the_same(
    con: mzsql.Connection, typ: str, text: str, message: str
) -> None:
    _texts(con, [text])
    for query in (f"SELECT t::{typ} FROM x", f"SELECT '{text}'::{typ}"):
        with pytest.raises(mzsql.Error) as failure:
            con.execute(query).fetchall()
        assert message in str(failure.value), query


@pytest.mark.parametrize(
    "text", ["{1,}", "{,1}", "{1 2,3", "{1}}", "{1} x", '{"1}', "{{1}}", "{1\\"]
)
@pytest.mark.parametrize("typ", ["int[]", "int list"])
def test_columns_that_are_none(con: mzsql.Connection, typ: str, text: str) -> None:
    _texts(con, [text])
    several = typ == "int[]" and text == "{{1}}"
    error = mzsql.NotSupportedError if several else mzsql.DataError
    with pytest.raises(error, match="invalid input syntax for type"):
        con.execute(f"SELECT t::{typ} FROM x").fetchall()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{1},{1,2}}", "Multidimensional arrays must have sub-arrays with matching dimensions."),
        ("{{1},2}", "Unexpected array element."),
        ("{1,}", 'Unexpected "}" character.'),
        ("{,1}", 'Unexpected "," character.'),
        ("{1} x", "Junk after closing right brace."),
        ("{1", "unterminated element"),
        ("{1,2", "unterminated element"),
        ('{"1"', "Unexpected end of input."),
    ],
)
def test_arrays_of_a_wrong_shape(con: mzsql.Connection, text: str, message: str) -> None:
    with pytest.raises(mzsql.DataError) as failure:
        con.execute(f"SELECT '{text}'::int[]")
    assert f'type array: {message}: "{text}"' in str(failure.value)


def test_records_of_floats_are_shown(con: mzsql.Connection) -> None:
    # What shows a float has a lambda; what it reads of the record comes out of a subquery.
    con.execute("CREATE TABLE measured (k int, f float8, r real, i interval)")
    con.execute("INSERT INTO measured VALUES (1, 1.5, 2.5, '1m'), (2, NULL, -0.25, NULL)")
    found = con.execute("SELECT m::text, to_jsonb(m)::text, ROW(f, k)::text FROM measured m")
    assert sorted(tuple(row) for row in found.fetchall()) == [
        ("(1,1.5,2.5,00:01:00)", '{"f":1.5,"i":"00:01:00","k":1,"r":2.5}', "(1.5,1)"),
        ("(2,,-0.25,)", '{"f":null,"i":null,"k":2,"r":-0.25}', "(,2)"),
    ]


def test_copy_reads_them(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text('"{1,2}","{a,NULL}","{""k"": [1]}",{x=>1}\n{},,1,{}\n')
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE c (a int[], l text list, j jsonb, m map[text=>int])")
        con.execute(f"COPY c FROM '{rows}' WITH (FORMAT csv)")
        found = con.execute(
            "SELECT a::text, l::text, j::text, m::text FROM c ORDER BY cardinality(a) DESC"
        )
        assert [tuple(row) for row in found.fetchall()] == [
            ("{1,2}", "{a,NULL}", '{"k":[1]}', "{x=>1}"),
            ("{}", None, "1", "{}"),
        ]
