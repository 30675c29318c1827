"""What a person reads when a statement is wrong: PostgreSQL's or Materialize's words, and where."""

from __future__ import annotations

import pytest
from memory_catalog import MemoryCatalog

from mzsql.frontend import lower_query, parse_statements
from mzsql.repr.errors import SqlError, SqlSyntaxError, UndefinedFunction, Unsupported

SCHEMA = """
CREATE TABLE t (a int, b int NOT NULL, s text);
CREATE TABLE u (a int, c bigint);
CREATE VIEW v AS SELECT a FROM t;
CREATE INDEX i ON t (a);
"""


@pytest.fixture(scope="module")
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run(SCHEMA)
    return made


# statement, message, the text at the position (None: no position is promised)
CASES = [
    ("SELECT x FROM t", 'column "x" does not exist', "x FROM"),
    ("SELECT is_true(b = 1) FROM t", 'function "is_true" does not exist', "is_true"),
    ('SELECT "and"(true, true)', 'function "and" does not exist', '"and"'),
    ("SELECT t.x FROM t", 'column "t.x" does not exist', "t.x"),
    ("SELECT z.a FROM t", 'column "z.a" does not exist', "z.a"),
    ("SELECT * FROM nope", "unknown catalog item 'nope'", "nope"),
    ("SELECT * FROM other.t", "unknown catalog item 'other.t'", "other.t"),
    ("SELECT * FROM nosuch.t", "unknown schema 'nosuch'", "nosuch"),
    ("SELECT * FROM db.public.t", "unknown database 'db'", "db"),
    ("SELECT a FROM t, u", 'column reference "a" is ambiguous', "a FROM"),
    (
        "SELECT 1 FROM t JOIN u USING (b)",
        'column "b" specified in USING clause does not exist in right table',
        None,
    ),
    ("SELECT 1 FROM t, t", 'table name "t" specified more than once', None),
    ("SELECT a + true FROM t", "operator does not exist: integer + boolean", "a + true"),
    ("SELECT - s FROM t", "operator does not exist: - text", None),
    ("SELECT nofunc(a) FROM t", 'function "nofunc" does not exist', "nofunc"),
    ("SELECT sum(s) FROM t", "function sum(text) does not exist", "sum"),
    ("SELECT lower(a, b) FROM t", "function lower(integer, integer) does not exist", "lower"),
    ("SELECT * FROM nofunc(1)", 'function "nofunc" does not exist', None),
    ("SELECT a::nope FROM t", 'type "nope" does not exist', "nope"),
    ("SELECT current_time", 'column "current_time" does not exist', "current_time"),
    ("SELECT '{}'::map[int=>int]", "map key type must be text, got integer", None),
    (
        "SELECT greatest(row(1, 2), 'hello')",
        "greatest could not convert type record(f1: integer,f2: integer) to text",
        None,
    ),
    (
        "SELECT sum(a) OVER (GROUPS 1 PRECEDING) FROM t",
        "GROUPS mode requires an ORDER BY clause",
        None,
    ),
    ("SELECT a::date FROM t", "CAST does not support casting from integer to date", None),
    (
        "SELECT a, sum(b) FROM t",
        'column "t.a" must appear in the GROUP BY clause or be used in an aggregate function',
        "a, sum",
    ),
    (
        "SELECT s FROM t GROUP BY a",
        'column "t.s" must appear in the GROUP BY clause or be used in an aggregate function',
        "s FROM",
    ),
    (
        "SELECT a FROM t HAVING b > 1",
        'column "t.a" must appear in the GROUP BY clause or be used in an aggregate function',
        None,
    ),
    (
        "SELECT * FROM t WHERE sum(a) > 1",
        "aggregate functions are not allowed in WHERE clause (function pg_catalog.sum)",
        "sum",
    ),
    ("SELECT sum(sum(a)) FROM t", "nested aggregate functions are not allowed", None),
    (
        "SELECT a FROM t GROUP BY sum(a)",
        "aggregate functions are not allowed in GROUP BY clause (function pg_catalog.sum)",
        None,
    ),
    ("SELECT * FROM t WHERE a", "argument of WHERE must be type boolean, not type integer", "a"),
    ("SELECT * FROM t WHERE NOT a", "NOT argument must have type boolean, not type integer", None),
    (
        "SELECT * FROM t JOIN u ON t.a",
        "argument of JOIN/ON must be type boolean, not type integer",
        None,
    ),
    (
        "SELECT CASE WHEN true THEN 1 ELSE date '2020-01-01' END",
        "CASE types integer and date cannot be matched",
        None,
    ),
    (
        "SELECT coalesce(a, true) FROM t",
        "coalesce types integer and boolean cannot be matched",
        None,
    ),
    (
        "SELECT a FROM t UNION SELECT true",
        "UNION types integer and boolean cannot be matched",
        None,
    ),
    (
        "SELECT a FROM t UNION SELECT a, b FROM t",
        "each UNION query must have the same number of columns",
        None,
    ),
    (
        "SELECT a FROM t ORDER BY 2",
        "column reference 2 in ORDER BY clause is out of range (1 - 1)",
        "2",
    ),
    (
        "SELECT a FROM t GROUP BY 7",
        "column reference 7 in GROUP BY clause is out of range (1 - 1)",
        "7",
    ),
    (
        "SELECT DISTINCT a FROM t ORDER BY b",
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
        None,
    ),
    (
        "SELECT DISTINCT ON (a) a FROM t ORDER BY b",
        "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
        None,
    ),
    ("SELECT (SELECT a, b FROM t)", "Expected subselect to return 1 column, got 2 columns", None),
    (
        "SELECT a IN (SELECT a, b FROM t) FROM t",
        "subquery has 2 columns available but 1 columns specified",
        None,
    ),
    ("SELECT a, b AS a FROM t ORDER BY a", 'column reference "a" is ambiguous', "a"),
    ("SELECT q.a FROM (SELECT 1 AS a, 2 AS a) q", 'column reference "a" is ambiguous', "q.a"),
    ("SELECT * FROM t JOIN u", "Expected ON, or USING after JOIN", None),
    ("SELECT * FROM t AS x JOIN u USING (a) AS x", 'table name "x" specified more than once', None),
    ("SELECT x.c FROM t JOIN u USING (a) AS x", 'column "x.c" does not exist', "x.c"),
    ("SELECT t.a FROM (t JOIN u USING (a)) q", 'column "t.a" does not exist', "t.a"),
    ("SELECT * FROM t LATERAL (SELECT 1) q", "Expected end of statement, found LATERAL", None),
    (
        "SELECT * FROM t, u JOIN v ON t.a = v.a",
        'invalid reference to FROM-clause entry for table "t"',
        "t.a",
    ),
    (
        "SELECT * FROM t CROSS JOIN (u CROSS JOIN LATERAL (SELECT a) q)",
        'column reference "a" is ambiguous',
        "a)",
    ),
    (
        "SELECT * FROM t CROSS JOIN (t CROSS JOIN LATERAL (SELECT t.b) q) r",
        'table reference "t" is ambiguous',
        "t.b",
    ),
    (
        "SELECT * FROM t FULL JOIN (u CROSS JOIN LATERAL (SELECT b) q) ON true",
        "the combining JOIN type must be INNER or LEFT for a LATERAL reference",
        None,
    ),
    ("SELECT a FROM t LIMIT 2 * 3 - 7", "LIMIT must not be negative", None),
    ("SELECT a FROM t LIMIT 1 / 0", "division by zero", None),
    ("SELECT a FROM t OFFSET 1 - 2", "OFFSET must not be negative", None),
    ("SELECT a FROM t LIMIT 1 LIMIT 2", "multiple LIMIT/FETCH clauses not allowed", None),
    ("SELECT a FROM t OFFSET 1 OFFSET 2", "multiple OFFSET clauses not allowed", None),
    ("SELECT nosuch.* FROM t", "no table named 'nosuch' in scope", None),
    (
        "SELECT * FROM t, (SELECT t.a) q",
        'invalid reference to FROM-clause entry for table "t"',
        None,
    ),
    ("SELECT *", "SELECT * with no tables specified is not valid", None),
    ("SELECT a FROM t LIMIT -1", "LIMIT must not be negative", None),
    ("SELECT a FROM t LIMIT 'x'", None, None),
    (
        "SELECT a FROM t WHERE row_number() OVER () > 1",
        "window functions are not allowed in WHERE clause (function pg_catalog.row_number)",
        None,
    ),
    (
        "SELECT row_number() FROM t",
        "window function pg_catalog.row_number requires an OVER clause",
        None,
    ),
    (
        "WITH q AS (SELECT 1), q AS (SELECT 2) SELECT 1",
        'WITH query name "q" specified more than once',
        None,
    ),
    ("VALUES (1, 2), (3)", "VALUES lists must all be the same length", None),
    (
        "SELECT generate_series(1, 2) FROM t WHERE generate_series(1, 2) > 1",
        "table functions are not allowed in WHERE clause (function pg_catalog.generate_series)",
        None,
    ),
    (
        "SELECT count(*) FILTER (WHERE count(a) > 1) FROM t",
        "aggregate functions are not allowed in FILTER (function pg_catalog.count)",
        "count(a)",
    ),
    (
        "SELECT a FROM t UNION SELECT a FROM u ORDER BY sum(a)",
        "aggregate functions are not allowed in ORDER BY clause of a set expression (function pg_catalog.sum)",
        "sum",
    ),
    (
        "SELECT a FROM t UNION SELECT a FROM u ORDER BY lag(a) OVER ()",
        "window functions are not allowed in ORDER BY clause of a set expression (function pg_catalog.lag)",
        None,
    ),
    (
        "SELECT 1 FROM t JOIN u ON list_agg(t.a) = NULL",
        "aggregate functions are not allowed in ON clause (function mz_catalog.list_agg)",
        "list_agg",
    ),
    (
        "SELECT (SELECT count(t.a)) FROM t",
        "aggregate functions that refer exclusively to outer columns not yet supported",
        "count",
    ),
    (
        "SELECT count() FROM t",
        "count(*) must be used to call a parameterless aggregate function",
        "count",
    ),
    ("SELECT sum(*) FROM t", "function sum() does not exist", "sum"),
    ("SELECT avg(s) FROM t", "function sum(text) does not exist", "avg"),
    ("SELECT avg(NULL)", "function sum(unknown) is not unique", "avg"),
    ("SELECT array_agg(NULL)", "function array_agg(unknown) is not unique", "array_agg"),
    (
        "SELECT string_agg(a, ',') FROM t",
        "function string_agg(integer, unknown) does not exist",
        "string_agg",
    ),
    (
        "SELECT 1 FROM t JOIN (SELECT DATE '2024-01-01' AS a) d USING (a)",
        'NATURAL/USING join column "a" types integer and date cannot be matched',
        None,
    ),
    ("SELECT a FROM t OFFSET b", "OFFSET must be an integer constant", None),
    (
        "SELECT a + ANY (SELECT 1) FROM t",
        "op ANY/ALL requires operator to yield boolean",
        None,
    ),
    ("SELECT (1, 2) = (SELECT 1)", "unequal number of entries in row expressions", None),
    (
        "SELECT (1, 2) IN (SELECT 1)",
        "subquery has 1 columns available but 2 columns specified",
        None,
    ),
    ("SELECT (SELECT 1, 2)", "Expected subselect to return 1 column, got 2 columns", None),
    ("SELECT (SELECT)", "Expected subselect to return 1 column, got 0 columns", None),
    ("SELECT (a).* FROM t", "type integer is not composite", None),
    ("SELECT nothing(2) OVER () FROM t", 'function "nothing" does not exist', "nothing"),
    ("SELECT b'1'", 'type "b" does not exist', None),
    ("SELECT count(*, 1) FROM t", "Expected right parenthesis, found comma", None),
    # --- syntax
    ("SELECT 1 FROM", "Expected identifier, found EOF", ""),
    ("SELECT (1", "Expected right parenthesis, found EOF", ""),
    ("SELECT a b c FROM t", 'Expected end of statement, found identifier "c"', "c FROM"),
    ("CREATE TABLE x (a int) RENAME", "Expected end of statement, found RENAME", "RENAME"),
    ("SELECT a b refresh FROM t", "Expected end of statement, found REFRESH", "refresh"),
    ('SELECT a b "refresh" FROM t', 'Expected end of statement, found identifier "refresh"', None),
    ("SELECT 1,, 2", "Expected an expression, found comma", ", 2"),
    ("SELECT * FROM t WHERE", "Expected an expression, found EOF", ""),
    (
        "FOO BAR",
        'Expected a keyword at the beginning of a statement, found identifier "foo"',
        "FOO",
    ),
    ('SELECT a B "C" FROM t', 'Expected end of statement, found identifier "C"', '"C" FROM'),
    ("CREATE TABLE x (a int) Foo", 'Expected end of statement, found identifier "foo"', "Foo"),
    ("SELECT a FROM t GROUP", "Expected end of statement, found GROUP", "GROUP"),
    ("SELECT CASE WHEN true THEN 1", "Expected END, found EOF", ""),
    ("SELECT 'abc", "unterminated quoted string", "'abc"),
    ("SELECT 1 /* one", "unterminated multiline comment", "/* one"),
    ("SELECT '/* one", "unterminated quoted string", "'/* one"),
    ("SELECT 1 AS 1", 'Expected identifier, found number "1"', "1"),
    ("SELECT 1 AS 'x'", 'Expected identifier, found string literal "x"', "'x'"),
    ("SELECT 1 FROM t GROUP BY", "Expected an expression, found EOF", ""),
    ("CREATE TABLE x (a int, )", None, None),
    ("CREATE TABLE x (a)", None, ")"),
    (
        "EXPLAIN RAW PLAN WITH (foo, types) AS TEXT FOR SELECT 1",
        "Expected a valid explain plan option name, found 'foo'",
        "foo",
    ),
    ("DROP TABLE", "Expected identifier, found EOF", ""),
    # --- writing
    ("INSERT INTO nope VALUES (1)", "unknown catalog item 'nope'", "nope"),
    ("INSERT INTO v VALUES (1)", "cannot insert into view 'materialize.public.v'", "v VALUES"),
    (
        "INSERT INTO t (zz) VALUES (1)",
        'column "zz" of relation "materialize.public.t" does not exist',
        "zz",
    ),
    ("INSERT INTO t (a, a) VALUES (1, 2)", 'column "a" specified more than once', "a) VALUES"),
    (
        "INSERT INTO t VALUES (1, 2, 'x', 4)",
        "INSERT has more expressions than target columns",
        None,
    ),
    ("INSERT INTO t (a, b) VALUES (1)", "INSERT has more target columns than expressions", None),
    (
        "INSERT INTO t VALUES (true)",
        'column "a" is of type integer but expression is of type boolean',
        None,
    ),
    (
        "UPDATE t SET b = date '2020-01-01'",
        'column "b" is of type integer but expression is of type date',
        None,
    ),
    ("UPDATE t SET zz = 1", "unknown column zz", "zz"),
    ("UPDATE t SET a = 1, a = 2", "column a set twice", "a = 2"),
    ("DELETE FROM v", "cannot mutate view 'materialize.public.v'", None),
    ("COPY t FROM '/x' (FORMAT AVRO)", 'COPY format "avro" not recognized', None),
    ("COPY t FROM '/x.parquet' (HEADER)", "COPY HEADER requires CSV format", None),
    # --- defining
    ("CREATE TABLE x (a int, a int)", 'column "a" specified more than once', "a int)"),
    (
        "CREATE TABLE x (a int PRIMARY KEY)",
        "CREATE TABLE with a primary key or unique constraint is not supported",
        "PRIMARY",
    ),
    ("CREATE TABLE x (a nope)", 'type "nope" does not exist', "nope"),
    ("CREATE TABLE nosuch.x (a int)", "unknown schema 'nosuch'", "nosuch"),
    ("CREATE TABLE mz_catalog.x (a int)", "system schema 'mz_catalog' cannot be modified", None),
    ("CREATE VIEW x AS SELECT 1, 2", 'column "?column?" specified more than once', None),
    (
        "CREATE VIEW x (p, q) AS SELECT 1",
        "view materialize.public.x definition names 2 columns, but view materialize.public.x has 1 column",
        None,
    ),
    ("CREATE MATERIALIZED VIEW x IN CLUSTER nope AS SELECT 1", "unknown cluster 'nope'", "nope"),
    ("CREATE INDEX ON t (zz)", 'column "zz" does not exist', "zz"),
    (
        "CREATE INDEX ON i (a)",
        "index cannot be created on materialize.public.i because it is an index",
        None,
    ),
    ("DROP VIEW t", "materialize.public.t is not a view", "t"),
    ("DROP TABLE nope", "unknown catalog item 'nope'", "nope"),
    ("SHOW CREATE VIEW t", "materialize.public.t is not a view", None),
    ("SELECT * FROM i", "is an index and so cannot be depended upon", None),
    ("EXPLAIN RAW PLAN FOR INDEX i", "cannot EXPLAIN RAW PLAN FOR INDEX", None),
    (
        "EXPLAIN DECORRELATED PLAN FOR CREATE INDEX k ON t (a)",
        "cannot EXPLAIN DECORRELATED PLAN FOR CREATE INDEX",
        None,
    ),
    (
        "CREATE CLUSTER c (SIZE '1', SCHEDULE = often)",
        'Expected one of MANUAL or ON, found identifier "often"',
        "often",
    ),
    (
        "CREATE CLUSTER c (SIZE '1', SCHEDULE ON REFRESH, REPLICATION FACTOR 2)",
        "REPLICATION FACTOR cannot be given together with any SCHEDULE other than MANUAL",
        "SCHEDULE",
    ),
    (
        "CREATE CLUSTER c (SCHEDULE ON REFRESH, REPLICAS (r (SIZE '1')))",
        "cluster schedules other than MANUAL are not supported for unmanaged clusters",
        "SCHEDULE",
    ),
    (
        "CREATE CLUSTER c (SIZE '1', SCHEDULE ON REFRESH (HYDRATION TIME ESTIMATE = '-2 h'))",
        "HYDRATION TIME ESTIMATE must be non-negative; got: -02:00:00",
        "'-2 h'",
    ),
    (
        "CREATE CLUSTER c (SIZE '1', SCHEDULE ON REFRESH (HYDRATION TIME ESTIMATE '1 month'))",
        "HYDRATION TIME ESTIMATE must not involve units larger than days",
        "'1 month'",
    ),
    ("SELECT %s", "there is no parameter for this placeholder", None),
    ("SELECT 1 AS OF true", "AS OF must be a timestamp", None),
    ("SELECT b, 1a FROM t", 'trailing junk after numeric literal at or near "1a"', "1a"),
    ("SELECT 1__0", 'trailing junk after numeric literal at or near "1_"', "1__0"),
    ("SELECT 1 + 1e+", 'trailing junk after numeric literal at or near "1e+"', "1e+"),
    ("SELECT 1.5e5x", 'trailing junk after numeric literal at or near "1.5e5x"', "1.5e5x"),
    ("SELECT 0xFFg", 'trailing junk after numeric literal at or near "0xFFg"', "0xFFg"),
    ("SELECT 0x", 'invalid hexadecimal integer at or near "0x"', "0x"),
    ("SELECT 0o8", 'invalid octal integer at or near "0o"', "0o8"),
    ("SELECT 0b2", 'invalid binary integer at or near "0b"', "0b2"),
    (f"SELECT 0x{'f' * 5000}", "invalid number: 0xfff", "0xfff"),
]


