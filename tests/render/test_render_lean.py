"""The statement for what a step's relations are gives what the one for any relations gives: the same rows, of the same types.

The runner compares the two in each step, and the lean one over rows that come later and are larger.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from render_runner import Runner, duck, relation
from test_render_queries import MemoryCatalog, planned

from mzsql.compute.replica.step.relation_facts import kind_of
from mzsql.compute.replica.step.statistics import known_of
from mzsql.expr.engines import duckdb_connection, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import one_shot, render
from mzsql.render.facts import Fact, coarse, coarse_rows, column_of, number
from mzsql.render.rewrites.lean import Relation, columns_read, lean, widened
from mzsql.repr.errors import SqlError

TABLES = """
CREATE TABLE n (
    k integer, i bigint, j integer, s smallint, p numeric(38, 2), q numeric(20, 4), r numeric,
    d date, x double precision, t text, b boolean
);
CREATE TABLE m (k integer, v numeric(12, 2), w bigint);
"""
TIMES = 5


@pytest.fixture(scope="module")
def connection():
    con = duckdb_connection()
    con.execute("SET threads = 1")
    return con


class Sql:
    """Random expressions over the columns of n."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def numeric(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.rng.choice(["p", "q", "r", "1", "0", "-2.5", "i::numeric", "NULL::numeric"])
        a, b = self.numeric(depth - 1), self.numeric(depth - 1)
        return self.rng.choice(
            [
                f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"({a} % {b})", f"(-{a})",
                f"abs({a})", f"coalesce({a}, {b})", f"nullif({a}, {b})", f"greatest({a}, {b})",
                f"CASE WHEN {self.condition(depth - 1)} THEN {a} ELSE {b} END", f"({a})::numeric(12, 1)",
                f"round({a}, 1)", f"({self.integer(depth - 1)})::numeric",
            ]
        )  # fmt: skip

    def integer(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.rng.choice(
                ["i", "j", "s", "k", "7", "0", "-1", "2147483647", "NULL::bigint"]
            )
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        return self.rng.choice(
            [
                f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / {b})", f"({a} % {b})", f"(-{a})",
                f"abs({a})", f"coalesce({a}, {b})", f"nullif({a}, {b})", f"({a})::smallint", f"({a})::bigint",
                f"CASE WHEN {self.condition(depth - 1)} THEN {a} END", "(d - date '2000-01-01')",
                f"({self.numeric(depth - 1)})::integer", "length(t)",
            ]
        )  # fmt: skip

    def condition(self, depth: int) -> str:
        if depth == 0 or self.rng.random() < 0.2:
            return self.rng.choice(["b", "true", "p IS NULL", "i > 0", "d < date '1999-01-01'"])
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        x, y = self.numeric(depth - 1), self.numeric(depth - 1)
        v, w = self.integer(depth - 1), self.integer(depth - 1)
        return self.rng.choice(
            [
                f"({a} AND {b})", f"({a} OR {b})", f"(NOT {a})", f"({x} < {y})", f"({v} = {w})", f"({v} <> 0)",
                f"({x} IS NOT NULL)", f"({v} BETWEEN {w} AND 100)", "(d::timestamp > timestamp '1998-09-02')",
                "(timestamp '1999-02-03 04:05' >= d::timestamp)", "(d < date '1998-08-02' + interval '1 month')",
                "(t LIKE 'x%')",
                f"({a} IS NULL)", "(t = 'x')", f"({v} IN (1, 2, NULL))",
            ]
        )  # fmt: skip

    def anything(self, depth: int = 2) -> str:
        make = self.rng.choice([self.numeric, self.numeric, self.integer, self.condition])
        return make(depth)

    def query(self) -> str:
        exprs = ", ".join(f"{self.anything()} AS e{i}" for i in range(3))
        where = self.rng.choice(["", "", f" WHERE {self.condition(2)}"])
        shape = self.rng.randint(0, 5)
        if shape == 0:
            return f"SELECT k, {exprs} FROM n{where}"
        if shape == 1:
            return f"SELECT n.k, v, {exprs.replace('k', 'n.k')} FROM n JOIN m ON n.k = m.k AND v > 0{where.replace('k', 'n.k')}"
        x, v = self.numeric(1), self.integer(1)
        aggregates = f"sum({x}), avg({x}), count({v}), sum({v}), min({x}), max({v}), count(*)"
        if shape == 2:
            return f"SELECT k, {aggregates}, avg(q), sum(p) FROM n{where} GROUP BY k HAVING count(*) > 0"
        if shape == 3:
            return f"SELECT {aggregates} FROM n{where}"
        if shape == 4:
            totals = f"sum(v), sum(w), avg(v), count(*), sum({self.rng.choice('pqij')})"
            by = self.rng.choice(["", " GROUP BY n.k"])
            return f"SELECT {totals} FROM n JOIN m ON n.k = m.k{by}"
        return f"SELECT k, {self.numeric(1)} AS e, i FROM n{where} ORDER BY i, e DESC LIMIT 3"


