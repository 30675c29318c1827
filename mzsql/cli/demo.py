"""The main job with commentary: ``sql/quickstart.sql`` step by step, with what a person would look at in between.

Promise: everything shown is read through SQL from the environment just created. After every change the views are
compared with Spark's results over the same tables, and a difference ends the demo with an error. DuckDB's times are
shown for comparison.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import mzsql
from mzsql.adapter.environment.locations import locate
from mzsql.cli.recompute import Recomputation, query_of
from mzsql.cli.script import Step, shipped, shipped_steps
from mzsql.repr.errors import InternalError, NotReadable, SqlError

VIEWS = {"q3": "tpch/q03.sql", "q1": "tpch/q01.sql", "q18": "tpch/q18.sql"}
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
#: Each wait takes seconds; ten minutes mean that something is broken.
PATIENCE_SECONDS = 600.0


#: How long each change waits for the machine to come to rest.
_PAUSE_SECONDS = 1.0


class GeneratorMissing(SqlError):
    """The generator of TPC-H data is not installed."""

    sqlstate = "58000"


def generator() -> str:
    """The path of ``tpchgen-cli``: this installation's, else the one on the PATH.

    Raises:
        GeneratorMissing: there is none.
    """
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise GeneratorMissing(
            "the demo needs tpchgen-cli to make its data", hint="pip install 'mzsql[demo]'"
        )
    return found


def generate(folder: Path, scale: float) -> None:
    """Write TPC-H's tables into ``folder``, one Parquet file per table."""
    command = [generator(), "parquet", "-s", f"{scale:g}", "-q", "--no-progress", "-o", str(folder)]
    subprocess.run(command, check=True)  # noqa: S603  a program of ours with arguments of ours


