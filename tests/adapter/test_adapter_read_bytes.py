"""The bytes that a refresh reads follow the change, not the data: the same small steps over data of two sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from step_kit import Stepper

import mzsql
from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.arrangement_registry import CatalogArrangements
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.catalog.objects import MaterializedView

SMALL, TIMES = 5_000, 10

TABLES = """
    CREATE TABLE customers (ck bigint NOT NULL, name text NOT NULL, segment text NOT NULL);
    CREATE TABLE orders (ok bigint NOT NULL, ck bigint NOT NULL, day date NOT NULL, price numeric(15, 2) NOT NULL);
    CREATE TABLE lines (ok bigint NOT NULL, n int NOT NULL, quantity numeric(15, 2) NOT NULL,
        price numeric(15, 2) NOT NULL, discount numeric(15, 2) NOT NULL, shipped date NOT NULL);
"""

#: TPC-H 3 without its limit, and TPC-H 18: what a global top-k reads of its own state grows with that state.
QUERIES = {
    "shipping": """
        SELECT l.ok, sum(l.price * (1 - l.discount)) AS revenue, o.day
        FROM customers AS c, orders AS o, lines AS l
        WHERE c.segment = 'BUILDING' AND c.ck = o.ck AND l.ok = o.ok AND o.day < DATE '1995-03-15' AND l.shipped > DATE '1995-01-15'
        GROUP BY l.ok, o.day""",
    "large": """
        SELECT c.name, c.ck, o.ok, o.day, o.price, sum(l.quantity) AS quantity
        FROM customers AS c, orders AS o, lines AS l
        WHERE o.ok IN (SELECT ok FROM lines GROUP BY ok HAVING sum(quantity) > 290) AND c.ck = o.ck AND o.ok = l.ok
        GROUP BY c.name, c.ck, o.ok, o.day, o.price
        ORDER BY o.price DESC, o.day LIMIT 100""",
}

#: As in the demo: an order of seven lines comes, two orders go, seven lines grow.
CHANGES = {
    "insert": """
        BEGIN;
        INSERT INTO orders VALUES (-7, 8, DATE '1995-03-10', 443000.00);
        INSERT INTO lines SELECT -7, g, 50, 63000.00, 0.01, DATE '1995-03-20' FROM generate_series(1, 7) AS g;
        COMMIT""",
    "delete": """
        DELETE FROM lines WHERE ok IN (700, 1400);
        DELETE FROM orders WHERE ok IN (700, 1400)""",
    "update": "UPDATE lines SET quantity = quantity + 1, price = price * 1.02 WHERE ok = 1001",
}


def generate(folder, orders):
    """Tables for so many orders as Parquet files; the first orders are the same at every size."""
    copies = {
        "customers": f"""
            SELECT k AS ck, 'Customer#' || k AS name, ['BUILDING', 'MACHINERY', 'FURNITURE'][(1 + hash(k) % 3)::int] AS segment
            FROM range({orders // 10}::bigint) t(k)""",
        "orders": f"""
            SELECT k AS ok, (hash(k) % {SMALL // 10})::bigint AS ck, (DATE '1993-01-01' + (hash(k, 1) % 1000)::int)::date AS day,
                (hash(k, 2) % 40000000 / 100)::decimal(15, 2) AS price
            FROM range({orders}::bigint) t(k)""",
        "lines": f"""
            SELECT k AS ok, n::int AS n, (1 + hash(k, n) % 50)::decimal(15, 2) AS quantity,
                (hash(k, n, 1) % 10000000 / 100)::decimal(15, 2) AS price, (hash(k, n, 2) % 10 / 100)::decimal(15, 2) AS discount,
                (DATE '1993-01-01' + (hash(k, 1) % 1000)::int + (hash(k, n, 3) % 100)::int)::date AS shipped
            FROM range({orders}::bigint) t(k), range(7) u(n) WHERE n <= hash(k, 4) % 7""",
    }
    folder.mkdir()
    with duckdb.connect() as connection:
        for name, query in copies.items():
            connection.execute(f"COPY ({query}) TO '{folder}/{name}.parquet' (FORMAT parquet)")


@dataclass
class Cost:
    rows: dict[str, int]
    bytes: int
    read: dict[str, int]


def costs(tmp_path, orders, name) -> Cost:
    """What a view's arrangements hold, and how many bytes each change's refresh reads; in the end the view must be right."""
    data = tmp_path / f"data-{orders}"
    generate(data, orders)
    session = Session()
    env = Environment.open(locate(str(tmp_path / f"env-{orders}")))
    coordinator = Coordinator(env, spark=None)
    try:
        coordinator.execute(session, TABLES)
        for table in ("customers", "orders", "lines"):
            coordinator.execute(
                session, f"COPY {table} FROM '{data}/{table}.parquet' (FORMAT PARQUET)"
            )
        coordinator.execute(session, f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}")
        (item,) = env.sync().of(MaterializedView)
        stepper = Stepper(
            env.persist,
            env.collections,
            CatalogArrangements(env.catalog),
            coordinator.planner.deploy(item).plan,
            output_shard=item.shard,
            as_of=item.as_of,
        )
        rows, size = stepper.stored(item.as_of)
        # What is looked into is loaded, and stays.
        coordinator.execute(session, CHANGES["insert"].replace("-7", "-8"))
        stepper.step(env.fresh_timestamp() + 1)
        read = {}
        for change, text in CHANGES.items():
            coordinator.execute(session, text)
            stats = stepper.step(env.fresh_timestamp() + 1)
            assert 0 < stats.rows_in <= 20
            read[change] = stats.bytes_read
        assert answer(coordinator, session, f"SELECT * FROM {name}") == answer(
            coordinator, session, QUERIES[name]
        )
        stepper.close()
        return Cost(rows, size, read)
    finally:
        coordinator.close()
        env.close()


def answer(coordinator, session, query):
    (result,) = coordinator.execute(session, query)
    assert result.count > 0
    return sorted(map(str, result.rows.to_pylist()))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) if n in ("large", "shipping") else n for n in QUERIES],
)
def test_a_small_refresh_reads_as_much_of_ten_times_the_data(tmp_path, name):
    small = costs(tmp_path, SMALL, name)
    large = costs(tmp_path, SMALL * TIMES, name)
    for arrangement, rows in small.rows.items():
        if rows > 1000:
            assert large.rows[arrangement] > TIMES / 2 * rows
    # What a small change reads of small data is mostly inline, so the changes are taken together.
    before, after = sum(small.read.values()), sum(large.read.values())
    assert after < 2 * before, (small, large)
    assert all(read < large.bytes / 6 for read in large.read.values()), large


