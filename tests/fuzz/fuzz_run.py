"""One seed: tables, a query over them, both engines' answers, and where they differ the least query that shows it.

Promise: a seed always means the same tables and the same query. `SHARED` seeds in a row share their tables, since making tables is most
of the work. A difference is told as SQL that runs as it stands in both.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fuzz_engines import Answer, Failure, Worlds, bag, in_order
from fuzz_made import Made, Options
from fuzz_queries import ANYTHING, IN_ORDER, Queries
from fuzz_schema import Column, Table, random_tables
from fuzz_tree import Node, size, smaller

SHARED = 25
#: The seeds of every day have smaller queries.
SMALL_SEEDS = 1000
SMALL = Options(depth=1)

#: Errors of one side alone that are meant, and why.
DIFFERENT: tuple[tuple[str, str], ...] = (
    (
        "aggregate functions are not allowed in table function arguments",
        "ANY and ALL of an array ask a query over its elements, as in Materialize: the aggregates of the query around are not its own",
    ),
)


@dataclass(frozen=True)
class Difference:
    """A query that is answered in two ways."""

    seed: int
    tables: tuple[Table, ...]
    query: Node
    ours: Answer
    theirs: Answer

    def __str__(self) -> str:
        made = [s + ";" for table in self.tables for s in table.statements()]
        told = [f"-- seed {self.seed}", *made, f"{self.query};"]
        told += [f"-- mzsql: {_told(self.ours, self.theirs)}"]
        told += [f"-- PostgreSQL: {_told(self.theirs, self.ours)}"]
        return "\n".join([*told, f"-- again: make fuzz SEED={self.seed}"])


def _told(answer: Answer, other: Answer) -> str:
    """An answer: an error, or the rows that the other one has not."""
    if isinstance(answer, Failure):
        return f"error {answer.sqlstate}: {answer.message}"
    if isinstance(other, Failure):
        return f"{len(answer)} rows: {answer[:5]}"
    only = bag(answer) - bag(other)
    rows = [tuple(value for _, value in row) for row in list(only.elements())[:5]]
    return f"{len(answer)} rows, of its own {only.total()}: {rows}"


def tables_of(seed: int) -> list[Table]:
    """The tables of a seed, a view over them and a view over that one."""
    rng = random.Random(f"tables {seed // SHARED}")
    tables = random_tables(rng)
    for number in range(2):
        made = Queries(rng, tables, replace(SMALL, recursion=False)).whole()
        tables.append(_view(f"v{number}", made))
    return tables


def _view(name: str, made: Made) -> Table:
    columns = [
        Column(f"x{n}", kind, tame=False, nullable=True, limit=bound)
        for n, (kind, bound) in enumerate(zip(made.kinds, made.bounds, strict=True))
    ]
    return Table(name, tuple(columns), query=str(made.node))


def options_of(seed: int) -> Options:
    """How large the query of a seed may be, and whether its tables are constants."""
    rng = random.Random(f"options {seed}")
    depth = 1 if seed < SMALL_SEEDS else rng.choice([0, 1, 1, 1, 1, 2, 2, 2, 3])
    return replace(ANYTHING, depth=depth, spelled_out=rng.random() < 0.08)


def query_of(seed: int, tables: list[Table], options: Options | None = None) -> Node:
    """The query of a seed."""
    options = options or options_of(seed)
    if options.spelled_out:
        tables = [table for table in tables if not table.query]
    return Queries(random.Random(f"query {seed}"), tables, options).top()


def differ(ours: Answer, theirs: Answer) -> str:
    """In what way two answers differ; empty: not at all."""
    if isinstance(ours, Failure):
        if ours.sqlstate.startswith(("XX", "58")):
            return f"a bug: {ours.message}"
        if isinstance(theirs, Failure) or _meant(ours):
            return ""
        return f"only mzsql fails: {ours.sqlstate}"
    if isinstance(theirs, Failure):
        return "" if _meant(theirs) else f"only PostgreSQL fails: {theirs.sqlstate}"
    return "" if bag(ours) == bag(theirs) else "rows"


def _meant(failure: Failure) -> bool:
    return any(re.search(pattern, failure.message) for pattern, _ in DIFFERENT)


def compare(worlds: Worlds, query: Node) -> tuple[str, Answer, Answer]:
    """The way in which the answers to a query differ, and the answers."""
    sql = str(query)
    ours, theirs = worlds.mine(sql), worlds.theirs(sql)
    how = differ(ours, theirs)
    if not how and sql.endswith(IN_ORDER) and not ordered_alike(ours, theirs):
        how = "order"
    return how, ours, theirs


def check(
    worlds: Worlds, seed: int, tables: list[Table], options: Options | None = None
) -> Difference | None:
    """A seed's query over its tables, which are loaded."""
    query = query_of(seed, tables, options)
    how, ours, theirs = compare(worlds, query)
    if not how:
        return None
    return shrunk(worlds, Difference(seed, tuple(tables), query, ours, theirs), how)


def run(
    worlds: Worlds, seeds: range, options: Options | None = None
) -> Iterator[Difference | None]:
    """Seeds one after the other."""
    loaded = -1
    tables: list[Table] = []
    for seed in seeds:
        if seed // SHARED != loaded:
            tables, loaded = tables_of(seed), seed // SHARED
            worlds.load(tables)
        found = check(worlds, seed, tables, options)
        if found is not None:
            loaded = -1  # shrinking has made other tables
        yield found


def shrunk(worlds: Worlds, found: Difference, how: str, tries: int = 400) -> Difference:
    """The least query, then the least tables, that differ in the same way."""

    def still(query: Node) -> bool:
        return compare(worlds, query)[0] == how

    query = least(found.query, still, tries)
    tables = _least_tables(worlds, query, list(found.tables), how)
    worlds.load(tables)
    _, ours, theirs = compare(worlds, query)
    return replace(found, query=query, tables=tuple(tables), ours=ours, theirs=theirs)


def least(query: Node, still: Callable[[Node], bool], tries: int = 400) -> Node:
    """A tree that still shows it, of which no piece can be left out; or the best that so many tries find."""
    seen = {str(query)}
    again = True
    while again:
        again = False
        for candidate in smaller(query):
            if size(candidate) >= size(query) or str(candidate) in seen:
                continue
            seen.add(str(candidate))
            tries -= 1
            if tries < 0:
                return query
            if still(candidate):
                query, again = candidate, True
                break
    return query


def _least_tables(
    worlds: Worlds, query: Node, tables: list[Table], how: str, tries: int = 60
) -> list[Table]:
    """Tables with as few rows as show it."""
    tables = _needed(tables, str(query))
    place = 0
    while place < len(tables):
        table = tables[place]
        row = 0
        while row < len(table.rows) and tries > 0:
            fewer = replace(table, rows=table.rows[:row] + table.rows[row + 1 :])
            candidate = [*tables[:place], fewer, *tables[place + 1 :]]
            worlds.load(candidate)
            tries -= 1
            if compare(worlds, query)[0] == how:
                table, tables = fewer, candidate
            else:
                row += 1
        place += 1
    return tables


def _needed(tables: list[Table], query: str) -> list[Table]:
    """The tables that a query reads, itself or by views."""
    needed: list[Table] = []
    for table in reversed(tables):
        told = " ".join([query, *(view.query for view in needed)])
        if re.search(rf"\b{table.name}\b", told):
            needed.insert(0, table)
    return needed


def ordered_alike(ours: Answer, theirs: Answer) -> bool:
    """Whether rows come in the same order."""
    if isinstance(ours, Failure) or isinstance(theirs, Failure):
        return True
    return in_order(ours) == in_order(theirs)
