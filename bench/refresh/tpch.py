"""TPC-H in an environment, its queries as views, and what the environment tells of their refreshes.

Promise: an environment is new, has the tables of one scale and the views that are asked for, hydrated in process, so that no JVM starts
that a case does not want; then steps run where `step_engine` has them by default. The judge has the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from judge import Judge

import mzsql
from mzsql.cli.demo import TABLES, generate
from mzsql.cli.recompute import query_of
from mzsql.cli.script import shipped

#: The 22 queries, as their views are called.
ALL = tuple(f"q{number}" for number in range(1, 23))
#: Those of the demo.
FEW = ("q1", "q3", "q18")


@dataclass(frozen=True)
class Refresh:
    """One row of `mz_internal.mz_refreshes`."""

    view: str
    upper: int
    kind: str
    rows: int
    bytes: int
    jobs: int
    seconds: float
    engine: str


@dataclass(frozen=True)
class Loaded:
    """An environment with the tables of TPC-H, and the judge of its views."""

    folder: Path
    files: Path
    connection: mzsql.Connection
    judge: Judge

    def create(self, views: Iterable[str]) -> None:
        for view in views:
            self.connection.execute(create_view(view))

    def await_(self, views: Iterable[str]) -> None:
        """Until the views hold what has been committed."""
        for view in views:
            self.connection.execute(f"SELECT count(*) FROM {view}").fetchall()

    def hydrate(self, views: Sequence[str]) -> None:
        """Make views in process, whatever runs steps afterwards."""
        self.connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        self.create(views)
        self.await_(views)
        self.connection.execute("ALTER SYSTEM RESET step_engine")

    def change(self, statements: Iterable[str]) -> None:
        """One transaction."""
        self.connection.execute("BEGIN")
        for statement in statements:
            self.connection.execute(statement)
        self.connection.execute("COMMIT")

    def read(self, views: Iterable[str]) -> None:
        """All rows, as a client gets them."""
        for view in views:
            self.connection.execute(f"SELECT * FROM {view}").fetchall()

    def check(self, views: Iterable[str]) -> None:
        """The views' contents against the judge's answers.

        Raises:
            WrongAnswer: they differ.
        """
        for view in views:
            contents = self.connection.execute(f"SELECT * FROM {view}").arrow()
            self.judge.check(view, query(view), contents)

    def upper(self) -> int:
        """How far steps have come that are told of."""
        found = "SELECT coalesce(max(upper), 0::mz_timestamp) FROM mz_internal.mz_refreshes"
        return int(self.connection.execute(found).fetchall()[0][0])

    def refreshes(self, kind: str, beyond: int = 0) -> list[Refresh]:
        """Those of a kind that went beyond a time; the environment keeps the latest thousand of all."""
        rows = self.connection.execute(
            "SELECT o.name, r.upper, r.kind, r.rows_in, r.bytes_read, r.jobs, r.seconds, r.engine "
            "FROM mz_internal.mz_refreshes AS r JOIN mz_catalog.mz_objects AS o ON o.id = r.object_id "
            "WHERE r.kind = %s AND r.upper > %s::text::mz_timestamp",
            [kind, str(beyond)],
        ).fetchall()
        return [
            Refresh(
                str(view), int(upper), str(of), int(n), int(read), int(jobs), float(s), str(engine)
            )
            for view, upper, of, n, read, jobs, s, engine in rows
        ]


@contextmanager
def loaded(folder: Path, scale: float, name: str = "env") -> Iterator[Loaded]:
    """A new environment of a name below a folder, with the tables of a scale; the folder's files are made when they are first needed."""
    files = folder / "tpch"
    if not files.exists():
        generate(files, scale)
    with (
        closing(Judge(folder / f"{name}.duckdb")) as judge,
        mzsql.connect(str(folder / name)) as connection,
    ):
        judge.load(files, TABLES)
        # Long enough for a hydration on a machine that others use too.
        connection.execute("SET statement_timeout = '60 min'")
        connection.execute(shipped("tpch/schema.sql"))
        for table in TABLES:
            connection.execute(f"COPY {table} FROM '{files}/{table}.parquet' (FORMAT PARQUET)")
        yield Loaded(folder, files, connection, judge)


@contextmanager
def reopened(folder: Path, name: str = "env") -> Iterator[Loaded]:
    """An environment that `loaded` has made below a folder and closed, with its judge."""
    with (
        closing(Judge(folder / f"{name}.duckdb")) as judge,
        mzsql.connect(str(folder / name)) as connection,
    ):
        connection.execute("SET statement_timeout = '60 min'")
        yield Loaded(folder, folder / "tpch", connection, judge)


def create_view(view: str) -> str:
    """The statement, as it is shipped."""
    return shipped(f"tpch/q{int(view[1:]):02d}.sql")


def query(view: str, dialect: str = "duckdb") -> str:
    """The view's query, for another engine."""
    return query_of(create_view(view)).sql(dialect)


def engines(refreshes: Iterable[Refresh]) -> str:
    """Which ran them, with how many each."""
    ran = [one.engine for one in refreshes]
    return ", ".join(f"{one} {ran.count(one)}" for one in sorted(set(ran))) or "none"