def lowered(catalog: MemoryCatalog, sql: str) -> object:
    plan = catalog.plan(sql)
    query = getattr(plan, "query", None)
    return plan if query is None else lower_query(query)


@pytest.mark.parametrize(("sql", "message", "at"), CASES, ids=[c[0] for c in CASES])
def test_the_error_says_what_and_where(
    catalog: MemoryCatalog, sql: str, message: str | None, at: str | None
) -> None:
    with pytest.raises(SqlError) as caught:
        lowered(catalog, sql)
    assert caught.value.sqlstate != "XX000"
    if message is not None:
        assert message in caught.value.message
    if at is not None:
        assert caught.value.position is not None
        assert (
            sql[caught.value.position - 1 :].startswith(at)
            if at
            else caught.value.position > len(sql)
        )


def test_a_hint_names_a_similar_column(catalog: MemoryCatalog) -> None:
    catalog.run("CREATE TABLE orders (customer int, total int)")
    with pytest.raises(SqlError) as caught:
        catalog.plan("SELECT custommer FROM orders")
    assert 'column "customer"' in (caught.value.hint or "")
    with pytest.raises(SqlError, match=r'column "o\.totl" does not exist') as caught:
        catalog.plan("SELECT o.totl FROM orders AS o, (SELECT 1 AS total1) AS other")
    assert caught.value.hint == 'Perhaps you meant the column "total".'


