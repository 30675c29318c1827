"""Arrays, lists, maps, records and jsonb through a connection: what PostgreSQL knows has PostgreSQL's answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from answers_kit import check_same, expected, rows_of

import mzsql

#: Expressions that both sides know, each an array, a record, a number, a boolean or a text.
_SHARED = [
    "ARRAY[1, 2, NULL]::text",
    "ARRAY['a b', '', 'NULL', 'x\"y']::text",
    "ARRAY[true, false]::text",
    "ROW(1, 'a b', NULL, true)::text",
    "'{1,2,NULL}'::int[]::text",
    "'{\"a,b\",c}'::text[]::text",
    "(ARRAY[1, 2])[2]",
    "(ARRAY[1, 2])[3]",
    "(ARRAY[[1, 2], [3, 4]])[2][1]",
    "'{{1,2},{3,4}}'::int[]::text",
    "ARRAY[[1, 2], [3, 4]]::bigint[]::text",
    "(ARRAY[1] || 2)::text",
    "(0 || ARRAY[1])::text",
    "(ARRAY[1] || ARRAY[2, 3])::text",
    "ARRAY[1, 2] @> ARRAY[2]",
    "ARRAY[2] <@ ARRAY[1, 3]",
    "ARRAY[1, 2] && ARRAY[2, 5]",
    "ARRAY[1, 2] < ARRAY[1, 3]",
    "ARRAY[1, NULL] > ARRAY[1, 2]",
    "array_length(ARRAY[1, 2], 1)",
    "array_fill(7, ARRAY[2, 3])::text",
    "array_fill('a b'::text, '{2}')::text",
    "array_fill(NULL::int, ARRAY[2], ARRAY[1])::text",
    "array_fill(7, ARRAY[2, 0])::text",
    "array_fill(7, ARRAY[]::int[])::text",
    "array_fill(1.5, ARRAY[1, 1, 2, 1, 1, 1])::text",
    "(SELECT string_agg(array_fill(x, ARRAY[x, 2])::text, ';' ORDER BY x) FROM (VALUES (0), (1), (2)) v (x))",
    "((ARRAY[[1, 2], [3, 4]])[1:1][2:2])::text",
    "((ARRAY[[1, 2], [3, 4]])[2][1:1])::text",
    "((ARRAY[1, 2, 3])[2:])::text",
    "(ARRAY[1, 2] || NULL)::text",
    "(NULL || ARRAY[1, 2])::text",
    "(ARRAY[1, 2] || '{3}')::text",
    "(ARRAY[[1, 2]] || ARRAY[3, 4])::text",
    "(ARRAY[[1, 2]] || ARRAY[[3, 4]])::text",
    "ARRAY[ARRAY[]::int[], ARRAY[]::int[]]::text",
    "string_to_array('a,b,,c', ',')::text",
    "string_to_array('abc', NULL)::text",
    "string_to_array('a,b', '')::text",
    "string_to_array('a,b', ',', 'b')::text",
    "string_to_array('', ',')::text",
    "array_position(ARRAY[1, 2, 1], 1, 2)",
    "array_length(ARRAY[]::int[], 1)",
    "array_upper(ARRAY[[1, 2, 3]], 2)",
    "array_lower(ARRAY[7], 1)",
    "array_remove(ARRAY[1, 2, 1], 1)::text",
    "array_position(ARRAY['a', 'b'], 'b')",
    "array_to_string(ARRAY['a', NULL, 'b'], '-')",
    "array_to_string(ARRAY['a', NULL, 'b'], '-', '?')",
    "2 = ANY (ARRAY[1, 2])",
    "2 <> ALL (ARRAY[1, 3])",
    "3 = ANY (ARRAY[1, NULL])",
    "ARRAY(SELECT x FROM generate_series(1, 3) AS g(x) ORDER BY x DESC)::text",
    "(SELECT array_agg(x ORDER BY x DESC) FILTER (WHERE x > 1) FROM generate_series(1, 3) AS g(x))::text",
    "'[1, 2]'::jsonb ->> 1",
    "'[1, 2]'::jsonb ->> -2",
    '\'{"a": {"b": "c"}}\'::jsonb #>> \'{a,b}\'',
    "'{\"a\": [1, \"x\"]}'::jsonb #>> '{a,1}'",
    "'{\"a\": null}'::jsonb ->> 'a'",
    "('{\"a\": null}'::jsonb -> 'a') IS NULL",
    # What holds nothing is the only element of itself, but by a path it has none.
    "(SELECT array_agg((x ->> 0) || coalesce(x ->> -1, '-') || (x -> 0)::text ORDER BY n)::text"
    " FROM (VALUES (1, 'true'::jsonb), (2, '[5]'), (3, '{\"a\": 1}'), (4, '\"s\"'), (5, NULL)) v (n, x))",
    "('null'::jsonb -> 0)::text || coalesce('null'::jsonb ->> 0, '-')",
    "('1'::jsonb -> 1) IS NULL AND ('1'::jsonb #> '{0}') IS NULL AND ('1'::jsonb)[0] IS NULL",
    "(('{\"a\": {\"b\": [1, 2]}}'::jsonb)['a']['b'][-1])::text",
    "(('[5]'::jsonb)['0'])::text || (('{\"1\": 7}'::jsonb)[1])::text",
    "(('{\"a\": 1}'::jsonb)[NULL]) IS NULL",
    "'{\"a\": 1}'::jsonb ? 'a'",
    "'[\"a\"]'::jsonb ? 'a'",
    '\'{"a": {"b": 1}}\'::jsonb @> \'{"b": 1}\'',
    '\'{"a": {"b": 1, "c": 2}}\'::jsonb @> \'{"a": {"c": 2}}\'',
    "'[[1, 2]]'::jsonb @> '[1]'",
    "'[1, [2, 3]]'::jsonb @> '[[3]]'",
    "'[5]'::jsonb @> '5'",
    "'5'::jsonb @> '[5]'",
    "'[1, 2]'::jsonb <@ '[2, 1, 3]'",
    "jsonb_typeof('1.5')",
    "jsonb_array_length('[1, 2]')",
    "'12'::jsonb::int",
    "'true'::jsonb::boolean",
]
#: Expressions whose value is a document, compared as documents.
_DOCUMENTS = [
    '\'{"b": 1.50, "a": [1e1, {"x": null}], "b": "é\\u00e9"}\'::jsonb',
    '(\'{"b": 1.50, "a": [1e1, {"x": null}], "b": "é\\u00e9"}\' || \'\')::jsonb',
    '\'{"a": 1}\'::jsonb || \'{"b": 2, "a": 3}\'',
    "'[1]'::jsonb || '2'",
    "'{\"a\": 1, \"b\": 2}'::jsonb - 'a'",
    "'[1, 2, 3]'::jsonb - 1",
    "jsonb_build_array(1, 'a', NULL, true)",
    "jsonb_build_object('b', 1, 'a', ARRAY[1, 2])",
    'jsonb_strip_nulls(\'{"a": null, "b": [{"c": null}, null]}\')',
    "to_jsonb(ARRAY['x', NULL])",
    "to_jsonb(ROW(1, 'x'))",
    "(SELECT jsonb_agg(x ORDER BY x DESC) FROM generate_series(1, 3) AS g(x))",
    "(SELECT jsonb_object_agg(x::text, x * x) FROM generate_series(1, 3) AS g(x))",
]
_ROWS = [
    "SELECT * FROM unnest(ARRAY['b', 'a']) WITH ORDINALITY ORDER BY 2",
    "SELECT * FROM ROWS FROM (unnest(ARRAY[1, 2]), generate_series(1, 3)) WITH ORDINALITY AS x(a, b, c) ORDER BY c",
    "SELECT generate_series(1, 2) AS a, generate_series(5, 7) AS b ORDER BY b",
    'SELECT key, value #>> \'{}\' FROM jsonb_each(\'{"b": 1, "a": "x"}\') ORDER BY key',
    'SELECT * FROM jsonb_each_text(\'{"b": null, "a": "x"}\') ORDER BY key',
    "SELECT e FROM jsonb_array_elements_text('[1, \"x\", null]') AS e ORDER BY e",
    'SELECT jsonb_object_keys(\'{"b": 1, "a": 2}\') AS k ORDER BY k',
    "SELECT x FROM generate_series('2021-01-31'::timestamp, '2021-06-01', '1 month') AS x ORDER BY x",
    "SELECT x FROM generate_series('2021-05-31'::timestamp, '2021-01-31', '-1 month -1 day') AS x ORDER BY x",
    "SELECT generate_subscripts(ARRAY[5, 6], 1) AS i ORDER BY i",
    "SELECT i, j ? s, j @> k, k <@ j, (j || k) IS NULL, (j - s) IS NULL, (j -> s) IS NULL"
    " FROM (VALUES (1, NULL::jsonb, 'a', '[1]'::jsonb), (2, '{\"a\": 1}', NULL, NULL), (3, '[1, 2]', 'a', '[1]'))"
    " AS v (i, j, s, k) WHERE i <> 2 OR s IS NULL ORDER BY i",
    "SELECT n, x FROM generate_series(1, 2) AS n, LATERAL unnest(ARRAY[n, n * 10]) AS x ORDER BY n, x",
]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(tmp_path_factory.mktemp("containers") / "env")
    yield connection
    connection.close()


def test_what_postgresql_answers(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    query = f"SELECT {', '.join(_SHARED)}"
    (wanted,) = expected(postgres, query)
    (found,) = rows_of(con, query)
    assert dict(zip(_SHARED, found, strict=True)) == dict(zip(_SHARED, wanted, strict=True))


def test_documents_that_postgresql_makes(
    con: mzsql.Connection, postgres: psycopg.Connection[Any]
) -> None:
    query = f"SELECT {', '.join(f'({e})::text' for e in _DOCUMENTS)}"
    (wanted,) = expected(postgres, query)
    (found,) = rows_of(con, query)
    for text, theirs, expr in zip(found, wanted, _DOCUMENTS, strict=True):
        assert json.loads(text) == json.loads(theirs), expr
        compact = json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)
        assert json.loads(compact) == json.loads(text)
        assert " " not in text, expr


@pytest.mark.parametrize("query", _ROWS)
def test_rows_that_postgresql_yields(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str
) -> None:
    check_same(con, postgres, query)


def test_lists_and_maps(con: mzsql.Connection) -> None:
    cases: dict[str, Any] = {
        "LIST[[1, 2], [3]]": [[1, 2], [3]],
        "LIST[[1, 2], [3]][1][2]": 2,
        "LIST[ARRAY[1, 2]][1]": [1, 2],
        "LIST[ARRAY[]::int[]]": [[]],
        "LIST[ARRAY[]::int[], NULL, ARRAY[2]]": [[], None, [2]],
        "LIST[ARRAY[1, 2]][1][2]": 2,
        "LIST[ARRAY[[1, 2]]][1][1]": None,
        "LIST[1, 2, 3][2:3]": [2, 3],
        "LIST[1, 2, 3][5:6]": [],
        "LIST[1] || 2": [1, 2],
        "LIST[1] || LIST[2]": [1, 2],
        "'{{1},{2,NULL}}'::int list list": [[1], [2, None]],
        "list_length_max(LIST[[1, 2], [3]], 2)": 2,
        "LIST[1, 2]::text list": ["1", "2"],
        "LIST[[], [1]]::text list list": [[], ["1"]],
        "ARRAY[ARRAY[], ARRAY[]]::int[]": [],
        "LIST[[1, 2], [3, 4]][1:2][2:2]": [[2], [4]],
        "LIST[[1, 2], [3, 4]][2][1:1]": [3],
        "2 = ANY (LIST[1, 2])": True,
        "MAP['b' => 1, 'a' => 2, 'b' => 3]::text": "{a=>2,b=>3}",
        "MAP['a' => ['b' => 1]] -> 'a' -> 'b'": 1,
        "'{a=>1, b=>NULL}'::map[text=>int]::text": "{a=>1,b=>NULL}",
        "MAP['a' => 1] ?| ARRAY['a', 'c']": True,
        "MAP['a' => 1] ?& ARRAY['a', 'c']": False,
        "map_length(MAP['a' => 1])": 1,
        "map_build(LIST[ROW('b', 1), ROW('a', 2), ROW('b', 3), ROW(NULL, 4)])::text": "{a=>2,b=>3}",
        "(SELECT map_agg(x::text, x) FROM generate_series(1, 2) AS g(x))::text": "{1=>1,2=>2}",
    }
    (found,) = rows_of(con, f"SELECT {', '.join(cases)}")
    assert dict(zip(cases, found, strict=True)) == cases
    (made,) = rows_of(con, "SELECT MAP['a' => 1, 'b' => NULL]")
    assert dict(made[0]) == {"a": 1, "b": None}
    assert str(made[0]) == "{a=>1,b=>NULL}"


def test_stored_containers_come_back(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE held (a int[], l text list, m map[text=>int], j jsonb)")
    con.execute(
        "INSERT INTO held VALUES (ARRAY[1, NULL], LIST['x'], MAP['k' => 1], '{\"b\": 1, \"a\": 2}'), (NULL, NULL, NULL, NULL)"
    )
    rows = rows_of(con, "SELECT a, l, m::text, j::text FROM held ORDER BY l")
    assert rows == [([1, None], ["x"], "{k=>1}", '{"a":2,"b":1}'), (None, None, None, None)]
    assert rows_of(con, "SELECT u FROM held, unnest(a) AS u ORDER BY u") == [(1,), (None,)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT ARRAY[]", "cannot determine type of empty array"),
        ("SELECT '{'::jsonb", "invalid input syntax for type jsonb: EOF while parsing an object"),
        ("SELECT 'x'::int[]", "invalid input syntax for type array"),
        ("SELECT '{a}'::int list", "invalid input syntax for type integer"),
        ("SELECT (1)[1]", "cannot subscript type integer"),
        ("SELECT ('[5]'::jsonb)[0:1]", "jsonb subscript does not support slices"),
        (
            "SELECT ('[5]'::jsonb)[1.5]",
            "jsonb subscript type must be coercible to integer or text, not numeric",
        ),
        ("SELECT any_value(ARRAY[1], 2)", "function any_value(integer[], integer) does not exist"),
        ("SELECT every(1)", "function every(integer) does not exist"),
        ("SELECT jsonb_set('1', '{a}', '1')", "cannot set path in scalar"),
        ("SELECT '1'::jsonb #- '{a}'", "cannot delete path in scalar"),
        ("SELECT unnest(NULL)", "could not determine polymorphic type"),
        ("SELECT '\"a\"'::jsonb::int", "cannot cast jsonb string to type"),
        ("SELECT jsonb_build_object(1, 2, 3)", "argument list must have even number of elements"),
        ("SELECT jsonb_build_object(NULL, 1)", "key cannot be null"),
        (
            "SELECT 1 WHERE generate_series(1, 2) > 1",
            "table functions are not allowed in WHERE clause",
        ),
        ("SELECT '{}'::jsonb @> '[[[[[1]]]]]'", "more than 4 layers"),
    ],
)
def test_what_is_refused(con: mzsql.Connection, statement: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as caught:
        con.execute(statement).fetchall()
    assert message in str(caught.value)


def test_a_dataflow_over_jsonb_is_taken(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE documents (j jsonb)")
    con.execute("CREATE MATERIALIZED VIEW fields AS SELECT j -> 'a' AS a FROM documents")
    con.execute("CREATE VIEW plain_fields AS SELECT j -> 'a' AS a FROM documents")
    assert rows_of(con, "SELECT * FROM plain_fields") == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "ARRAY[[1, 2], [3]]",
            "number of array elements (3) does not match declared cardinality (4)",
        ),
        ("ARRAY[[1, 2]] || ARRAY[[3]]", "cannot concatenate incompatible arrays"),
        ("ARRAY[[1, 2]] || ARRAY[3]", "cannot concatenate incompatible arrays"),
        (
            "array_position(ARRAY[[1], [2]], ARRAY[1])",
            "searching for elements in multidimensional arrays is not supported",
        ),
        ("array_fill(7, ARRAY[1, NULL])", "dimension values must not be null"),
        ("array_fill(7, NULL)", "dimension array or low bound array must not be null"),
        ("array_fill(7, ARRAY[3], ARRAY[1, 1])", "wrong number of array subscripts"),
        (
            "array_fill(7, ARRAY[100000, 100000])",
            "array size exceeds the maximum allowed (134217728 bytes)",
        ),
        (
            "array_fill(7, ARRAY[-1])",
            "array size exceeds the maximum allowed (134217728 bytes)",
        ),
        ("array_fill(ARRAY[1], ARRAY[3])", "array_fill with arrays not yet supported"),
        (
            "map_build(LIST[ROW(1, 1)])",
            "function map_build(record(f1: integer,f2: integer) list) does not exist",
        ),
        ("array_position(ARRAY[1], 1, NULL)", "initial position must not be null"),
        (
            "(LIST[1, 2])[1:1][1:1]",
            "cannot slice into 2 layers; list only has 1 layer",
        ),
        (
            "list_length_max(LIST[1], 3)",
            "invalid layer: 3; must use value within [1, 1]",
        ),
    ],
)
def test_shapes_that_do_not_fit(con: mzsql.Connection, expression: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as failure:
        con.execute(f"SELECT {expression}").fetchall()
    assert str(failure.value).splitlines()[0] == message
