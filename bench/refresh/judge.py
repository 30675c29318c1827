"""Whether a view holds what it should: DuckDB's answer over the same rows, changed by the same statements.

Promise: the tables here are made from the same files and by the same texts, never from what an environment says is in it. Answers are
compared as bags, to the last digit but for what DuckDB computes in binary (averages, quotients), which may differ in the tenth digit. A
difference ends the benchmark: figures of wrong answers are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

#: Relative, of values that one of the two computes in binary.
_NEAR = 1e-9
_BINARY = ("float", "double")
_WHOLE = ("tinyint", "smallint", "integer", "bigint", "hugeint")


class WrongAnswer(Exception):
    """A view does not hold what DuckDB computes."""


class Judge:
    """DuckDB with tables of its own, in a file, so that they take no memory from who is measured."""

    def __init__(self, file: Path) -> None:
        self._duck = duckdb.connect(str(file))
        self._duck.execute("SET memory_limit = '1GB'")

    def load(self, files: Path, tables: Sequence[str]) -> None:
        """Tables of the rows of Parquet files."""
        for table in tables:
            self._duck.execute(
                f"CREATE TABLE {table} AS FROM read_parquet('{files}/{table}.parquet')"
            )

    def run(self, statements: Iterable[str]) -> None:
        """Change the tables."""
        self._duck.execute("BEGIN")
        for statement in statements:
            self._duck.execute(statement)
        self._duck.execute("COMMIT")

    def value(self, query: str) -> Any:
        """The one value that a query yields."""
        found = self._duck.execute(query).fetchone()
        assert found is not None
        return found[0]

    def export(self, tables: Sequence[str], to: Path) -> None:
        """Parquet files of what the tables hold now."""
        for table in tables:
            self._duck.execute(f"COPY {table} TO '{to}/{table}.parquet' (FORMAT parquet)")

    def check(self, what: str, query: str, contents: pa.Table) -> None:
        """Compare contents with the query's answer.

        Raises:
            WrongAnswer: they differ.
        """
        names = [f"c{i}" for i in range(contents.num_columns)]
        duck = self._duck.cursor()
        duck.register("ours", contents.rename_columns(names))
        duck.execute(
            f"CREATE OR REPLACE TEMP TABLE theirs AS FROM ({query}) AS t({', '.join(names)})"
        )
        ours, theirs = (duck.table(side).types for side in ("ours", "theirs"))
        sides = list(zip(names, ours, theirs, strict=True))
        near = [name for name, a, b in sides if a.id in _BINARY or b.id in _BINARY]
        ordered = ", ".join([name for name in names if name not in near] + near)
        sides_as = {
            side: ", ".join(_as_compared(name, a, b) for name, a, b in sides)
            for side in ("ours", "theirs")
        }
        numbered = {
            side: f"(SELECT *, row_number() OVER (ORDER BY {ordered}) AS n FROM (SELECT {shown} FROM {side}))"
            for side, shown in sides_as.items()
        }
        differ = " OR ".join(_differ(name, near=name in near) for name in names)
        rows = duck.execute(
            f"FROM {numbered['ours']} AS o FULL JOIN {numbered['theirs']} AS t ON o.n = t.n "
            f"WHERE o.n IS NULL OR t.n IS NULL OR {differ}"
        ).fetchall()
        duck.unregister("ours")
        if rows:
            raise WrongAnswer(
                f"{what}: {len(rows)} rows are not those that DuckDB computes; ours and theirs of the first: {rows[0]}"
            )

    def close(self) -> None:
        self._duck.close()


def _as_compared(name: str, a: DuckDBPyType, b: DuckDBPyType) -> str:
    """A column as both sides can be compared: exact numbers with as many digits after the point as the side that has fewer."""
    scales = [_scale(one) for one in (a, b)]
    if None in scales or a.id in _BINARY or b.id in _BINARY:
        return name
    return f"round({name}, {min(scales)})::decimal(38, {min(scales)}) AS {name}"


def _scale(typ: DuckDBPyType) -> int | None:
    if typ.id == "decimal":
        return dict(typ.children)["scale"]
    return 0 if typ.id in _WHOLE else None


def _differ(name: str, *, near: bool) -> str:
    o, t = f"o.{name}", f"t.{name}"
    if not near:
        return f"{o} IS DISTINCT FROM {t}"
    far = f"abs({o}::double - {t}::double) > {_NEAR} * greatest(abs({o}::double), abs({t}::double))"
    return f"(({o} IS NULL) <> ({t} IS NULL) OR coalesce({far}, false))"