def row_of_n(rng: random.Random, size: int) -> tuple:
    """A row whose numbers grow with `size`: 0 small ones without NULL, 3 the largest there are."""
    digits = (1, 3, 12, 36)[size]

    def one(top: int, scale: int = 0):
        if size and rng.random() < 0.15:
            return None
        value = rng.choice([0, 1, -1, rng.randint(-top, top), top, -top])
        return Decimal(f"{value}E-{scale}") if scale else value

    def whole(bits: int) -> int:
        return min(10**digits, 2 ** (bits - 1) - 1)

    return (
        rng.randint(0, 3), one(whole(64)), one(whole(32)), one(whole(16)), one(10 ** min(digits + 2, 38) - 1, 2),
        one(10 ** min(digits + 4, 20) - 1, 4), one(10 ** min(digits + 18, 38) - 1, 18),
        None if size and rng.random() < 0.1 else dt.date(1998, 1, 1) + dt.timedelta(days=rng.randint(0, 900) * (1, 1, 30, 400)[size]),
        rng.choice([None, 0.5, -1.0]), rng.choice([None, "x", "yy"]), rng.choice([True, False, None]),
    )  # fmt: skip


def row_of_m(rng: random.Random, size: int) -> tuple:
    top = (10**3, 10**5, 10**9, 10**11)[size]
    return rng.randint(0, 3), Decimal(rng.randint(-top, top)).scaleb(-2), rng.randint(-top, top)