#: TPC-H 3 as it is: with its limit.
LIMITED = f"{QUERIES['shipping']} ORDER BY revenue DESC, o.day, l.ok LIMIT 10"


def refreshed(tmp_path: Path, orders: int) -> tuple[int, int, int]:
    """The bytes that a view's refreshes read with the default engine: the first of a process that has just begun, and all the next ones;
    and those that are stored.
    """
    data = tmp_path / f"data-{orders}"
    generate(data, orders)
    place = tmp_path / f"env-{orders}"
    with mzsql.connect(place) as con:
        con.execute(TABLES)
        for table in ("customers", "orders", "lines"):
            con.execute(f"COPY {table} FROM '{data}/{table}.parquet' (FORMAT PARQUET)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {LIMITED}")
        assert len(con.execute("SELECT * FROM v").fetchall()) == 10
    with mzsql.connect(place) as con:
        # What is looked into is loaded, and stays.
        con.execute(CHANGES["insert"].replace("-7", "-8"))
        con.execute("UPDATE customers SET name = name || '!' WHERE ck = 8")
        assert _is_what_it_should_be(con)
        first = sum(size for _, size in con.execute(_STEPS).fetchall())
        known = len(con.execute(_STEPS).fetchall())
        for change in CHANGES.values():
            con.execute(change)
            assert _is_what_it_should_be(con)
        steps = con.execute(_STEPS).fetchall()
    # The transactions of one change may be in one step.
    assert len(steps) >= known + len(CHANGES)
    assert {engine for engine, _ in steps} == {"duckdb"}
    stored = sum(one.stat().st_size for one in place.rglob("*.parquet"))
    return first, sum(size for _, size in steps) - first, stored


_STEPS = """
    SELECT r.engine, r.bytes_read FROM mz_internal.mz_refreshes AS r JOIN mz_materialized_views AS m ON m.id = r.object_id
    WHERE m.name = 'v' AND r.kind = 'step'"""


def _is_what_it_should_be(con: mzsql.Connection) -> bool:
    view, query = (con.execute(text).fetchall() for text in ("SELECT * FROM v", LIMITED))
    return sorted(map(repr, view)) == sorted(map(repr, query))


def test_a_small_refresh_of_a_limit_reads_as_much_of_ten_times_the_data(tmp_path: Path) -> None:
    begun, small, _ = refreshed(tmp_path, 2_000)
    loaded, large, stored = refreshed(tmp_path, 20_000)
    # What a process that has just begun is to look into it reads when it opens it, or in the first step, whichever comes first.
    assert min(begun, loaded) > 0
    assert 0 < large < 2 * small, (small, large)
    assert large < stored / 6, (large, stored)
