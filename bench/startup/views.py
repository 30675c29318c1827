"""Environments of very many views, made by chains, joins and queries like TPC-H's over a few tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.planning.walk import global_gets
from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.commands.items import allocate, create_item
from mzsql.catalog.objects import MaterializedView
from mzsql.catalog.state import CatalogState, applied
from mzsql.frontend import lower_query, parse_statements, plan_statement
from mzsql.frontend.plan import ddl_plans
from mzsql.repr.ids import global_id
from mzsql.repr.types import RelationDesc

#: So many objects are put into the catalog at once.
_AT_ONCE = 500
#: A chain of views begins at each so many, unless one of the other kind stands there: chains are of five and of eleven.
_CHAIN = 8
_HYDRATING_SECONDS = 3000.0

TABLES = (
    "CREATE TABLE customer "
    "(c_custkey bigint NOT NULL, c_name text, c_nationkey int, c_acctbal numeric(15, 2), c_mktsegment text)",
    "CREATE TABLE orders "
    "(o_orderkey bigint NOT NULL, o_custkey bigint NOT NULL, o_status text, o_totalprice numeric(15, 2), o_orderdate date)",
    "CREATE TABLE lineitem (l_orderkey bigint NOT NULL, l_partkey bigint, l_suppkey bigint, l_quantity numeric(15, 2), "
    "l_extendedprice numeric(15, 2), l_discount numeric(15, 2), l_shipdate date)",
    *(f"CREATE TABLE t{n} (k bigint, v bigint, w text)" for n in range(20)),
)
ROWS = (
    "INSERT INTO customer SELECT g, 'c' || g, g % 25, g, 'BUILDING' FROM generate_series(1, 50) g",
    "INSERT INTO orders SELECT g, g % 50 + 1, 'O', g, '1995-01-01'::date FROM generate_series(1, 200) g",
    "INSERT INTO lineitem SELECT g % 200 + 1, g % 40, g % 10, 1, g, 0.05, '1995-02-01'::date FROM generate_series(1, 400) g",
    *(
        f"INSERT INTO t{n} SELECT g % 17, g, 'w' || g FROM generate_series(1, 50) g"
        for n in range(20)
    ),
)


def query(number: int) -> str:
    """The query of a view that keeps arrangements; those of different numbers have different plans."""
    one, other = number % 20, (number * 7 + 3) % 20
    kinds = (
        f"SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM t{one} WHERE v > {number} GROUP BY k",
        f"SELECT a.k, a.v + {number} AS v, b.w FROM t{one} a JOIN t{other} b ON a.k = b.k WHERE a.v % 5 = 1 AND b.v % 7 = 2",
        "SELECT o.o_orderkey, sum(l.l_extendedprice * (1 - l.l_discount)) AS revenue, o.o_orderdate "
        "FROM customer c JOIN orders o ON c.c_custkey = o.o_custkey JOIN lineitem l ON l.l_orderkey = o.o_orderkey "
        f"WHERE c.c_mktsegment = 'BUILDING' AND o.o_custkey > {number % 50} AND l.l_quantity < {number} "
        "GROUP BY o.o_orderkey, o.o_orderdate",
        f"SELECT k, v FROM (SELECT k, v, w FROM t{one} WHERE v <> {number} ORDER BY v DESC LIMIT 5) AS best",
    )
    return kinds[number % len(kinds)]


def chained(number: int, last: str) -> str:
    """The query of a view over another one, without arrangements."""
    return f"SELECT k, v + {number} AS v, w FROM {last} WHERE v <> {number}"


def definitions(views: int) -> Iterator[tuple[str, bool]]:
    """Every view's statement, and whether it is to be hydrated: a tenth, the first."""
    hydrated = max(1, views // 10)
    for number in range(hydrated):
        yield f"CREATE MATERIALIZED VIEW h{number} AS {query(number)}", True
    for number in range(hydrated, views):
        if number % 3 == 0:
            yield f"CREATE MATERIALIZED VIEW v{number} AS {query(number)}", False
        else:
            name, place = f"v{number}", number % _CHAIN
            before = number - 1 if (number - 1) % 3 else number - 2
            begins = not place or before < hydrated
            last = f"t{number % 20}" if begins else f"v{before}"
            yield f"CREATE MATERIALIZED VIEW {name} AS {chained(number, last)}", False


def make(path: Path, views: int) -> dict[str, float]:
    """Make the environment; those that are to be hydrated are when this returns."""
    began = time.perf_counter()
    env = Environment.open(locate(str(path)))
    coordinator = Coordinator(env, spark=_no_spark)
    session = coordinator.session()
    for text in ("ALTER SYSTEM SET step_engine = 'duckdb'", *TABLES, *ROWS):
        coordinator.execute(session, text)
    coordinator.close()
    wanted = list(definitions(views))
    # Nobody maintains anything while it is made; what is to be hydrated is by whoever leads before the others are made.
    _create_all(env, [text for text, hydrated in wanted if hydrated])
    coordinator = Coordinator(env, spark=_no_spark)
    found = _hydrated(coordinator, sum(hydrated for _, hydrated in wanted))
    coordinator.close()
    _create_all(env, [text for text, hydrated in wanted if not hydrated])
    env.close()
    return {"seconds": time.perf_counter() - began, "hydrated": found}


def _no_spark() -> object:
    raise AssertionError("everything here is run by DuckDB")


def _hydrated(coordinator: Coordinator, wanted: int) -> int:
    end = time.monotonic() + _HYDRATING_SECONDS
    while time.monotonic() < end:
        found = coordinator.dataflows.controller.status()
        if len(found) == wanted and all(one.hydrated for one in found):
            return len(found)
        time.sleep(0.2)
    raise TimeoutError("the views do not hydrate")


def _create_all(env: Environment, texts: list[str]) -> None:
    coordinator = Coordinator(env, spark=None)
    for at in range(0, len(texts), _AT_ONCE):
        _create(coordinator, texts[at : at + _AT_ONCE])
    coordinator.close()


def _create(coordinator: Coordinator, texts: list[str]) -> None:
    """As the statements would one after another, in one change of the catalog."""
    env, planner = coordinator.env, coordinator.planner
    as_of = env.fresh_timestamp()

    def command(state: CatalogState) -> tuple[Change, None]:
        made, now = NOTHING, state
        for text in texts:
            (statement,) = parse_statements(text)
            plan = plan_statement(statement, planner.catalog(state=now))
            assert isinstance(plan, ddl_plans.CreateMaterializedViewPlan)
            number, change = allocate(now, "user")
            now, made = applied(now, change), made | change
            item = MaterializedView(
                id=global_id("u", number),
                name=plan.name.item,
                schema=plan.name.schema,
                database=str(plan.name.database),
                create_sql=plan.create_sql,
                depends_on=_reads(plan),
                created_at=as_of,
                desc=RelationDesc(plan.query.desc.names, plan.query.desc.typ),
                shard=env.persist.new_shard_id(),
                cluster=plan.cluster,
                as_of=as_of,
            )
            change = create_item(now, item)
            now, made = applied(now, change), made | change
        return made, None

    env.catalog.transact(command)
    env.sync()


def _reads(plan: ddl_plans.CreateMaterializedViewPlan) -> tuple[str, ...]:
    return tuple(sorted(global_gets(lower_query(plan.query).relation)))