def test_a_column_with_capital_letters_is_told_to_be_quoted(catalog: MemoryCatalog) -> None:
    catalog.run('CREATE TABLE orders ("B" int, "customerId" int)')
    for text, name in (
        ("SELECT B FROM orders", "B"),
        ("SELECT orders.customerId FROM orders", "customerId"),
    ):
        with pytest.raises(SqlError, match=f'{name.lower()}" does not exist') as caught:
            catalog.plan(text)
        hint = f'Write "{name}": a name with capital letters stands in double quotes.'
        assert caught.value.hint == hint


@pytest.mark.parametrize("depth", [100, 128])
def test_deep_nesting_works(catalog: MemoryCatalog, depth: int) -> None:
    plan = catalog.plan(f"SELECT {'(' * depth}1{')' * depth}")
    assert lower_query(plan.query).desc.arity == 1
    nested = "SELECT 1 AS x"
    for _ in range(depth):
        nested = f"SELECT x FROM ({nested}) q"
    assert lower_query(catalog.plan(nested).query).desc.names == ("x",)


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {'(' * 5000}1{')' * 5000}",
        "SELECT " + "(" * 100_000,
        "SELECT " + "NOT " * 50_000 + "true",
        "SELECT " + "- " * 50_000 + "1",
        "SELECT " + "CASE WHEN true THEN " * 5000 + "1" + " END" * 5000,
        "SELECT " + "1 + " * 100_000 + "1",
        "SELECT " * 5000,
    ],
    ids=["parens", "open", "not", "minus", "case", "plus", "select"],
)
def test_too_deep_is_an_error_and_no_crash(catalog: MemoryCatalog, sql: str) -> None:
    with pytest.raises(SqlSyntaxError):
        lower_query(catalog.plan(sql).query)