class Demo:
    """A run of the demo in a folder: ``tpch/`` for the data, ``env/`` for the environment."""

    def __init__(self, folder: Path, scale: float, console: Console) -> None:
        self._folder = folder
        self._scale = scale
        self._console = console
        self._steps = shipped_steps("quickstart.sql")
        self._number = 0

    def run(self) -> None:
        """Run all eight steps."""
        begun = time.perf_counter()
        connection = self._open()
        try:
            self._load(connection)
            self._create_views(connection)
            self._explain(connection)
            self._watch_hydration(connection)
            self._change(connection)
            self._spark(connection)
            before = self._arrangements(connection)
        finally:
            connection.close()
        self._restart(before)
        self._say(f"\nDone in {time.perf_counter() - begun:.0f} seconds.")

    # --- the steps ----------------------------------------------------------------------------------

    def _open(self) -> Any:
        self._title("An environment")
        env = self._folder / "env"
        connection = mzsql.connect(str(env))
        where = locate(env, create=False)
        for what, url in (
            ("Blob", where.blob),
            ("Consensus", where.consensus),
            ("timestamp oracle", where.oracle),
        ):
            self._say(f"  {what}: {url}")
        self._be_patient(connection)
        return connection

    def _load(self, connection: Any) -> None:
        self._title(f"TPC-H at scale factor {self._scale:g}: eight tables")
        with self._timed("  generated with tpchgen-cli"):
            generate(self._folder / "tpch", self._scale)
        with self._timed("  created and loaded with COPY"), contextlib.chdir(self._folder):
            self._run(connection, self._step("tables"))
            self._run(connection, self._step("load"))
        counts = [
            f"{table} {_one(connection, f'SELECT count(*) FROM {table}')}" for table in TABLES
        ]
        self._say("  rows: " + ", ".join(counts))

    def _create_views(self, connection: Any) -> None:
        self._title("Three materialized views: TPC-H queries 3, 1 and 18")
        with self._timed(
            "  CREATE MATERIALIZED VIEW q3, q1, q18 (planned; their hydration begins)"
        ):
            self._run(connection, self._step("views"))

    def _explain(self, connection: Any) -> None:
        (statement,) = self._step("explain").statements
        self._title("The plan of q3, with the ids that progress is reported by")
        self._say(f"  {statement}\n")
        self._say(str(_one(connection, statement)).rstrip())

    def _watch_hydration(self, connection: Any) -> None:
        self._title("Hydration, node by node")
        self._say("  from mz_internal.mz_compute_operator_hydration_statuses:")
        question = shipped("diagnostics/hydration_progress.sql")
        nodes = (
            "SELECT o.name, h.plan_node_id FROM mz_internal.mz_compute_operator_hydration_statuses AS h "
            "JOIN mz_catalog.mz_objects AS o ON o.id = h.object_id WHERE h.hydrated"
        )
        seen: dict[tuple[str, int], float] = {}
        begun = time.perf_counter()
        columns = (
            TextColumn("  {task.description:4}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("nodes"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            tasks = {view: progress.add_task(view, total=None) for view in VIEWS}
            while True:
                told = {name: (done, total) for name, _, done, total in _rows(connection, question)}
                elapsed = time.perf_counter() - begun
                for name, node in _rows(connection, nodes):
                    seen.setdefault((name, int(node)), elapsed)
                for view, (done, total) in told.items():
                    progress.update(tasks[view], completed=int(done), total=int(total))
                if set(told) == set(VIEWS) and all(done == total for done, total in told.values()):
                    break
                if elapsed > PATIENCE_SECONDS:
                    raise NotReadable(f"hydration did not end within {PATIENCE_SECONDS:.0f} s")
                time.sleep(0.1)
        for view in VIEWS:
            moments = sorted((at, node) for (name, node), at in seen.items() if name == view)
            told_nodes = ", ".join(f"{node} at {at:.1f} s" for at, node in moments)
            self._say(f"  {view}: node {told_nodes}")

    def _change(self, connection: Any) -> None:
        self._title("Changes, each followed by the views")
        self._say(
            "  steps: one for each transaction that concerns the view; refresh: the slowest of them; anew: the whole query, Spark's faster"
            " of two runs"
        )
        with self._timed("  started Spark, to compare with"):
            session = connection.spark.session
        with contextlib.closing(Recomputation(session, self._scratch())) as recomputation:
            self._changes(connection, recomputation)

    def _changes(self, connection: Any, recomputation: Recomputation) -> None:
        queries = {view: query_of(shipped(file)) for view, file in VIEWS.items()}
        for step in self._steps:
            if not step.title.startswith("change: "):
                continue
            self._say(f"  {step.title.removeprefix('change: ')}")
            # What Spark still compiles after its queries would take the cores from the refreshes, which come but once.
            time.sleep(_PAUSE_SECONDS)
            since = int(_one(connection, "SELECT max(upper) FROM mz_internal.mz_refreshes") or 0)
            begun = time.perf_counter()
            self._run(connection, step)
            committed = time.perf_counter() - begun
            contents = {view: _arrow(connection, f"SELECT * FROM {view}") for view in VIEWS}
            fresh = time.perf_counter() - begun
            self._say(
                f"  committed after {committed:.2f} s, all three views fresh after {fresh:.2f} s"
            )
            recomputation.load({t: _arrow(connection, f"SELECT * FROM {t}") for t in TABLES})
            steps = self._steps_after(connection, since)
            table = Table("view", *_COLUMNS, box=None, padding=(0, 1))
            for view, query in queries.items():
                recomputed = recomputation.run(query)
                different = recomputation.differences(recomputed, contents[view])
                if different:
                    raise InternalError(
                        f"{view} differs from its recomputation in {different} rows"
                    )
                ran = steps[view]
                table.add_row(
                    view,
                    f"{ran.updates}",
                    f"{ran.steps}",
                    _milliseconds(ran.slowest),
                    ran.engine,
                    f"{ran.jobs}",
                    _size(ran.bytes),
                    _milliseconds(recomputed.seconds),
                    _milliseconds(recomputed.duckdb_seconds),
                    _size(recomputed.bytes),
                    f"{contents[view].num_rows}",
                )
            self._console.print(table)
            self._say("")

    def _spark(self, connection: Any) -> None:
        self._title('The same through plain spark.sql("SELECT …")')
        session = connection.spark.session
        queries = (
            "SELECT * FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker "
            "ORDER BY object_id, plan_node_id, worker_id LIMIT 6",
            "SELECT * FROM mz_internal.mz_compute_operator_hydration_statuses ORDER BY object_id, plan_node_id LIMIT 6",
            "SELECT * FROM mz_internal.mz_hydration_statuses ORDER BY object_id",
            "SELECT id, name, cluster_id FROM mz_catalog.mz_materialized_views ORDER BY id",
            "SELECT * FROM public.q3 ORDER BY revenue DESC",
        )
        for query in queries:
            frame = session.sql(query)
            rows = frame.collect()
            self._say(f"  {query}")
            table = Table(*frame.columns, box=None, padding=(0, 2))
            for row in rows:
                table.add_row(*[str(value) for value in row])
            self._console.print(table)
            self._say("")

    def _restart(self, before: dict[str, set[str]]) -> None:
        self._title("Closed, and opened again")
        begun = time.perf_counter()
        connection = mzsql.connect(str(self._folder / "env"))
        try:
            opened = time.perf_counter() - begun
            self._be_patient(connection)
            answers = {view: len(_rows(connection, f"SELECT * FROM {view}")) for view in VIEWS}
            answered = time.perf_counter() - begun
            cached, planned = connection.plans_from_cache
            self._say(
                f"  opened after {opened:.2f} s; all three views answered after {answered:.2f} s"
            )
            self._say("  rows: " + ", ".join(f"{v} {n}" for v, n in answers.items()))
            self._say(f"  plans from the expression cache: {cached} of {planned}")
            after = self._arrangements(connection)
        finally:
            connection.close()
        if after != before:
            raise InternalError(f"the arrangements are not those of before: {before}, {after}")
        shards = sum(len(ids) for ids in after.values())
        self._say(f"  arrangements: the same {shards} shards as before; nothing was hydrated again")

    @staticmethod
    def _be_patient(connection: Any) -> None:
        """Raise the statement timeout, since the first statements of a cold Spark can be slow on a busy machine."""
        connection.execute(f"SET statement_timeout = '{PATIENCE_SECONDS:.0f} s'")

    # --- pieces -------------------------------------------------------------------------------------

    def _arrangements(self, connection: Any) -> dict[str, set[str]]:
        """The shards of each view's arrangements."""
        rows = _rows(
            connection,
            "SELECT o.name, a.shard_id FROM mz_internal.mz_arrangements AS a "
            "JOIN mz_catalog.mz_objects AS o ON o.id = a.object_id",
        )
        return {view: {shard for name, shard in rows if name == view} for view in VIEWS}

    def _steps_after(self, connection: Any, since: int) -> dict[str, _Ran]:
        """For each view, what its steps did that advanced beyond a time."""
        rows = _rows(
            connection,
            "SELECT o.name, sum(r.rows_in), sum(r.jobs), sum(r.bytes_read), count(*), max(r.seconds), string_agg(DISTINCT r.engine, ', ') "
            "FROM mz_internal.mz_refreshes AS r JOIN mz_catalog.mz_objects AS o ON o.id = r.object_id "
            f"WHERE r.kind = 'step' AND r.upper > '{since}'::mz_timestamp GROUP BY o.name",
        )
        return {
            view: _Ran(int(updates), int(jobs), int(read), int(steps), float(slowest), engine)
            for view, updates, jobs, read, steps, slowest, engine in rows
        }

    def _scratch(self) -> Path:
        folder = self._folder / "recompute"
        folder.mkdir(exist_ok=True)
        return folder

    def _step(self, title: str) -> Step:
        return next(step for step in self._steps if step.title == title)

    def _run(self, connection: Any, step: Step) -> None:
        cursor = connection.cursor()
        for statement in step.statements:
            cursor.execute(statement)

    def _title(self, text: str) -> None:
        self._number += 1
        self._console.print(f"\n[bold]{self._number}. {text}[/bold]")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._say(f"{what}: {time.perf_counter() - begun:.1f} s")


#: The columns of the table of refreshes beside the view. A change of two transactions is two steps of a view, of
#: which the slower one's time is shown; the others' time is for computing the whole query once.
_COLUMNS = (
    "changes",
    "steps",
    "refresh",
    "on",
    "jobs",
    "read",
    "Spark anew",
    "DuckDB anew",
    "anew reads",
    "equal rows",
)


@dataclass(frozen=True)
class _Ran:
    """What steps did: totals of input updates, of Spark jobs and of stored bytes read, how many steps, the seconds of the
    slowest, and the engine.
    """

    updates: int
    jobs: int
    bytes: int
    steps: int
    slowest: float
    engine: str


def _rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(query)
    return list(cursor.fetchall())


def _one(connection: Any, query: str) -> Any:
    return _rows(connection, query)[0][0]


def _arrow(connection: Any, query: str) -> pa.Table:
    table: pa.Table = connection.execute(query).arrow()
    return table


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _size(count: int) -> str:
    return f"{count / 1024:,.0f} KiB"


def run_demo(directory: Path | None, scale: float) -> None:
    """Run the demo in a given directory, which remains, or in a temporary one."""
    console = Console(file=sys.stdout, highlight=False, width=_width())
    generator()
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        Demo(directory.absolute(), scale, console).run()
        return
    with tempfile.TemporaryDirectory(prefix="mzsql-demo-") as folder:
        Demo(Path(folder), scale, console).run()


def _width() -> int | None:
    return None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
