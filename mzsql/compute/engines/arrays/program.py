"""A statement as a program over arrays.

Promise: `program_of` reads a statement's text and returns a program, or None if there is something in it that is left to
DuckDB. `Program.run` returns the rows that DuckDB returns, in any order, or None where values, types or numbers of rows
are met that are left to DuckDB. Over few rows it takes a fraction of what a plan of DuckDB takes, because that goes
through much more code, which after a pause comes from memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from mzsql.compute.engines.arrays.operations import holds
from mzsql.compute.engines.arrays.rows import Relation
from mzsql.compute.engines.arrays.scalars import Run
from mzsql.compute.engines.arrays.selects import branches, names_before, select
from mzsql.compute.engines.arrays.vectors import Kind, Mask, Unsupported, joined, to_array


class Rows:
    """Rows of a result, which are made by the column."""

    def __init__(self, run: Run, parts: Sequence[Relation]) -> None:
        self._run = run
        self._parts = parts
        self.num_rows = sum(one.count(run) for one in parts)

    def column(self, name: str, typ: pa.DataType) -> pa.Array:
        """A column in a type.

        Raises:
            Unsupported: it is not of that type.
        """
        value = joined([one.cell(name)(self._run) for one in self._parts])
        texts = self._run.dictionary if value.kind is Kind.TEXT else None
        return to_array(value, typ, texts)

    def truth(self, name: str) -> Mask:
        """For each row whether a condition is true; NULL is not.

        Raises:
            Unsupported: it is no condition.
        """
        return holds(joined([one.cell(name)(self._run) for one in self._parts]))

    def table(self, names: Sequence[str], schema: pa.Schema) -> pa.Table:
        """Some columns as those of a schema.

        Raises:
            Unsupported: one is not of its type.
        """
        columns = [self.column(name, typ) for name, typ in zip(names, schema.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)


class Program:
    """A statement.

    Args:
        parts: what is united.
        words: texts that occur in it.
        columns: names of all columns that it may read.
    """

    def __init__(
        self, parts: Sequence[Relation], words: tuple[str, ...], columns: frozenset[str]
    ) -> None:
        self._parts = parts
        self._words = words
        self._columns = columns

    def run(self, tables: Mapping[str, pa.Table], parameters: Mapping[str, int]) -> Rows:
        """Its rows.

        Raises:
            Unsupported: they are left to DuckDB.
        """
        run = Run(tables, parameters, self._words, self._columns)
        return Rows(run, [one for one in self._parts if one.count(run)] or self._parts[:1])

    def tagged(
        self, tables: Mapping[str, pa.Table], parameters: Mapping[str, int]
    ) -> dict[int, Rows]:
        """Its rows by their column ``mz_tag``, which is one number in each part of its UNION ALL.

        Raises:
            Unsupported: they are left to DuckDB.
        """
        run = Run(tables, parameters, self._words, self._columns)
        by_tag: dict[int, list[Relation]] = {}
        for one in self._parts:
            if one.count(run):
                tags = one.cell("mz_tag")(run).values
                if tags.min() != tags.max():
                    raise Unsupported
                by_tag.setdefault(int(tags[0]), []).append(one)
        return {tag: Rows(run, parts) for tag, parts in by_tag.items()}


def program_of(text: str) -> Program | None:
    """A statement in DuckDB's SQL as a program; None if it is not known how to run it."""
    try:
        statement = sqlglot.parse_one(text, read="duckdb")
        names = names_before(statement)
        parts = [select(one, names) for one in branches(statement)]
    except (Unsupported, SqlglotError):
        return None
    words = {one.this for one in statement.find_all(exp.Literal) if one.is_string}
    columns = frozenset(one.name for one in statement.find_all(exp.Column))
    return Program(parts, tuple(sorted(words)), columns)
