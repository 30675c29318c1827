"""Case l: views of the first rows of large groups, whether what a change costs grows with the group.

One table whose rows are one group for two of the views and a thousand groups for the third. A round inserts a row that is the new
maximum and deletes it again; after each the three views are read. *first* is the first round after the views are there, *reopened* the
first one after the environment was closed and opened again, in this process: neither has anything of the state in memory.
"""

from __future__ import annotations

import re
from pathlib import Path
from time import perf_counter

import duckdb
from figures import Case, median, scratch
from judge import WrongAnswer
from meter import Meter
from options import Options

import mzsql

#: The largest group's p50 over the smallest's, and milliseconds.
GROWTH, P50_MS = 2.0, 100.0

_VIEWS = {
    "extremes": "SELECT max(x) AS a, min(x) AS b FROM {}",
    "top": "SELECT id, x FROM {} ORDER BY x DESC LIMIT 10",
    "by_group": "SELECT g, max(x) AS a, count(*) AS n FROM {} GROUP BY g",
}
_TOUCHED = re.compile(r"touch (\d+) rows of state")
_ABOVE_ALL = 2_000_000_000


def groups(options: Options, meter: Meter) -> Case:
    """At each size of the group."""
    case = Case("l", "MIN, MAX and the first rows of groups of so many rows")
    found = []
    for rows in options.groups:
        with scratch(options.directory) as folder:
            found.append(_one_size(case, folder, rows, options.rounds, meter))
    if len(found) > 1:
        case.target("p50 of the last size over the first's", found[-1] / found[0], most=GROWTH)
    case.target("p50 of the last size, ms", found[-1] * 1000, most=P50_MS)
    return case


def _one_size(case: Case, folder: Path, rows: int, rounds: int, meter: Meter) -> float:
    source = f"(SELECT range AS id, (hash(range) % 1000000000)::BIGINT AS x, range % 1000 AS g FROM range({rows}))"
    file = folder / "t.parquet"
    duckdb.sql(f"COPY {source} TO '{file}' (FORMAT parquet)")
    with mzsql.connect(str(folder / "env")) as connection:
        connection.execute("SET statement_timeout = '60 min'")
        connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        columns = "id bigint NOT NULL, x bigint NOT NULL, g bigint NOT NULL"
        connection.execute(f"CREATE TABLE t ({columns})")
        connection.execute(f"COPY t FROM '{file}' (FORMAT PARQUET)")
        for name, query in _VIEWS.items():
            connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {query.format('t')}")
            connection.execute(f"SELECT count(*) FROM {name}").fetchall()
        connection.execute("ALTER SYSTEM RESET step_engine")
        first = _round(connection, 0)
        for warm in range(1, rounds // 3):
            _round(connection, warm)
        mark = meter.mark()
        taken = [_round(connection, rounds + one) for one in range(rounds)]
        cost = meter.since(mark)
        reasons = connection.execute(
            "SELECT reason FROM mz_internal.mz_refreshes WHERE kind = 'step'"
        ).fetchall()
        touched = max(int(one[1]) for (r,) in reasons if (one := _TOUCHED.search(r)))
        _check(connection, file)
    with mzsql.connect(str(folder / "env")) as connection:
        connection.execute("SET statement_timeout = '60 min'")
        reopened = _round(connection, 3 * rounds)
        _check(connection, file)
    p50 = median([time for pair in taken for time in pair])
    case.row(
        rows=rows,
        first_ms=max(first) * 1000,
        p50_ms=p50 * 1000,
        cpu_ms=cost.cpu / (2 * rounds) * 1000,
        most_rows_touched=touched,
        reopened_ms=max(reopened) * 1000,
    )
    return p50


def _round(connection: mzsql.Connection, number: int) -> tuple[float, float]:
    """Seconds from the commit's return until all views are read: of the row's coming, and of its going."""
    taken = []
    for change in (
        f"INSERT INTO t VALUES ({-1 - number}, {_ABOVE_ALL + number}, 5)",
        f"DELETE FROM t WHERE id = {-1 - number}",
    ):
        connection.execute(change)
        begun = perf_counter()
        for name in _VIEWS:
            connection.execute(f"SELECT * FROM {name}").fetchall()
        taken.append(perf_counter() - begun)
    return taken[0], taken[1]


def _check(connection: mzsql.Connection, file: Path) -> None:
    """The views are what DuckDB computes from the rows that were loaded, as each round takes back what it brings."""
    for name, query in _VIEWS.items():
        ours = sorted(connection.execute(f"SELECT * FROM {name}").fetchall())
        theirs = sorted(duckdb.sql(query.format(f"read_parquet('{file}')")).fetchall())
        if ours != theirs:
            raise WrongAnswer(f"{name} holds {ours[:3]}, DuckDB computes {theirs[:3]}")
