"""What SHOW CREATE prints, and the catalog's relations beside it: Materialize's spelling, which can be run again and prints the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_path_factory.mktemp("shown") / "env") as made:
        made.execute("CREATE TYPE ints AS LIST (ELEMENT TYPE = int)")
        made.execute("CREATE TABLE base (a int, b text, j jsonb)")
        yield made


def _shown(con: mzsql.Connection, kind: str, name: str) -> str:
    ((_, text),) = con.execute(f"SHOW CREATE {kind} {name}").fetchall()
    return str(text)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("int", '"pg_catalog"."int4"'),
        ("double precision", '"pg_catalog"."float8"'),
        ("character varying(3)", '"pg_catalog"."varchar"(3)'),
        ("char", '"pg_catalog"."bpchar"(1)'),
        ("decimal(10,2)", '"pg_catalog"."numeric"(10, 2)'),
        ("timestamp(3) with time zone", '"pg_catalog"."timestamptz"(3)'),
        ("uint4", '"mz_catalog"."uint4"'),
        ("bigint[]", '"pg_catalog"."int8"[]'),
        ("bool list list", '"pg_catalog"."bool" list list'),
        ("map[text=>real]", 'MAP["pg_catalog"."text"=>"pg_catalog"."float4"]'),
        ("int4range", '"pg_catalog"."int4range"'),
        ("ints", '"materialize"."public"."ints"'),
        ("boolean not null default TRUE", '"pg_catalog"."bool" NOT NULL DEFAULT true'),
        ("bigint DEFAULT 1+2", '"pg_catalog"."int8" DEFAULT 1 + 2'),
    ],
)
def test_types_of_columns(con: mzsql.Connection, written: str, shown: str) -> None:
    con.execute(f"CREATE TABLE t (x {written})")
    try:
        text = _shown(con, "TABLE", "t")
        assert text == f'CREATE TABLE "materialize"."public"."t" ("x" {shown})'
        con.execute("DROP TABLE t")
        con.execute(text)
        assert _shown(con, "TABLE", "t") == text
        assert con.execute("SELECT create_sql FROM mz_tables WHERE name = 't'").fetchall() == [
            (text,)
        ]
    finally:
        con.execute("DROP TABLE IF EXISTS t")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            "SELECT a::bigint x, cast(b AS text) FROM base",
            'SELECT "a"::"pg_catalog"."int8" AS "x", CAST("b" AS "pg_catalog"."text") FROM "materialize"."public"."base"',
        ),
        (
            "SELECT count(*) c, sum(DISTINCT a) FILTER (WHERE a>1) s FROM base t GROUP BY b,  a",
            'SELECT "pg_catalog"."count"(*) AS "c", "pg_catalog"."sum"(DISTINCT "a") FILTER (WHERE "a" > 1) AS "s" '
            'FROM "materialize"."public"."base" AS "t" GROUP BY "b", "a"',
        ),
        (
            "SELECT row_number() OVER (ORDER BY a) r, pg_catalog.abs(-1), - a, 1-1 d, a!=2 e FROM base",
            'SELECT "pg_catalog"."row_number"() OVER (ORDER BY "a") AS "r", "pg_catalog"."abs"(-1), - "a", 1 - 1 AS "d", '
            '"a" <> 2 AS "e" FROM "materialize"."public"."base"',
        ),
        (
            "SELECT coalesce(a,1), date '2020-01-01' d, interval '1 day', ARRAY[1,2], a IN (1,2) i, b IS NULL n FROM base",
            'SELECT COALESCE("a", 1), \'2020-01-01\'::"pg_catalog"."date" AS "d", INTERVAL \'1 day\', ARRAY[1, 2], '
            '"a" IN (1, 2) AS "i", "b" IS NULL AS "n" FROM "materialize"."public"."base"',
        ),
        (
            "SELECT a::numeric-2, u FROM base, LATERAL unnest(ARRAY[a]) u",
            'SELECT "a"::"pg_catalog"."numeric" - 2, "u" FROM "materialize"."public"."base", '
            'LATERAL "pg_catalog"."unnest"(ARRAY["a"]) AS "u"',
        ),
        (
            "SELECT mz_now(), * FROM generate_series(1,2) g (n), (VALUES (1,2)) v WHERE n=1 AND TRUE IS TRUE",
            'SELECT "mz_catalog"."mz_now"(), * FROM "pg_catalog"."generate_series"(1, 2) AS "g" ("n"), '
            '(VALUES (1, 2)) AS "v" WHERE "n" = 1 AND true IS TRUE',
        ),
        (
            "WITH MUTUALLY RECURSIVE r (n int) AS (SELECT 1) SELECT j->>'x AS y' FROM base, r",
            'WITH MUTUALLY RECURSIVE "r" ("n" "pg_catalog"."int4") AS (SELECT 1) '
            'SELECT "j" ->> \'x AS y\' FROM "materialize"."public"."base", "r"',
        ),
    ],
)
def test_queries_of_views(con: mzsql.Connection, written: str, shown: str) -> None:
    con.execute(f"CREATE VIEW v AS {written}")
    try:
        text = _shown(con, "VIEW", "v")
        assert text == f'CREATE VIEW "materialize"."public"."v" AS {shown}'
        con.execute("DROP VIEW v")
        con.execute(text)
        assert _shown(con, "VIEW", "v") == text
        for said in (
            "SELECT definition FROM mz_views WHERE name = 'v'",
            "SELECT pg_get_viewdef('v')",
        ):
            assert con.execute(said).fetchall() == [(f"{shown};",)]
    finally:
        con.execute("DROP VIEW IF EXISTS v")


def test_indexes_and_types(con: mzsql.Connection) -> None:
    con.execute('CREATE INDEX "by" ON base (a, upper(b))')
    assert _shown(con, "INDEX", '"by"') == (
        'CREATE INDEX "by" IN CLUSTER "quickstart" ON "materialize"."public"."base" ("a", "pg_catalog"."upper"("b"))'
    )
    assert _shown(con, "TYPE", "ints") == (
        'CREATE TYPE "materialize"."public"."ints" AS LIST (ELEMENT TYPE = "pg_catalog"."int4")'
    )


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("pg_catalog.sum(x) FILTER (WHERE x > 1)", [(5,)]),
        ("pg_catalog.max(x) FILTER (WHERE x < 3) OVER ()", [(2,), (2,), (2,)]),
        ("materialize.pg_catalog.lag(x) OVER (ORDER BY x)", [(None,), (1,), (2,)]),
        ('"pg_catalog"."coalesce"(NULL, 7)', [(7,), (7,), (7,)]),
    ],
)
def test_calls_with_their_schemas_name(
    con: mzsql.Connection, call: str, value: list[tuple[object]]
) -> None:
    text = f"SELECT {call} FROM generate_series(1, 3) AS x"
    assert sorted(con.execute(text).fetchall(), key=str) == sorted(value, key=str)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("pg_catalog.nope(x) FILTER (WHERE true)", 'function "pg_catalog.nope" does not exist'),
        ("mz_catalog.sum(x) OVER ()", 'function "mz_catalog.sum" does not exist'),
        ("pg_catalog.abs(x) FILTER (WHERE true)", "FILTER specified, but abs is not an aggregate"),
    ],
)
def test_calls_that_are_in_no_such_schema(con: mzsql.Connection, call: str, message: str) -> None:
    with pytest.raises(mzsql.Error, match=message):
        con.execute(f"SELECT {call} FROM generate_series(1, 3) AS x")


def test_bpchar_without_a_length_has_any(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        asked = "SELECT 'ab'::bpchar, 'ab'::char, 'ab'::bpchar(3), 'ab  '::bpchar = 'ab', ARRAY['ab']::bpchar[]"
        assert con.execute(asked).fetchall() == [("ab", "a", "ab ", True, ["ab"])]
        con.execute("CREATE TABLE t (a bpchar, b char, c bpchar[])")
        con.execute("INSERT INTO t VALUES ('abc', 'd', ARRAY['ef'])")
        con.execute("CREATE MATERIALIZED VIEW v AS SELECT a || b AS d, 'gh'::bpchar AS e FROM t")
        ((_, text),) = con.execute("SHOW CREATE TABLE t").fetchall()
        assert text.endswith(
            '("a" "pg_catalog"."bpchar", "b" "pg_catalog"."bpchar"(1), "c" "pg_catalog"."bpchar"[])'
        )
        con.execute("ALTER TABLE t RENAME TO u")
        assert con.execute("SELECT * FROM u").fetchall() == [("abc", "d", ["ef"])]
        assert con.execute("SELECT * FROM v").fetchall() == [("abcd", "gh")]