def history(rng: random.Random, make, rows: int) -> list:
    """Updates at times 0 … TIMES; numbers grow, some rows leave again."""
    updates: list = []
    held: Counter = Counter()
    for time in range(TIMES + 1):
        size = min(3, time * 4 // (TIMES + 1)) if rng.random() < 0.8 else rng.randint(0, 3)
        for _ in range(rng.randint(1, rows)):
            if held and rng.random() < 0.25:
                row = rng.choice(sorted(held, key=repr))
                diff = -rng.randint(1, held[row])
            else:
                row, diff = make(rng, size), rng.choice([1, 1, 1, 2, 1000])
            held[row] += diff
            held = +held
            updates.append((row, time, diff))
    return updates


def maintain(connection, seed: int, rows: int) -> bool:
    rng = random.Random(seed)
    catalog = MemoryCatalog()
    catalog.run(TABLES)
    sql = Sql(rng).query()
    try:
        rendered = render(planned(catalog, sql), errors_in=lambda _: False)
    except SqlError:
        return False  # constants that fail
    made = {"n": row_of_n, "m": row_of_m}
    inputs = {
        item.id: history(rng, made[item.name.item], rows)
        for item in catalog.items.values()
        if item.id in {spec.id for spec in rendered.inputs}
    }
    runner = Runner(rendered, duck(connection), lean=True)
    runner.hydrate({gid: [u for u in updates if u[1] == 0] for gid, updates in inputs.items()}, 0)
    for time in range(1, TIMES + 1):
        runner.step(inputs, time, time + 1)
    return True


@given(st.integers(0, 10**9))
@settings(max_examples=5, deadline=None, derandomize=True)
def test_lean_statements_give_what_guarded_ones_do(connection, seed):
    maintain(connection, seed, 12)


@pytest.mark.long
@given(st.integers(0, 10**9))
@settings(max_examples=10, deadline=None)
def test_lean_statements_give_what_guarded_ones_do_over_many_rows(connection, seed):
    maintain(connection, seed, 120)


@pytest.mark.soak
@given(st.integers(0, 10**9))
@settings(max_examples=500, deadline=None)
def test_lean_statements_give_what_guarded_ones_do_over_many_rows_again_and_again(connection, seed):
    maintain(connection, seed, 120)


def lean_step(sql: str, tables: str, changed: int, rows: int = 10) -> str:
    """The lean text of a step with one time in which so many of the inputs have small updates."""
    catalog = MemoryCatalog()
    catalog.run(tables)
    rendered = render(planned(catalog, sql), errors_in=lambda _: False)
    deltas = [f"delta_{one.id}" for one in rendered.inputs][:changed]
    template = rendered.template(Engine.DUCKDB, deltas, at_once=True)
    columns = {one.name: one.columns for one in rendered.arrangements}
    columns |= {f"delta_{one.id}": one.columns for one in rendered.inputs}
    given = {n: relation(columns[n], [], errors=False, timed=True) for n in template.step.reads}
    known = {
        name: Relation(
            {
                field.name: coarse(kind_of(field.type), 1, 1, nulls=False)
                if pa.types.is_integer(field.type) or pa.types.is_decimal(field.type)
                else Fact(kind_of(field.type), nulls=False, fails=False)
                for field in table.schema
            },
            rows,
        )
        for name, table in given.items()
    }
    made = lean(template.step.statement, known)
    assert made is not None
    return to_sql(made, Engine.DUCKDB)


@pytest.mark.parametrize("group", ["k", None])
def test_no_sum_of_small_numbers_is_guarded(group):
    columns, by = ("k, ", " GROUP BY k") if group else ("", "")
    sql = f"SELECT {columns}sum(v), sum(w), count(*) FROM m{by}"
    text = lean_step(sql, "CREATE TABLE m (k integer NOT NULL, v numeric(12, 2), w bigint)", 1)
    assert "overflow" not in text
    assert "TRY" not in text


def test_no_sum_of_small_numbers_over_a_join_is_guarded():
    tables = """
        CREATE TABLE a (k integer NOT NULL, b integer NOT NULL);
        CREATE TABLE b (k integer NOT NULL, v numeric(12, 2) NOT NULL)
    """
    sql = "SELECT a.k, sum(b.v) FROM a JOIN b ON a.b = b.k GROUP BY a.k"
    # As far as is known each row meets each other one, and all of what comes out is one group's.
    assert "overflow" not in lean_step(sql, tables, 2, rows=250_000)


def test_a_group_is_added_up_once_where_all_updates_have_one_time():
    """What a step adds and the sums after it come from one GROUP BY over state and updates."""
    sql = "SELECT k, sum(v), sum(w), count(*) FROM m GROUP BY k"
    text = lean_step(sql, "CREATE TABLE m (k integer NOT NULL, v numeric(12, 2), w bigint)", 1)
    summed = [
        one
        for one in sqlglot.parse_one(text, dialect="duckdb").find_all(sqlglot.exp.Select)
        if any(item.find(sqlglot.exp.Sum) for item in one.expressions)
    ]
    assert len(summed) == 1


def test_columns_that_are_equal_in_both_of_two_relations_are_equal_in_their_union():
    """By whichever other column each of the two tells it."""
    columns = {name: coarse("BIGINT", 1, 1, nulls=False) for name in "abcd"}

    def either(left: dict[str, str], right: dict[str, str]) -> dict[str, str]:
        one, other = (Relation(columns, 10, same) for same in (left, right))
        assert one.with_(other).same == other.with_(one).same
        return dict(one.with_(other).same)

    assert either({"b": "a", "c": "a", "d": "a"}, {"d": "c"}) == {"d": "c"}
    assert either({"b": "a", "c": "a"}, {"b": "a"}) == {"b": "a"}
    assert either({"c": "a", "d": "a"}, {"c": "b", "d": "b"}) == {"d": "c"}
    assert either({"c": "a"}, {"d": "a"}) == {}


def test_where_one_input_changes_no_row_says_which_one_it_is_of():
    tables = """
        CREATE TABLE a (k integer NOT NULL, b integer NOT NULL, v text);
        CREATE TABLE b (k integer NOT NULL, c integer NOT NULL, v text);
        CREATE TABLE c (k integer NOT NULL, d integer NOT NULL, v text);
        CREATE TABLE d (k integer NOT NULL, v text)
    """
    sql = "SELECT a.v, d.v AS w FROM a, b, c, d WHERE a.b = b.k AND b.c = c.k AND c.d = d.k"
    every = lean_step(sql, tables, 4)
    assert "mz_path" in every
    for_one = lean_step(sql, tables, 1)
    assert "mz_path" not in for_one
    assert "UNION" not in for_one.split("mz_tag")[0]


@pytest.mark.parametrize(
    "sql",
    ["SELECT k, v FROM a ORDER BY v LIMIT 3", "SELECT DISTINCT ON (k) k, v FROM a ORDER BY k, v"],
)
def test_the_first_rows_before_and_after_are_found_by_one_sort(sql):
    text = lean_step(sql, "CREATE TABLE a (k integer NOT NULL, v integer NOT NULL)", 1)
    assert "LEAST" in text
    assert "UNNEST" not in text
    assert "JOIN" not in text
    assert text.count("GROUP BY") == 2  # of what changes, and of what is there before and after


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("time", ["00:00:00", "00:00:01", "23:59:59.999999"])
def test_days_compared_with_times_are_compared_as_days(connection, nulls, time):
    days = [dt.date(1998, 9, day) for day in (1, 2, 3, 3)] + [None] * nulls
    updates = pa.table({"c0": pa.array(days, pa.date32()), "mz_diff": pa.array([1] * len(days))})
    known = known_of(updates.schema, updates.num_rows, (), [updates])
    catalog = MemoryCatalog()
    catalog.run("CREATE TABLE f (d date)")
    connection.register("days", updates)
    for operator in ("<", "<=", ">", ">=", "=", "<>"):
        moment = f"timestamp '1998-09-02 {time}'"
        for condition in (f"d::timestamp {operator} {moment}", f"{moment} {operator} d"):
            sql = f"SELECT d FROM f WHERE {condition}"
            shot = one_shot(planned(catalog, sql), errors_in=lambda _: False)
            (given,) = shot.inputs
            statement, _ = shot.rendered(Engine.DUCKDB)
            made = lean(statement, {f"snap_{given.id}": known})
            assert made is not None
            text = to_sql(made, Engine.DUCKDB)
            rows = connection.sql(text.replace(f"snap_{given.id}", "days")).fetchall()
            wanted = f"SELECT d FROM (SELECT c0 AS d FROM days) AS f WHERE {condition}"
            assert Counter(row[0] for row in rows) == Counter(
                row[0] for row in connection.sql(wanted).fetchall()
            )
            # What decides which rows stay is asked of the file, and no status is made.
            assert "CASE" not in text
    connection.unregister("days")


@pytest.mark.parametrize(
    "value",
    [
        "a + CAST(t AS BIGINT)",
        "-(a * CAST(t AS BIGINT))",
        "CAST(t AS BIGINT)",
        "a + 1",
        "CAST(a AS SMALLINT)",
        "CASE WHEN NOT a IS NULL THEN a + CAST(t AS BIGINT) END",
    ],
)
@pytest.mark.parametrize(
    "around",
    [
        "CASE WHEN NOT a IS NULL THEN {} END",
        "CASE WHEN a IS NULL THEN NULL ELSE {} END",
        "CASE WHEN COALESCE(a > 0, FALSE) THEN {} END",
        "CASE WHEN NOT a IS NULL AND NOT t IS NULL THEN {} END",
        "CASE WHEN NOT a IS NULL OR a IS NULL AND t = 'x' THEN {} END",
        "CASE WHEN NOT a IS NULL THEN {} END IS NULL",
        "CASE WHEN a IS NULL THEN 'x' WHEN {} > 0 THEN 'y' END IS NULL",
        "COALESCE(CASE WHEN NOT a IS NULL THEN {} END, 0)",
    ],
)
def test_a_guard_stays_where_what_it_guards_may_fail(connection, value, around):
    rows = pa.table({"a": pa.array([1, 7, None], pa.int64()), "t": ["5", "6", "xyz"]})
    known = known_of(rows.schema, rows.num_rows, (), [rows])
    guarded = around.format(value)
    for name in ("a", "t"):
        guarded = re.sub(rf"\b{name}\b", f'r."{name}"', guarded)
    connection.register("r", rows)
    try:
        # What is asked stands beside a column, as the status of a row does.
        for text in (
            f'SELECT {guarded} AS "e" FROM r',
            f'SELECT s."a" FROM (SELECT r."a" AS "a", {guarded} AS "e" FROM r) AS s WHERE s."e" IS NULL',
        ):
            made = lean(sqlglot.parse_one(text, dialect="duckdb"), {"r": known})
            query = None if made is None else to_sql(made, Engine.DUCKDB)
            leaner = [] if query is None else connection.sql(query).fetchall()
            assert Counter(leaner) == Counter(connection.sql(text).fetchall())
    finally:
        connection.unregister("r")


@pytest.mark.parametrize("value", ["0.4", "0.5", "0.6", "2.6", "-0.5", "-2.6", "3.0"])
@pytest.mark.parametrize("to", ["INT", "DECIMAL(4, 0)", "DECIMAL(5, 1)"])
def test_a_number_that_is_known_is_rounded_as_duckdb_rounds_it(connection, value, to):
    text = f'SELECT CAST(CAST({value} AS DECIMAL(3, 1)) AS {to}) AS "e"'
    made = lean(sqlglot.parse_one(text, dialect="duckdb"), {})
    assert made is not None
    found = connection.sql(to_sql(made, Engine.DUCKDB)).fetchall()
    assert found == connection.sql(text).fetchall()


def test_a_condition_that_fails_is_asked_although_its_answer_may_be_known(connection):
    rows = pa.table({"a": pa.array([1, 7, None], pa.int64()), "t": ["5", "6", "xyz"]})
    known = known_of(rows.schema, rows.num_rows, (), [rows])
    asked = 'NOT r."a" IS NULL OR CAST(r."t" AS BIGINT) = 1'
    text = f'SELECT CASE WHEN {asked} THEN r."a" END AS "e" FROM r'
    made = lean(sqlglot.parse_one(text, dialect="duckdb"), {"r": known})
    assert made is not None
    connection.register("r", rows)
    try:
        for query in (text, to_sql(made, Engine.DUCKDB)):
            with pytest.raises(duckdb.ConversionException):
                connection.sql(query).fetchall()
    finally:
        connection.unregister("r")


def test_what_is_coarse_is_not_below():
    for low, high in ((0, 0), (1, 1), (-1, 5), (2, 999), (1000, 1001), (-(10**37), 10**38)):
        fact = coarse("BIGINT", low, high, nulls=False)
        assert fact.low <= low
        assert fact.high >= high
    assert [coarse_rows(n) for n in (0, 1, 10, 11, 20_000, 20_001)] == [
        0,
        10,
        10,
        1000,
        20_000,
        250_000,
    ]


def test_decimals_are_coarse_as_numbers_are():
    fact = coarse("DECIMAL(38,2)", Decimal("-0.01"), Decimal("1000.01"), nulls=True)
    assert (fact.low, fact.high, fact.nulls) == (-1, 10**6, True)
    fact = coarse("DECIMAL(38,2)", Decimal("0.01"), Decimal("1.00"), nulls=False)
    assert (fact.low, fact.high, fact.nulls) == (0, 1, False)
    # One digit more than decimals are computed with by default.
    beyond = Decimal("1000000000000000000000000000000.5")
    fact = coarse("DECIMAL(38,2)", beyond.copy_negate(), beyond, nulls=False)
    assert (fact.low, fact.high) == (-(10**38), 10**38)


def test_columns_of_written_values_have_the_types_that_duckdb_gives_them(connection):
    values = [0, 7, -7, 2**31 - 2, 2**31 - 1, 2**31, -(2**31), -(2**31) + 1, 2**31 + 1, 2**62]
    for value in values:
        written = f"-{-value}" if value < 0 else str(value)
        ((found,),) = connection.sql(f"SELECT typeof({written})").fetchall()
        assert column_of(number(value)).kind in (None, {"INTEGER": "INT"}.get(found, found))
    assert column_of(number(2**31 - 2)).kind == "INT"
    assert column_of(number(2**31 + 1)).kind == "BIGINT"


def test_a_text_is_made_for_more_than_was_seen():
    seen = Relation({"c0": coarse("BIGINT", 5, 900, nulls=False)}, 10)
    first = widened(seen)
    assert first.covers(Relation({"c0": coarse("BIGINT", 1, 10**6, nulls=False)}, 1000))
    # Neither a sign nor a count of one is given up before that is seen.
    assert not first.covers(Relation({"c0": coarse("BIGINT", -1, 1, nulls=False)}, 1))
    once = Relation({"c0": coarse("BIGINT", 1, 1, nulls=False)}, 10)
    assert widened(once).columns == once.columns
    grown = widened(Relation({"c0": coarse("BIGINT", -3, 900, nulls=False)}, 10), first)
    assert grown.covers(Relation({"c0": coarse("BIGINT", -(10**8), 10**8, nulls=False)}, 1000))
    assert grown.rows == first.rows
    small = Relation({"c0": coarse("SMALLINT", 1, 900, nulls=False)}, 0)
    assert widened(small) == small


def _measured(rows: list[tuple[int, ...]]) -> Relation:
    columns = {
        f"c{i}": coarse("BIGINT", min(v), max(v), nulls=False)
        for i, v in enumerate(zip(*rows, strict=True))
    }
    kept = list(zip(*rows, strict=True))
    same = {f"c{i}": f"c{kept.index(v)}" for i, v in enumerate(kept) if kept.index(v) < i}
    return Relation(columns, len(rows), same)


_VALUES = st.sampled_from([-1, 0, 1, 10**8, 10**13, 10**16])
_ROWS = st.lists(st.tuples(*[_VALUES] * 4), min_size=1, max_size=2)


@given(st.lists(_ROWS.map(_measured), min_size=1, max_size=4))
def test_a_text_made_anew_for_what_it_did_not_serve_serves_it(relations):
    """Else each step would make one anew. Columns may equal each other in several ways in one, in fewer in the next."""
    seen = relations[0]
    made = widened(seen)
    for found in relations:
        seen = seen.with_(found)
        if not made.covers(found):
            made = widened(seen, made)
        assert made.covers(found)


def test_a_text_is_not_made_for_larger_values_and_more_rows_at_once() -> None:
    """So that a mean of large sums is one division, and not one of numbers that exceed all types."""

    def known(size: int, rows: int) -> Relation:
        fact = coarse("DECIMAL(38, 2)", -size, size, nulls=False)
        return Relation({"c0": fact}, coarse_rows(rows))

    made = widened(known(10**11, 1_000))
    assert made.covers(known(10**14, 4))
    assert made.covers(known(10**11, 20_000))
    assert not made.covers(known(10**14, 20_000))
    total = made.total("c0")
    assert total is not None
    assert total * 100 * 2 * 10**18 < 2**127
    again = widened(known(10**14, 20_000), made)
    assert again.covers(known(10**14, 20_000))
    assert again.covers(known(10**11, 20_000))


def test_the_columns_that_a_statement_reads_are_found_and_it_stays_as_it_is() -> None:
    statement = sqlglot.parse_one(
        "WITH a AS (SELECT x AS p, y AS q FROM r UNION ALL SELECT z AS p, w AS q FROM s) "
        "SELECT p FROM a JOIN (SELECT k, v, l FROM t WHERE m > 0) AS u ON u.k = a.p GROUP BY p"
    )
    before = statement.sql()
    read = columns_read(statement, ["r", "s", "t"])
    assert read == {"r": {"x"}, "s": {"z"}, "t": {"k", "m"}}
    assert statement.sql() == before
