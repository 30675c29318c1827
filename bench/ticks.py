"""How soon one small transaction is in the views that depend on it, and what that costs.

    python bench/ticks.py                            # scale 0.1, 60 rounds
    python bench/ticks.py --scales 0.1,1 --rounds 200

A round commits one order of seven lines and reads Q1, Q3 and Q18, which are materialized views; it is timed from the commit's return until
the last answer is there. The processor time is the whole process's, the writes included. Views are hydrated in process, steps
run as `step_engine` has it by default. Beside it DuckDB computes the three queries anew over Parquet files of the same tables. The first
third of the rounds warms up and is left out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import duckdb

import mzsql
from mzsql.cli.demo import TABLES, generate
from mzsql.cli.recompute import query_of
from mzsql.cli.script import shipped, shipped_steps

VIEWS = {"q1": "tpch/q01.sql", "q3": "tpch/q03.sql", "q18": "tpch/q18.sql"}
FIRST_KEY = 900_000_000
LINES = 7


def prepare(folder: Path, scale: float) -> mzsql.Connection:
    generate(folder / "tpch", scale)
    connection = mzsql.connect(str(folder / "env"))
    connection.execute("SET statement_timeout = '20 min'")
    connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    for step in shipped_steps("quickstart.sql"):
        if step.title in ("tables", "load", "views"):
            for statement in step.statements:
                connection.execute(statement.replace("'tpch/", f"'{folder}/tpch/"))
    for view in VIEWS:
        connection.execute(f"SELECT count(*) FROM {view}").fetchall()
    connection.execute("ALTER SYSTEM RESET step_engine")
    return connection


def commit(connection: mzsql.Connection, number: int) -> None:
    key = FIRST_KEY + number
    lines = ", ".join(
        f"({key}, {number + 1}, {number % 50 + 1}, {line}, {10 + line}, 1000.50, 0.05, 0.02, 'A', 'F', "
        "'1995-04-01', '1995-04-02', '1995-04-03', 'NONE', 'AIR', 'c')"
        for line in range(LINES)
    )
    connection.execute("BEGIN")
    connection.execute(
        f"INSERT INTO orders VALUES ({key}, {number * 7 + 1}, 'O', 7000.00, '1995-03-01', '1-URGENT', 'Clerk', 0, 'x')"
    )
    connection.execute(f"INSERT INTO lineitem VALUES {lines}")
    connection.execute("COMMIT")


def recomputed(folder: Path) -> float:
    """Seconds of DuckDB for the three queries, over the files that were loaded."""
    duck = duckdb.connect()
    for table in TABLES:
        duck.execute(f"CREATE VIEW {table} AS FROM read_parquet('{folder}/tpch/{table}.parquet')")
    begun = perf_counter()
    for file in VIEWS.values():
        duck.execute(query_of(shipped(file)).sql("duckdb")).fetchall()
    return perf_counter() - begun


def engines(connection: mzsql.Connection) -> str:
    found: list[Any] = connection.execute(
        "SELECT DISTINCT engine FROM mz_internal.mz_refreshes WHERE kind = 'step'"
    ).fetchall()
    return ", ".join(sorted(row[0] for row in found))


def bench(scale: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="mzsql-bench-") as name:
        folder = Path(name)
        fresh, cpu, duck = [], [], []
        with prepare(folder, scale) as connection:
            for number in range(rounds):
                used = process_time()
                commit(connection, number)
                begun = perf_counter()
                for view in VIEWS:
                    connection.execute(f"SELECT * FROM {view}").fetchall()
                fresh.append(perf_counter() - begun)
                cpu.append(process_time() - used)
                if number % 10 == 9:
                    duck.append(recomputed(folder))
            ran = engines(connection)
    left_out = rounds // 3
    fresh, cpu = sorted(fresh[left_out:]), cpu[left_out:]
    p50, p99 = statistics.median(fresh), fresh[min(len(fresh) - 1, len(fresh) * 99 // 100)]
    again = statistics.median(duck) if duck else float("nan")
    print(
        f"| {scale:g} | {len(fresh)} | {p50 * 1000:.0f} | {p99 * 1000:.0f} | {statistics.mean(cpu) * 1000:.0f} "
        f"| {again * 1000:.0f} | {again / p50:.2f} | {ran} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scales", default="0.1")
    parser.add_argument("--rounds", type=int, default=60)
    given = parser.parse_args()
    print(
        "| scale | rounds | fresh p50 ms | p99 ms | cpu ms a round | DuckDB recomputing ms | recomputing : fresh | steps ran on |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    )
    for scale in given.scales.split(","):
        bench(float(scale), given.rounds)


if __name__ == "__main__":
    main()