def test_long_lists_and_chains_are_no_depth(catalog: MemoryCatalog) -> None:
    members = ", ".join(str(i) for i in range(10_000))
    assert lower_query(catalog.plan(f"SELECT a FROM t WHERE a IN ({members})").query)
    chain = " AND ".join(f"a <> {i}" for i in range(2_000))
    assert lower_query(catalog.plan(f"SELECT a FROM t WHERE {chain}").query)
    union = " UNION ALL ".join(f"SELECT {i}" for i in range(500))
    assert lower_query(catalog.plan(union).query)


def test_a_long_string_is_read(catalog: MemoryCatalog) -> None:
    text = "x" * 1_000_000
    (statement,) = parse_statements(f"SELECT '{text}'")
    assert statement
    assert lower_query(catalog.plan(f"SELECT '{text}'").query).desc.arity == 1


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("TRUNCATE t", "TRUNCATE statements are not supported", "DELETE FROM"),
        ("DESCRIBE t", "DESCRIBE statements are not supported", "SHOW COLUMNS"),
        ("use d", "USE statements are not supported", "SET database"),
        ("REFRESH MATERIALIZED VIEW v", "REFRESH statements are not", "with each commit"),
        ("CREATE TABLE x AS SELECT 1", "CREATE TABLE … AS is not supported", "INSERT INTO it"),
        ("SHOW CREATE SCHEMA public", "SHOW CREATE SCHEMA is not supported", ""),
        (
            "CREATE SOURCE c FROM LOAD GENERATOR COUNTER",
            "CREATE SOURCE is not supported",
            "Write to a table: ",
        ),
        (
            "CREATE SINK s FROM t INTO KAFKA",
            "CREATE SINK is not supported",
            "Read changes: SUBSCRIBE",
        ),
        ("CREATE SECRET s AS 'x'", "CREATE SECRET is not supported", "COPY and Spark"),
        ("CREATE CONNECTION c TO KAFKA (x)", "CREATE CONNECTION is not", "COPY and Spark"),
        ("CREATE USER u", "CREATE USER is not supported", "CREATE ROLE"),
    ],
)
def test_statements_of_other_systems_are_told_what_to_use(
    catalog: MemoryCatalog, text: str, message: str, hint: str
) -> None:
    with pytest.raises(Unsupported, match=message) as refused:
        catalog.plan(text)
    assert hint in (refused.value.hint or "")
    assert refused.value.position is not None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("DROP VIEW t", "Use DROP TABLE to remove a table."),
        ("DROP TABLE i", "Use DROP INDEX to remove an index."),
        ("SHOW CREATE VIEW t", "Use SHOW CREATE TABLE to show a table."),
        ("ALTER VIEW t RENAME TO u", "Use ALTER TABLE to rename a table."),
        ("ALTER VIEW t SET SCHEMA public", "Use ALTER TABLE to alter a table."),
        ("ALTER VIEW t RESET (RETAIN HISTORY)", "Use ALTER TABLE to alter a table."),
        ("COMMENT ON VIEW t IS 'x'", "Use COMMENT ON TABLE to comment on a table."),
    ],
)
def test_another_kind_of_object_than_said_is_told_with_the_statement_to_use(
    catalog: MemoryCatalog, text: str, hint: str
) -> None:
    with pytest.raises(SqlError) as refused:
        catalog.plan(text)
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SELECT abs(true)", "No function matches the given name and argument types. "),
        ("SELECT 1 + true", "No operator matches the given name and argument types. "),
        ("SELECT sum('1')", "Could not choose a best candidate function. "),
        ("SELECT '1' + '2'", "Could not choose a best candidate operator. "),
    ],
)
def test_hints_tell_functions_from_operators(catalog: MemoryCatalog, text: str, hint: str) -> None:
    with pytest.raises(UndefinedFunction) as refused:
        catalog.plan(text)
    said = hint + "You might need to add explicit type casts."
    assert refused.value.hint == said
    assert str(refused.value).endswith(f"\nHINT: {said}")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT 1 ORDER BY 1 NULLS NEVER", 'one of FIRST or LAST, found identifier "never"'),
        ("SELECT rank() OVER (ORDER BY 1 NULLS)", "one of FIRST or LAST, found right parenthesis"),
        ("SELECT INTERVAL '1' SECOND(1) TO SECOND", "end of statement, found SECOND"),
        ("SELECT INTERVAL '1' HOUR(1)", "end of statement, found left parenthesis"),
        ("SELECT INTERVAL '1' SECOND(x)", 'end of statement, found string literal "1"'),
    ],
)
def test_what_was_expected_instead_of_a_word_is_said(sql: str, found: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse_statements(sql)
    assert str(caught.value).startswith(f"Expected {found}")


def test_sizes_of_arrays_mean_nothing(catalog: MemoryCatalog) -> None:
    """As in PostgreSQL; a column named like a type can be subscripted all the same."""
    plan = catalog.plan("SELECT ARRAY[1]::int[3], '{1}'::text[2][], NULL::int[4] list")
    types = lower_query(plan.query).desc.typ.columns
    assert [str(column.type) for column in types] == ["integer[]", "text[]", "integer[] list"]
    assert catalog.plan("SELECT date[1] FROM (SELECT ARRAY[1] AS date) AS x")
