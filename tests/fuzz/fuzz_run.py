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
from fuzz_queries import ANYTHING, Options, Queries
from fuzz_schema import Table, random_tables
from fuzz_tree import Node, size, smaller

SHARED = 25
#: The seeds of every day have smaller queries.
SMALL_SEEDS = 1000
SMALL = Options(depth=1)

#: Errors of one side alone that are meant, and why.
DIFFERENT: tuple[tuple[str, str], ...] = ()


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
    """The tables of a seed."""
    return random_tables(random.Random(f"tables {seed // SHARED}"))


def query_of(seed: int, tables: list[Table], options: Options = ANYTHING) -> Node:
    """The query of a seed."""
    if options is ANYTHING and seed < SMALL_SEEDS:
        options = SMALL
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
    ours, theirs = worlds.mine(str(query)), worlds.theirs(str(query))
    return differ(ours, theirs), ours, theirs


def check(
    worlds: Worlds, seed: int, tables: list[Table], options: Options = ANYTHING
) -> Difference | None:
    """A seed's query over its tables, which are loaded."""
    query = query_of(seed, tables, options)
    how, ours, theirs = compare(worlds, query)
    if not how:
        return None
    return shrunk(worlds, Difference(seed, tuple(tables), query, ours, theirs), how)


def run(worlds: Worlds, seeds: range, options: Options = ANYTHING) -> Iterator[Difference | None]:
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
    tables = [table for table in tables if re.search(rf"\b{table.name}\b", str(query))]
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


def ordered_alike(ours: Answer, theirs: Answer) -> bool:
    """Whether rows come in the same order."""
    if isinstance(ours, Failure) or isinstance(theirs, Failure):
        return True
    return in_order(ours) == in_order(theirs)
