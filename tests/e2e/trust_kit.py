"""Views that together have every node that dataflows have, random transactions under them, and the judge of what they hold.

Promise: a seed always means the same transactions. The judge is DuckDB over tables of its own, changed by the same statements. Answers are
compared as bags, exactly but for what one of the two computes in binary.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from tpch_scripts import NAMES, TABLES, query_of, script

import mzsql

BATCHES = 20
#: Which transaction the tables are after, in a table that each of them changes.
PROGRESS = "CREATE TABLE progress (batch integer); INSERT INTO progress VALUES (0)"

#: Beside TPC-H's: what each is made of, and the query, for both or for mzsql and for DuckDB.
MORE: dict[str, str | tuple[str, str]] = {
    "left_join": "SELECT c_custkey, count(o_orderkey) AS n, max(o_totalprice) AS most FROM customer LEFT JOIN orders "
    "ON o_custkey = c_custkey AND o_orderpriority <> '1-URGENT' GROUP BY c_custkey",
    "right_join": "SELECT s_suppkey, s_name, ps_partkey FROM (SELECT * FROM partsupp WHERE ps_availqty > 5000) AS p "
    "RIGHT JOIN supplier ON ps_suppkey = s_suppkey",
    "full_join": "SELECT a.k, a.n, b.k AS l, b.m FROM (SELECT c_nationkey AS k, count(*) AS n FROM customer WHERE c_acctbal > "
    "5000 GROUP BY 1) AS a "
    "FULL JOIN (SELECT s_nationkey AS k, sum(s_acctbal) AS m FROM supplier GROUP BY 1) AS b ON a.k = b.k",
    "delta_join": "SELECT o_orderkey, l_linenumber, p_brand, s_name FROM orders, lineitem, part, supplier WHERE o_orderkey = l_orderkey "
    "AND p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_quantity > 45",
    "self_join": "SELECT a.o_orderkey AS x, b.o_orderkey AS y FROM orders AS a JOIN orders AS b ON a.o_custkey = b.o_custkey "
    "AND a.o_orderdate < b.o_orderdate AND a.o_orderpriority = b.o_orderpriority",
    "cross_scalar": "SELECT o_orderkey, o_totalprice FROM orders WHERE o_totalprice > (SELECT 1.8 * avg(o_totalprice) FROM orders)",
    "anti_join": "SELECT c_custkey, c_name FROM customer WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)",
    "null_safe": "SELECT a.k, b.n FROM (SELECT nullif(c_nationkey, 3) AS k, c_custkey FROM customer) AS a JOIN "
    "(SELECT nullif(s_nationkey, 3) AS k, count(*) AS n FROM supplier GROUP BY 1) AS b ON a.k IS NOT DISTINCT FROM b.k",
    "except_all": "SELECT l_suppkey FROM lineitem WHERE l_returnflag = 'R' EXCEPT ALL SELECT l_suppkey FROM lineitem WHERE "
    "l_returnflag = 'A'",
    "intersection": "SELECT c_nationkey FROM customer WHERE c_acctbal < 0 INTERSECT SELECT s_nationkey FROM supplier WHERE s_acctbal > 0",
    "united": "SELECT l_suppkey, l_partkey FROM lineitem WHERE l_shipmode = 'AIR' UNION SELECT ps_suppkey, ps_partkey FROM "
    "partsupp WHERE ps_availqty < 500",
    "extremes": "SELECT l_suppkey, min(l_shipdate) AS first, max(l_shipdate) AS last, min(l_extendedprice) AS least, "
    "max(l_comment) AS most "
    "FROM lineitem GROUP BY l_suppkey",
    "extremes_of_all": "SELECT min(l_shipdate) AS first, max(l_extendedprice) AS most, min(l_orderkey) AS o, max(l_quantity) AS q "
    "FROM lineitem",
    "kinds": "SELECT o_orderpriority, count(DISTINCT o_custkey) AS d, sum(DISTINCT o_shippriority) AS s, avg(o_totalprice) AS a, "
    "count(*) FILTER (WHERE o_orderstatus = 'F') AS f, bool_and(o_totalprice > 1000) AS every FROM orders GROUP BY 1",
    "spread": "SELECT l_linenumber, stddev(l_quantity) AS d, var_pop(l_discount) AS v FROM lineitem GROUP BY l_linenumber",
    "collected": "SELECT o_custkey, string_agg(o_orderpriority, ',' ORDER BY o_orderkey) AS a, count(*) AS n FROM orders "
    "WHERE o_custkey % 3 = 0 GROUP BY 1",
    "grouping_sets": "SELECT l_returnflag, l_shipmode, count(*) AS n, sum(l_quantity) AS q, max(l_tax) AS t FROM lineitem "
    "GROUP BY GROUPING SETS ((l_returnflag, l_shipmode), (l_returnflag), ())",
    "large_orders": "SELECT l_orderkey, sum(l_quantity) AS q FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 200",
    "top_of_all": "SELECT o_orderkey, o_totalprice FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 7 OFFSET 2",
    "first_of_groups": (
        "SELECT DISTINCT ON (o_custkey) o_custkey, o_orderdate, o_orderkey FROM orders ORDER BY o_custkey, o_orderdate DESC, o_orderkey",
        "SELECT o_custkey, o_orderdate, o_orderkey FROM orders "
        "QUALIFY row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderdate DESC, o_orderkey) = 1",
    ),
    "top_of_groups": (
        "SELECT s_suppkey, q.p, q.c FROM supplier, LATERAL (SELECT ps_partkey AS p, ps_supplycost AS c FROM partsupp "
        "WHERE ps_suppkey = s_suppkey ORDER BY ps_supplycost, ps_partkey LIMIT 3) AS q",
        "SELECT s_suppkey, ps_partkey, ps_supplycost FROM supplier JOIN partsupp ON ps_suppkey = s_suppkey "
        "QUALIFY row_number() OVER (PARTITION BY s_suppkey ORDER BY ps_supplycost, ps_partkey) <= 3",
    ),
    "windows": "SELECT o_custkey, o_orderkey, row_number() OVER w AS r, lag(o_orderdate) OVER w AS before, "
    "sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS running FROM orders "
    "WHERE o_custkey % 5 < 2 WINDOW w AS (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey)",
    "ranks": "SELECT s_suppkey, rank() OVER (ORDER BY s_nationkey) AS r, dense_rank() OVER (PARTITION BY s_nationkey ORDER BY "
    "s_acctbal DESC) AS d FROM supplier",
    "recursion": (
        "WITH MUTUALLY RECURSIVE edge (a bigint, b bigint) AS (SELECT s_nationkey, c_nationkey FROM supplier, customer WHERE "
        "s_suppkey = c_custkey), "
        "reached (a bigint, b bigint) AS (SELECT a, b FROM edge UNION SELECT r.a, e.b FROM reached AS r JOIN edge AS e ON r.b = "
        "e.a) SELECT a, b FROM reached",
        "WITH RECURSIVE edge (a, b) AS (SELECT s_nationkey, c_nationkey FROM supplier, customer WHERE s_suppkey = c_custkey), "
        "reached (a, b) AS (SELECT a, b FROM edge UNION SELECT r.a, e.b FROM reached AS r JOIN edge AS e ON r.b = e.a) SELECT a, "
        "b FROM reached",
    ),
    "flat_map": (
        "SELECT o_orderkey, g.i FROM orders, LATERAL generate_series(1, o_orderkey % 4) AS g (i) WHERE o_orderstatus = 'P'",
        "SELECT o_orderkey, unnest(generate_series(1, o_orderkey % 4)) AS i FROM orders WHERE o_orderstatus = 'P'",
    ),
}  # fmt: skip
#: What a view of views reads …
BELOW = ("kinds", "extremes_of_all", "left_join")
#: … and that view, which sees what they do.
ABOVE = (
    "above",
    "SELECT k.o_orderpriority, k.d, e.most, l.n FROM kinds AS k, extremes_of_all AS e, "
    "(SELECT count(*) AS n FROM left_join WHERE n > 1) AS l",
)

_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")


def ours() -> dict[str, str]:
    """The views: names, and the queries that mzsql is given."""
    made = {f"q{number}": query_of(name) for number, name in enumerate(NAMES, 1)}
    made |= {name: text if isinstance(text, str) else text[0] for name, text in MORE.items()}
    return {**made, ABOVE[0]: ABOVE[1]}


def judged() -> dict[str, str]:
    """The same queries as DuckDB is asked them."""
    mine = ours()
    texts = {name: text for name, text in MORE.items() if not isinstance(text, str)}
    parts = ", ".join(f"{name} AS ({mine[name]})" for name in BELOW)
    return {**mine, **{name: text[1] for name, text in texts.items()}, "above": f"WITH {parts} {ABOVE[1]}"}  # fmt: skip


class Judge:
    """DuckDB with the same tables."""

    def __init__(self, files: Path) -> None:
        self.duck = duckdb.connect()
        for table in TABLES:
            self.duck.execute(f"CREATE TABLE {table} AS FROM read_parquet('{files}/{table}.parquet')")  # fmt: skip
        self.duck.execute(PROGRESS)
        self._queries = judged()

    def change(self, statements: Sequence[str]) -> None:
        """A transaction."""
        for statement in statements:
            self.duck.execute(statement)

    def batch(self) -> int:
        """Which transaction it is after."""
        ((batch,),) = self.duck.execute("SELECT batch FROM progress").fetchall()
        return int(batch)

    def check(self, con: mzsql.Connection, when: str, views: Collection[str] | None = None) -> int:
        """See that every view, or each of some, holds its answer; how many rows there are in all."""
        total = 0
        for name, query in self._queries.items():
            if views is not None and name not in views:
                continue
            mine = con.execute(f"SELECT * FROM {name}").fetchall()
            theirs = self.duck.execute(query).fetchall()
            assert _same(mine, theirs), _told(name, when, mine, theirs)
            total += len(mine)
        return total


Rows = Sequence[Sequence[Any]]


def _near(*sides: Rows) -> frozenset[int]:
    """The columns that one of the two computes in binary."""
    return frozenset(
        place
        for rows in sides
        for row in rows
        for place, value in enumerate(row)
        if isinstance(value, float)
    )


def _ordered(rows: Rows, near: frozenset[int]) -> list[tuple[list[str], list[float | None]]]:
    """Rows as what is exact of them, and what is not, in an order in which the last digits count for nothing unless all else is equal."""
    made = []
    for row in rows:
        exact = [_exact(value) for place, value in enumerate(row) if place not in near]
        rest = [None if row[place] is None else float(row[place]) for place in sorted(near)]
        made.append((exact, rest))
    return sorted(
        made, key=lambda one: (one[0], [(v is None, 0.0 if v is None else v) for v in one[1]])
    )


def _exact(value: Any) -> str:
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return f"{Decimal(value).normalize():f}"
    return str(value)


def _same(mine: Rows, theirs: Rows) -> bool:
    if len(mine) != len(theirs):
        return False
    near = _near(mine, theirs)
    pairs = zip(_ordered(mine, near), _ordered(theirs, near), strict=True)
    return all(
        left == right and all(map(_close, some, others)) for (left, some), (right, others) in pairs
    )


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def _told(name: str, when: str, mine: Sequence[Any], theirs: Sequence[Any]) -> str:
    more, less = (
        [row for row in map(str, one) if row not in set(map(str, other))][:5]
        for one, other in ((mine, theirs), (theirs, mine))
    )
    return f"{name}, {when}: {len(mine)} rows for {len(theirs)}; its own {more}; missing {less}"


def some(rng: random.Random, count: int) -> frozenset[str]:
    """So many views at random, with those that they read."""
    found = {*rng.sample(sorted(ours()), count)}
    return frozenset(found | set(BELOW) if ABOVE[0] in found else found)


def prepare(con: mzsql.Connection, files: Path, views: Collection[str] | None = None) -> None:
    """The tables, filled, and the views, or some of them."""
    con.execute(script("schema"))
    for table in TABLES:
        con.execute(f"COPY {table} FROM '{files}/{table}.parquet' (FORMAT PARQUET)")
    con.execute(PROGRESS)
    for name, query in ours().items():
        if views is None or name in views:
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    if views is None or "extremes" in views:
        con.execute("CREATE INDEX extremes_by ON extremes (l_suppkey)")


def change(con: mzsql.Connection, statements: Sequence[str]) -> None:
    """A transaction."""
    con.execute("BEGIN")
    for statement in statements:
        con.execute(statement)
    con.execute("COMMIT")


class Batches:
    """Transactions from a seed, each of several statements that insert, delete and update.

    Args:
        seed: decides them.
        files: the tables' rows as they were at first.
    """

    def __init__(self, seed: int, files: Path) -> None:
        self._seed = seed
        counts = {
            table: duckdb.execute(f"SELECT count(*) FROM '{files}/{table}.parquet'").fetchall()[0][0]
            for table in TABLES
        }  # fmt: skip
        self._customers, self._parts, self._suppliers = (
            counts[table] for table in ("customer", "part", "supplier")
        )

    def __getitem__(self, number: int) -> list[str]:
        """Of the transaction of a number, from 1 on."""
        rng = random.Random(f"{self._seed} {number}")
        kinds = [self._orders, self._leave, self._lines, self._priced, self._people, self._parts_of]
        chosen = [self._orders, *rng.sample(kinds, rng.randint(1, 3))]
        made = [statement for one in chosen for statement in one(rng, number)]
        return [*made, f"UPDATE progress SET batch = {number}"]

    def _date(self, rng: random.Random) -> str:
        return f"DATE '{rng.randint(1992, 1998)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}'"

    def _cents(self, rng: random.Random, low: int, high: int) -> str:
        return f"{rng.randint(low, high) / 100:.2f}"

    def _orders(self, rng: random.Random, number: int) -> Iterator[str]:
        """New orders with their lines, one of which is large now and then."""
        for place in range(rng.randint(1, 3)):
            key = 10_000_000 + 10 * number + place + 1000 * rng.randint(0, 999)
            price = self._cents(rng, 10**5, 5 * 10**7)
            yield (
                f"INSERT INTO orders VALUES ({key}, {rng.randint(1, self._customers)}, '{rng.choice('FOP')}', {price}, "
                f"{self._date(rng)}, '{rng.choice(_PRIORITIES)}', 'Clerk#{number}', 0, 'carefully special requests')"
            )
            large = rng.random() < 0.3
            count = 7 if large else rng.randint(1, 7)
            rows = [self._line(rng, key, n, large=large) for n in range(1, count + 1)]
            yield f"INSERT INTO lineitem VALUES {', '.join(rows)}"

    def _line(self, rng: random.Random, key: int, n: int, *, large: bool) -> str:
        keys = f"{key}, {rng.randint(1, self._parts)}, {rng.randint(1, self._suppliers)}, {n}"
        quantity = 50 if large else rng.randint(1, 50)
        money = f"{quantity}.00, {self._cents(rng, 10**5, 10**7)}, 0.0{rng.randint(0, 9)}, 0.0{rng.randint(0, 8)}"
        flags = f"'{rng.choice('RAN')}', '{rng.choice('OF')}'"
        dates = ", ".join(self._date(rng) for _ in range(3))
        rest = f"'DELIVER IN PERSON', '{rng.choice(_MODES)}', 'new {rng.randint(0, 99)}'"
        return f"({keys}, {money}, {flags}, {dates}, {rest})"

    def _leave(self, rng: random.Random, _: int) -> Iterator[str]:
        """Orders that leave, with their lines or without."""
        which = f"% {rng.choice([13, 29, 57])} = {rng.randint(0, 12)}"
        if rng.random() < 0.7:
            yield f"DELETE FROM lineitem WHERE l_orderkey {which}"
        yield f"DELETE FROM orders WHERE o_orderkey {which}"

    def _lines(self, rng: random.Random, _: int) -> Iterator[str]:
        low = rng.randint(1, 11_000)
        yield (
            f"UPDATE lineitem SET l_quantity = l_quantity + {rng.randint(-3, 9)}, l_returnflag = '{rng.choice('RAN')}' "
            f"WHERE l_orderkey BETWEEN {low} AND {low + rng.randint(0, 600)}"
        )
        yield (
            f"DELETE FROM lineitem WHERE l_linenumber = {rng.randint(1, 7)} AND l_suppkey % 7 = {rng.randint(0, 6)} "
            f"AND l_partkey % 5 = {rng.randint(0, 4)}"
        )

    def _priced(self, rng: random.Random, _: int) -> Iterator[str]:
        yield (
            f"UPDATE orders SET o_totalprice = o_totalprice + {rng.randint(-500, 9000)}.25, "
            f"o_orderpriority = '{rng.choice(_PRIORITIES)}' WHERE o_custkey % {rng.choice([17, 31])} = {rng.randint(0, 16)}"
        )
        yield (
            f"UPDATE partsupp SET ps_supplycost = ps_supplycost + {rng.randint(-5, 9)}.10, ps_availqty = {rng.randint(1, 9999)} "
            f"WHERE ps_partkey % 41 = {rng.randint(0, 40)}"
        )

    def _people(self, rng: random.Random, number: int) -> Iterator[str]:
        yield (
            f"UPDATE customer SET c_mktsegment = '{rng.choice(_SEGMENTS)}', c_nationkey = {rng.randint(0, 24)} "
            f"WHERE c_custkey % {rng.choice([19, 37])} = {rng.randint(0, 18)}"
        )
        yield f"DELETE FROM customer WHERE c_custkey = {rng.randint(1, self._customers)}"
        yield (
            f"INSERT INTO customer VALUES ({10_000 + number}, 'Customer#{number}', 'x', {rng.randint(0, 24)}, "
            f"'13-{number}', {rng.randint(-900, 9000)}.50, '{rng.choice(_SEGMENTS)}', 'new')"
        )
        yield (
            f"UPDATE supplier SET s_acctbal = s_acctbal - {rng.randint(1, 999)}.99, s_nationkey = {rng.randint(0, 24)} "
            f"WHERE s_suppkey % 9 = {rng.randint(0, 8)}"
        )

    def _parts_of(self, rng: random.Random, _: int) -> Iterator[str]:
        yield (
            f"UPDATE part SET p_brand = 'Brand#{rng.randint(1, 5)}{rng.randint(1, 5)}', p_size = {rng.randint(1, 50)} "
            f"WHERE p_partkey % 23 = {rng.randint(0, 22)}"
        )
        yield (
            f"DELETE FROM partsupp WHERE ps_suppkey = {rng.randint(1, self._suppliers)} "
            f"AND ps_partkey % 3 = {rng.randint(0, 2)}"
        )
        yield (
            f"INSERT INTO partsupp VALUES ({rng.randint(1, self._parts)}, {rng.randint(1, self._suppliers)}, "
            f"{rng.randint(1, 9999)}, {rng.randint(1, 999)}.05, 'new')"
        )
