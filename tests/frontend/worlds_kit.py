"""A PostgreSQL to ask, and the same small tables in it, in DuckDB and in a catalog."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal

import duckdb
from answers_kit import make_database
from memory_catalog import MemoryCatalog
from mir_model import Model

from mzsql.expr.engines import duckdb_connection
from mzsql.frontend import lower_query
from mzsql.frontend.plan import plans

SCHEMA = """
CREATE TABLE t (a int, b int, s text);
CREATE TABLE u (c int, d int);
CREATE TABLE w (a int, b int, x numeric(10,2), y date);
CREATE TABLE empty (a int);
"""
DATA = """
INSERT INTO t VALUES (1, 10, 'x'), (1, 10, 'x'), (2, 20, 'y'), (3, NULL, NULL), (NULL, 5, 'z'), (4, 7, 'x'), (2, 3, 'yy');
INSERT INTO u VALUES (1, 10), (1, 11), (2, NULL), (NULL, 5), (5, 7), (NULL, NULL), (4, 7), (4, 7);
INSERT INTO w VALUES (1, 10, 1.50, '2020-01-31'), (2, 20, NULL, '2021-03-01'), (NULL, 20, -3.25, NULL);
INSERT INTO w VALUES (2, 3, 7.00, '1999-12-31'), (9, 9, 0.01, '2020-02-29');
"""


class Worlds:
    """The same data in three places."""

    def __init__(self, server) -> None:
        self.catalog = MemoryCatalog()
        self.catalog.run(SCHEMA)
        self.duck: duckdb.DuckDBPyConnection = duckdb_connection()
        self.postgres = make_database(server, "worlds")
        self.postgres.execute(SCHEMA)
        self.postgres.execute(DATA)
        self.tables: dict[str, str] = {}
        for item in self.catalog.items.values():
            self._copy(item)

    def _copy(self, item) -> None:
        from mzsql.expr import spell
        from mzsql.expr.engines import to_sql
        from mzsql.expr.functions.table import Engine

        name = f"base_{item.name.item}"
        columns = [
            f"c{i} {to_sql(spell.sql_type(c.type, Engine.DUCKDB), Engine.DUCKDB)}"
            for i, c in enumerate(item.desc.typ.columns)
        ]
        self.duck.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        rows = self.postgres.execute(f"SELECT * FROM {item.name.item}").fetchall()
        if rows:
            marks = ", ".join("?" for _ in columns)
            self.duck.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        self.tables[item.id] = name

    def ours(self, sql: str) -> list[tuple]:
        plan = self.catalog.plan(sql)
        assert isinstance(plan, plans.SelectPlan)
        return self.evaluate(plan.query)

    def evaluate(self, query) -> list[tuple]:
        lowered = lower_query(query)
        rows = Model(self.tables).answer(self.duck, lowered.relation, lowered.finishing)
        assert all(len(r) == lowered.desc.arity for r in rows)
        for row in rows:
            for value, column in zip(row, lowered.desc.typ.columns, strict=True):
                assert value is not None or column.nullable, "NULL in a column that has none"
        return rows

    def check(self, sql: str, theirs: str | None = None) -> None:
        """Our answer is PostgreSQL's; in order, where the query has one at its end."""
        expected = [
            tuple(map(plain, row)) for row in self.postgres.execute(theirs or sql).fetchall()
        ]
        got = [tuple(map(plain, row)) for row in self.ours(sql)]
        if "ordered" in sql:
            assert got == expected, sql
        assert Counter(got) == Counter(expected), (
            f"{sql}\nours {sorted(map(str, got))}\ntheirs {sorted(map(str, expected))}"
        )


def plain(value):
    """A value that compares across drivers."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Decimal | int | float):
        return round(float(value), 6)
    if isinstance(value, list):
        return tuple(plain(v) for v in value)
    if isinstance(value, dt.datetime) and value.time() == dt.time():
        return value.date()
    return value
