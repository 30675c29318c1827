"""Case e: what one transaction asks of Consensus, with few views and with very many.

N views read `orders`, three read `other`, none reads `apart`. A round inserts one row into one of the three tables and reads one of the
views that depend on it; so all N are touched while three are idle, three while N are idle, or none at all. It is timed until the answer is
there; it is over, and its costs are complete, when all views have come to its time, which is looked up aside. Counts are medians over the
rounds: *path* is what the statements, the group commit and the steps ask, *behind* what is made durable, compacted and followed
afterwards. Steps run in process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from time import perf_counter, sleep

from figures import Case, median, scratch
from judge import Judge
from meter import Cost, Meter, columns
from options import Options

import mzsql

#: Of Consensus, on the path of a transaction, whatever the number of views.
WRITES, READS = 3, 2
BESIDE = 3
_TABLES = ("orders", "other", "apart")
_WARM = 5
_LOOK_SECONDS = 0.02


def operations(options: Options, meter: Meter) -> Case:
    """Few views and many, each number in an environment of its own."""
    case = Case("e", "one transaction of one row: Consensus operations, path + behind")
    for number in options.views:
        with (
            scratch(options.directory) as folder,
            closing(Judge(folder / "judge.duckdb")) as judge,
            mzsql.connect(str(folder / "env")) as connection,
        ):
            connection.execute("SET statement_timeout = '60 min'")
            connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
            views = _prepare(connection, judge, number)
            for table in _TABLES:
                touched = [view for view, over in views.items() if over == table]
                read = touched[0] if touched else next(iter(views))
                costs, took = _rounds(connection, judge, table, read, options.rounds, meter)
                _row(case, table, len(touched), len(views) - len(touched), costs, took)
            _check(connection, judge, views)
    return case


def _prepare(connection: mzsql.Connection, judge: Judge, number: int) -> dict[str, str]:
    """Tables and views; which view is over which table."""
    for table in _TABLES:
        for statement in (
            f"CREATE TABLE {table} (id bigint, customer bigint, amount bigint)",
            f"INSERT INTO {table} VALUES (0, 0, 0)",
        ):
            connection.execute(statement)
            judge.run([statement])
    views = {f"v{i}": "orders" for i in range(number)}
    views |= {f"w{i}": "other" for i in range(BESIDE)}
    for view, table in views.items():
        connection.execute(f"CREATE MATERIALIZED VIEW {view} AS {_query(view, table)}")
    for view in views:
        connection.execute(f"SELECT count(*) FROM {view}").fetchall()
    return views


def _query(view: str, table: str) -> str:
    """No two are the same."""
    return f"SELECT customer, sum(amount) + {view[1:]} AS total FROM {table} GROUP BY customer"


def _rounds(
    connection: mzsql.Connection, judge: Judge, table: str, read: str, rounds: int, meter: Meter
) -> tuple[list[Cost], list[float]]:
    costs, took, statements = [], [], []
    for number in range(_WARM + rounds):
        statement = f"INSERT INTO {table} VALUES ({number}, {number % 7}, 2)"
        mark, begun = meter.mark(), perf_counter()
        connection.execute(statement)
        connection.execute(f"SELECT * FROM {read}").fetchall()
        if number >= _WARM:
            took.append(perf_counter() - begun)
        _settle(connection, meter)
        if number >= _WARM:
            costs.append(meter.since(mark))
        statements.append(statement)
    judge.run(statements)
    return costs, took


def _settle(connection: mzsql.Connection, meter: Meter) -> None:
    """Until the steps of all views have come to now; that their shards follow is not waited for."""
    with meter.aside():
        now = connection.execute("SELECT mz_now()::text").fetchall()[0][0]
        behind = (
            "SELECT count(*) FROM mz_internal.mz_frontiers AS f JOIN mz_catalog.mz_materialized_views AS v ON v.id = f.object_id "
            "WHERE f.write_frontier <= %s::text::mz_timestamp"
        )
        while connection.execute(behind, [now]).fetchall()[0][0]:
            sleep(_LOOK_SECONDS)


def _row(
    case: Case, table: str, touched: int, idle: int, costs: Sequence[Cost], took: Sequence[float]
) -> None:
    case.row(
        insert_into=table,
        views_touched=touched,
        idle_beside=idle,
        ms=median(took) * 1000,
        **columns(costs),
    )
    what = f"inserting into {table}, {touched} views touched, {idle} idle"
    case.target(f"writes {what}", median([one.writes for one in costs]), most=WRITES)
    case.target(f"reads {what}", median([one.reads for one in costs]), most=READS)


def _check(connection: mzsql.Connection, judge: Judge, views: dict[str, str]) -> None:
    for view, table in views.items():
        contents = connection.execute(f"SELECT * FROM {view}").arrow()
        judge.check(view, _query(view, table), contents)
