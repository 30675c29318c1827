"""Random changes of random tables, for views that are kept up to date while they happen.

Promise: what a change writes lies in the pools that the tables were filled from, so that expressions over them still cannot fail.
"""

from __future__ import annotations

import random

from fuzz_expressions import Expressions, Ref, Scope
from fuzz_made import Options
from fuzz_queries import Queries
from fuzz_schema import Table, random_row, row_text
from fuzz_tree import text


def random_change(rng: random.Random, tables: list[Table]) -> str:
    """An INSERT, an UPDATE or a DELETE."""
    table = rng.choice(tables)
    # Under a name that no relation of a subquery has, which would hide it.
    refs = tuple(Ref(text(f"changed.{c.name}"), c.kind, c.bound) for c in table.columns)
    options = Options(rare=False, recursion=False)
    expressions = Expressions(rng, Queries(rng, tables, options), rare=False)
    condition = expressions.predicate(Scope(refs, subqueries=rng.random() < 0.3), 1)
    match rng.randrange(4):
        case 0 | 1:
            rows = [row_text(random_row(rng, table)) for _ in range(rng.randint(1, 4))]
            return f"INSERT INTO {table.name} VALUES {', '.join(rows)}"
        case 2:
            return f"DELETE FROM {table.name} AS changed WHERE {condition}"
        case _:
            row = random_row(rng, table)
            places = rng.sample(range(len(row)), rng.randint(1, min(2, len(row))))
            changed = ", ".join(f"{table.columns[n].name} = {row[n]}" for n in places)
            return f"UPDATE {table.name} AS changed SET {changed} WHERE {condition}"
