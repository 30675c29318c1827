"""Who recomputes what views hold: DuckDB in process over Parquet files of the same rows."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import duckdb
from figures import timed

from mzsql.cli.demo import TABLES


class Files:
    """DuckDB with its defaults; it keeps no rows, each query reads the columns that it needs from the files."""

    def __init__(self, files: Path) -> None:
        self._duck = duckdb.connect()
        for table in TABLES:
            self._duck.execute(
                f"CREATE VIEW {table} AS FROM read_parquet('{files}/{table}.parquet')"
            )

    def seconds(self, query: str) -> float:
        """What a query takes until its rows are there."""
        return timed(lambda: self._duck.execute(query).fetchall())

    def __enter__(self) -> Files:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._duck.close()
